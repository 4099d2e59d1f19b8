package deduptest

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// recorder is a testing.TB that keeps failures instead of failing the test around it, so that a
// test can require the suite to fail.
type recorder struct {
	testing.TB // for Context, Cleanup, Logf and the rest

	mu       sync.Mutex
	failed   bool
	messages []string
}

func (r *recorder) Helper()                      {}
func (r *recorder) Name() string                 { return "recorded" }
func (r *recorder) Log(args ...any)              {}
func (r *recorder) Logf(string, ...any)          {}
func (r *recorder) Error(args ...any)            { r.note(fmt.Sprint(args...)) }
func (r *recorder) Errorf(f string, args ...any) { r.note(fmt.Sprintf(f, args...)) }
func (r *recorder) Fail()                        { r.note("Fail") }
func (r *recorder) FailNow()                     { r.Fail(); runtime.Goexit() }
func (r *recorder) Fatal(args ...any)            { r.Error(args...); runtime.Goexit() }
func (r *recorder) Fatalf(f string, args ...any) { r.Errorf(f, args...); runtime.Goexit() }
func (r *recorder) Skip(args ...any)             { r.Fatal("Skip is not recorded") }
func (r *recorder) Skipf(string, ...any)         { r.Fatal("Skipf is not recorded") }
func (r *recorder) SkipNow()                     { r.Fatal("SkipNow is not recorded") }

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) note(message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
	if len(r.messages) < 5 {
		r.messages = append(r.messages, message)
	}
}

// recordSuite runs every property, or those that are named, each on a goroutine of its
// own, which Fatalf ends, and returns what each failed one said.
func recordSuite(t *testing.T, h Harness, named ...string) map[string]string {
	t.Helper()
	h = h.withDefaults(t)
	said := map[string]string{}
	for _, p := range suite(h) {
		if len(named) > 0 && !slices.Contains(named, p.name) {
			continue
		}
		if message, failed := record(t, p, h); failed {
			said[p.name] = message
		}
	}
	return said
}

// record runs one property.
func record(t *testing.T, p property, h Harness) (message string, failed bool) {
	t.Helper()
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.prove(r, h)
	}()
	<-done
	return strings.Join(r.messages, "; "), r.Failed()
}
