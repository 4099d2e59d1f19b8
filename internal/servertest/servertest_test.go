package servertest

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
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
	if path := Program(t, "go"); path == "" {
		t.Error("go is nowhere")
	}
	if e := resultOf(t, func(t testing.TB) { Program(t, "no-such-program") }); e.skipped == "" {
		t.Error("a missing program did not skip the test")
	}
	t.Setenv(EnvRequire, "1")
	if e := resultOf(t, func(t testing.TB) { Program(t, "no-such-program") }); e.failed == "" {
		t.Error("a missing program that is required did not fail the test")
	}
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
			if e := resultOf(t, get); !strings.Contains(e.skipped, "NOT RUN: "+variable) {
				t.Errorf("without the server: %+v, want a skip that names the variable", e)
			}
			t.Setenv(EnvRequire, "1")
			if e := resultOf(t, get); !strings.Contains(e.failed, variable) {
				t.Errorf("required: %+v, want a failure that names the variable", e)
			}
			t.Setenv(variable, "127.0.0.1:1,127.0.0.1:2")
			t.Setenv(EnvRedisReplica, "127.0.0.1:3")
			if e := resultOf(t, get); e.skipped+e.failed != "" {
				t.Errorf("present: %+v, want neither", e)
			}
		})
	}
}

func TestMissingPrivateServer(t *testing.T) {
	t.Setenv(EnvServers, "")
	t.Setenv(EnvRequire, "")
	e := resultOf(t, func(t testing.TB) { Private(t, KindRedis) })
	if !strings.Contains(e.skipped, EnvServers) {
		t.Errorf("%+v, want a skip that names the variable", e)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestPrefix(t *testing.T) {
	valid := regexp.MustCompile(`^[a-z][a-z0-9_]{0,39}$`)
	t.Run("a name/that is long, has Ünicode & spaces, and goes on", func(t *testing.T) {
		one, two := Prefix(t), Prefix(t)
		if !valid.MatchString(one) {
			t.Errorf("%q is not a valid prefix", one)
		}
		if one == two {
			t.Errorf("%q was given twice", one)
		}
	})
}

func TestFindScript(t *testing.T) {
	script, err := findScript()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(script); err != nil {
		t.Error(err)
	}
	t.Chdir(t.TempDir())
	if script, err := findScript(); err == nil {
		t.Errorf("outside the repository: %s, want an error", script)
	}
}
