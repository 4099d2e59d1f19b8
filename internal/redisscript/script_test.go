package redisscript

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

var all = []*Script{Claim, Renew, Finish, Lookup, Forget, Restore, Drop, Forgets, Complete, Enter,
	Reindex}

// TestScriptsTouchOneKey prevents a script that works on one server and answers
// CROSSSLOT on a Cluster.
func TestScriptsTouchOneKey(t *testing.T) {
	keys := regexp.MustCompile(`KEYS\[[^\]]*\]`)
	for _, s := range all {
		for _, key := range keys.FindAllString(s.plain.text, -1) {
			// Buckets are passed to the scripts that know them, and share the slot. The index is
			// that of the slot, and the last of the keys. Complete has many keys on one server
			// only.
			bucket := key == "KEYS[i]" && strings.Contains(s.plain.text, "+0  member")
			index := (s.inIndex || s == Enter) && (key == "KEYS[#KEYS]" || s == Complete)
			assert.False(t, key != "KEYS[1]" && !bucket && !index, "%s uses %s", s.Name, key)
		}
	}
}

// TestScriptsWriteWithAnEnd prevents a key without expiry after a crash between two
// commands: there is one SET, and it carries its PX.
func TestScriptsWriteWithAnEnd(t *testing.T) {
	call := regexp.MustCompile(`redis\.p?call\('([A-Z]+)'[^\n]*`)
	for _, s := range all {
		for _, m := range call.FindAllStringSubmatch(s.plain.text, -1) {
			switch m[1] {
			case "GET", "PTTL", "TIME", "DEL", "SISMEMBER", "SREM", "EXISTS", "PEXPIREAT":
			case "HGET", "HDEL", "HRANDFIELD":
			case "HSET":
				// A later command gives the index its end, if it has none that is late enough.
				_, after, _ := strings.Cut(s.plain.text, m[0]+"\n")
				assert.Contains(t, after, "redis.call('PEXPIREAT', index,",
					"%s: %s, without an end", s.Name, m[0])
			case "SADD":
				// The next line gives the bucket its end.
				_, after, _ := strings.Cut(s.plain.text, m[0]+"\n")
				next, _, _ := strings.Cut(after, "\n")
				assert.Contains(t, next, "finite(b, i)", "%s: %s, then", s.Name, m[0])
			case "SET":
				// Restore alone may put back something that never expires: it is not ours.
				assert.False(t, !strings.Contains(m[0], "'PX'") && s != Restore, "%s: %s", s.Name,
					m[0])
			default:
				t.Errorf("%s calls %s", s.Name, m[1])
			}
		}
	}
}

// TestOnlyNewClaimsAreRefusedWhenFull pins the flags that decide what a full server does.
func TestOnlyNewClaimsAreRefusedWhenFull(t *testing.T) {
	want := map[*Script]string{
		Claim: "", Lookup: "#!lua flags=no-writes",
		Renew: "#!lua flags=allow-oom", Finish: "#!lua flags=allow-oom",
		Complete: "#!lua flags=allow-oom", Forget: "#!lua flags=allow-oom",
		Restore: "#!lua flags=allow-oom", Reindex: "#!lua flags=allow-oom",
		Enter:   "#!lua flags=allow-oom",
		Forgets: "#!lua flags=allow-oom", Drop: "#!lua flags=allow-oom",
	}
	for _, s := range all {
		shebang := ""
		if strings.HasPrefix(s.full.text, "#!") {
			shebang, _, _ = strings.Cut(s.full.text, "\n")
		}
		assert.Equal(t, want[s], shebang, "%s begins with %q", s.Name, shebang)
		assert.False(t, strings.HasPrefix(s.plain.text, "#!"), "%s: the plain form has a shebang",
			s.Name)
	}
}

func TestMillis(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		0: 0, 1: 1, time.Microsecond: 1, time.Millisecond: 1, time.Millisecond + 1: 2,
		time.Hour: 3600000, 1<<63 - 1: MaxMillis,
	} {
		got := Millis(d)
		assert.Equal(t, want, got, "Millis(%v) = %d", d, got)
	}
	assert.Positive(t, FromMillis(1<<62), "FromMillis overflows")
	got := FromMillis(-5)
	assert.Equal(t, -5*time.Millisecond, got, "FromMillis(-5) = %v", got)
}
