package script

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
)

var all = map[string]*script{
	"acquire": acquireScript, "batch": batchScript, "begin": beginScript, "ask": askScript,
	"fold": foldScript, "release": releaseScript, "remap": remapScript, "forget": forgetScript,
	"swap": swapScript,
}

// TestScriptsWriteWithAnEnd prevents a key without expiry after a crash between two commands. Only
// the head, run and the value of swap have no expiry: each SADD, or loop of them, and each APPEND
// is followed by its PEXPIREAT.
func TestScriptsWriteWithAnEnd(t *testing.T) {
	call := regexp.MustCompile(`redis\.call\('([A-Z]+)', (KEYS\[\w+\])?[^\n]*`)
	for name, s := range all {
		for _, m := range call.FindAllStringSubmatch(s.plain.text, -1) {
			switch _, after, _ := strings.Cut(s.plain.text, m[0]); m[1] {
			case "HSET", "HSETNX", "HDEL", "HINCRBY":
				assert.Contains(t, []string{"KEYS[1]", "KEYS[3]"}, m[2], "%s: %s", name, m[0])
			case "SADD", "APPEND":
				next, _, found := strings.Cut(after, "redis.call('PEXPIREAT', "+m[2])
				assert.True(t, found, "%s: %s", name, m[0])
				assert.NotContains(t, next, "redis.call", "%s: %s", name, m[0])
			case "SET":
				if s != swapScript {
					assert.Regexp(t, `'PX'|'KEEPTTL'`, m[0], name)
				}
			}
		}
	}
}

// TestOnlyBeginsAreRefusedWhenFull pins the flags that decide what a full server does.
func TestOnlyBeginsAreRefusedWhenFull(t *testing.T) {
	for name, s := range all {
		want := map[string]string{"begin": "#!lua", "ask": "#!lua flags=no-writes"}[name]
		if want == "" {
			want = "#!lua flags=allow-oom"
		}
		shebang, body, _ := strings.Cut(s.full.text, "\n")
		assert.Equal(t, want, shebang, name)
		assert.Equal(t, s.plain.text, body, name)
		assert.NotContains(t, s.plain.text, "#!", name)
	}
}

func TestMillis(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		0: 0, 1: 1, time.Microsecond: 1, time.Millisecond: 1, time.Millisecond + 1: 2,
		time.Hour: 3600000, 1<<63 - 1: MaxMillis,
	} {
		assert.Equal(t, want, Millis(d), d)
	}
	assert.Positive(t, FromMillis(1<<62), "it overflows")
	assert.Equal(t, -5*time.Millisecond, FromMillis(-5))
}

// TestProblems prevents a client that forgets claims, and a prefix that moves the keys' slots.
func TestProblems(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{})
	good := redis.NewClient(&redis.Options{})
	for want, clients := range map[string][]redis.UniversalClient{
		"is nil":       {nil, (*redis.Client)(nil), (*redis.ClusterClient)(nil)},
		"is a Ring":    {ring},
		"wraps a Ring": {struct{ redis.UniversalClient }{ring}},
		"":             {good, struct{ redis.UniversalClient }{good}},
	} {
		for _, client := range clients {
			problem := ClientProblem(client)
			assert.True(t, strings.HasPrefix(problem, want) && (want != "" || problem == ""),
				"%T: %q", client, problem)
		}
	}
	for prefix, good := range map[string]bool{
		"a-Z_0.9": true, strings.Repeat("x", 64): true, strings.Repeat("x", 65): false, "": false,
		"a{b}": false, "a:b": false, "a\n": false,
	} {
		assert.Equal(t, good, PrefixProblem(prefix) == "", prefix)
	}
}
