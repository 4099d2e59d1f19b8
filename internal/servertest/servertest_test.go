package servertest

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// testResult is how a test ended, seen from outside of it.
type testResult struct {
	testing.TB
	skipped, failed string
}

func (e *testResult) Helper()                   {}
func (e *testResult) Skipf(f string, a ...any)  { e.skipped = fmt.Sprintf(f, a...); panic(e) }
func (e *testResult) Fatalf(f string, a ...any) { e.failed = fmt.Sprintf(f, a...); panic(e) }

// resultOf runs f as a test would be run, and returns how it ended.
func resultOf(t *testing.T, f func(testing.TB)) *testResult {
	e := &testResult{TB: t}
	func() {
		defer func() {
			if r := recover(); r != nil && r != any(e) {
				panic(r)
			}
		}()
		f(e)
	}()
	return e
}

// A program that is missing skips the test, or fails it if it is required.
func TestProgram(t *testing.T) {
	t.Setenv(EnvRequire, "")
	assert.NotEmpty(t, Program(t, "go"), "go is nowhere")
	assert.NotEmpty(t, resultOf(t, func(t testing.TB) { Program(t, "no-such-program") }).skipped,
		"a missing program did not skip the test")
	t.Setenv(EnvRequire, "1")
	assert.NotEmpty(t, resultOf(t, func(t testing.TB) { Program(t, "no-such-program") }).failed,
		"a missing program that is required did not fail the test")
}

// getters are all the ways to ask for a shared server, by the variable that each needs first.
var getters = map[string]func(testing.TB){
	EnvRedis:        func(t testing.TB) { Redis(t) },
	EnvRedisPrimary: func(t testing.TB) { RedisPrimary(t) },
	EnvRedisCluster: func(t testing.TB) { RedisCluster(t) },
	EnvPostgres:     func(t testing.TB) { Postgres(t) },
	EnvMariaDB:      func(t testing.TB) { MariaDB(t) },
	EnvKafka:        func(t testing.TB) { Kafka(t) },
	EnvKafka3:       func(t testing.TB) { Kafka3(t) },
}

// A server that nobody started must never make a test pass: the test is skipped with a reason, or
// failed.
func TestMissingServer(t *testing.T) {
	for variable, get := range getters {
		t.Run(variable, func(t *testing.T) {
			t.Setenv(variable, "")
			t.Setenv(EnvRequire, "")
			e := resultOf(t, get)
			assert.Contains(t, e.skipped, "NOT RUN: "+variable, "without the server: %+v", e)
			t.Setenv(EnvRequire, "1")
			e = resultOf(t, get)
			assert.Contains(t, e.failed, variable, "required: %+v", e)
			t.Setenv(variable, "127.0.0.1:1,127.0.0.1:2")
			t.Setenv(EnvRedisReplica, "127.0.0.1:3")
			e = resultOf(t, get)
			assert.Empty(t, e.skipped+e.failed, "present: %+v", e)
		})
	}
}

func TestMissingPrivateServer(t *testing.T) {
	t.Setenv(EnvServers, "")
	t.Setenv(EnvRequire, "")
	e := resultOf(t, func(t testing.TB) { Private(t, KindRedis) })
	assert.Contains(t, e.skipped, EnvServers, "%+v", e)
}

// The addresses in the variables must answer: a wrong port would otherwise fail a distant test.
func TestSharedServersListen(t *testing.T) {
	for _, variable := range Addresses {
		t.Run(variable, func(t *testing.T) {
			for _, addr := range strings.Split(need(t, variable), ",") {
				dial(t, hostPort(t, addr))
			}
		})
	}
}

// hostPort finds host:port in an address, a URL or a DSN.
func hostPort(t *testing.T, addr string) string {
	t.Helper()
	if u, err := url.Parse(addr); err == nil && u.Host != "" {
		return u.Host
	}
	if m := regexp.MustCompile(`tcp\((.*?)\)`).FindStringSubmatch(addr); m != nil {
		return m[1]
	}
	return addr
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestPrefix(t *testing.T) {
	valid := regexp.MustCompile(`^[a-z][a-z0-9_]{0,39}$`)
	t.Run("a name/that is long, has Ünicode & spaces, and goes on", func(t *testing.T) {
		one, two := Prefix(t), Prefix(t)
		assert.True(t, valid.MatchString(one), "%q is not a valid prefix", one)
		assert.NotEqual(t, two, one, "given twice")
	})
}

func TestFindScript(t *testing.T) {
	script, err := findScript()
	require.NoError(t, err)
	_, err = os.Stat(script)
	assert.NoError(t, err)
	t.Chdir(t.TempDir())
	script, err = findScript()
	assert.Error(t, err, "outside the repository: %s", script)
}
