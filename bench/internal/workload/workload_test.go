package workload

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/redisadapter"
)

type silent struct{}

func (silent) Step(harness.Group, int, int, int, int) {}
func (silent) Done(harness.Group, []harness.Row)      {}

// embedded is where every family runs in a test: small, and without a server process.
func embedded(t *testing.T) *Env {
	t.Helper()
	s, err := server.Open(t.Context(), server.Embedded, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	e := NewEnv(s, Scale{Quick: true})
	e.Budget, e.Grown = time.Millisecond, []int{512}
	return e
}

// Every family does what it says: sides check their answers, so a run without error means
// that new keys were new and duplicates were known.
func TestFamiliesRun(t *testing.T) {
	e := embedded(t)
	match := regexp.MustCompile("^batch 16,|^batch 256, duplicates|^lone caller, new key$|^64 callers, new keys$|^256 .*RTT|^stream with 90 .* one caller|^stream with 50 .* 64|^peers|result of 1024 bytes")
	groups, _ := e.Choose(e.Groups(), match)
	if len(groups) != 9 {
		t.Fatalf("%d groups", len(groups))
	}
	r := harness.Runner{Rounds: 1, MaxKeys: 64, Budget: e.Budget, Progress: silent{}, Between: e.Server.Empty}
	rows, err := r.Run(t.Context(), groups)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		if row.Value <= 0 || row.Rounds != 1 || row.Workload == "" || row.Side == "" || row.Name == "" {
			t.Errorf("row %+v", row)
		}
		if row.Against != "" && (row.Ratio <= 0 || row.AgainstValue <= 0) {
			t.Errorf("row %q has no ratio to %q: a pair names a side that is not there", row.Name, row.Against)
		}
	}
}

func TestGoalsAreAllThere(t *testing.T) {
	titles := make(map[string]bool)
	for _, g := range NewEnv(nil, Scale{Long: true}).Groups() {
		if titles[g.Title] {
			t.Errorf("two groups are called %q", g.Title)
		}
		titles[g.Title] = true
	}
	for _, want := range []string{
		"batch 256, claim + complete, new keys", "batch 256, duplicates", "lone caller, new key", "64 callers, new keys", "256 callers, new keys",
		"1024 callers, new keys", "1024 callers, new keys, 2 ms RTT", "bytes per remembered key, 1 M keys", "duplicates answered in process",
		"stream with 0 % recent duplicates, one caller", "stream with 50 % recent duplicates, one caller", "stream with 90 % recent duplicates, one caller",
		"growth 10 k -> 10 M keys, duplicate check, " + plain().name,
	} {
		if !titles[want] {
			t.Errorf("no group is called %q", want)
		}
	}
}

func TestMemoryIsNotMeasuredOnOthersServers(t *testing.T) {
	e := embedded(t)
	chosen, leftOut := e.Choose(e.Groups(), regexp.MustCompile("^bytes"))
	if len(chosen) != 0 || len(leftOut) == 0 || !strings.HasPrefix(leftOut[0], "bytes per") {
		t.Errorf("chosen %d, left out %q", len(chosen), leftOut)
	}
}

// What stays for an hour is not for a server that others use.
func TestOthersServersAreNotFilled(t *testing.T) {
	e := embedded(t)
	e.Server.Own = false
	chosen, leftOut := e.Choose(e.Groups(), regexp.MustCompile("^growth|^batch 16,"))
	if len(chosen) != 1 || chosen[0].Workload != "batch" || len(leftOut) < len(others(redisadapter.Mixed)) {
		t.Errorf("chosen %d, left out %q", len(chosen), leftOut)
	}
	e.Server.Own = true
	if chosen, _ := e.Choose(e.Groups(), regexp.MustCompile("^growth")); len(chosen) != len(others(redisadapter.Mixed)) {
		t.Errorf("%d chosen on our own server", len(chosen))
	}
}

// Figures of a quick run must not pass for those of a full one.
func TestQuickRunSaysSo(t *testing.T) {
	e := embedded(t)
	said := func() bool {
		_, leftOut := e.Choose(e.Groups(), regexp.MustCompile("^batch"))
		return slices.ContainsFunc(leftOut, func(what string) bool { return strings.Contains(what, "quick run") })
	}
	if !said() {
		t.Error("a quick run does not say so")
	}
	if e.Quick = false; said() {
		t.Error("a full run says that it is a quick one")
	}
}

func TestEveryKeyIsWorkedOnOnce(t *testing.T) {
	for name, run := range map[string]func(count func(string)) runFunc{
		"callers": func(count func(string)) runFunc {
			return callers(7, func(_ context.Context, key string) error { count(key); return nil })
		},
		"batches": func(count func(string)) runFunc {
			return inBatches(3, 16, func(_ context.Context, _ int, keys []string) error {
				for _, key := range keys {
					count(key)
				}
				return nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			keys := harness.FreshKeys(100) // no multiple of anything
			counts := make(map[string]*atomic.Int32)
			for _, key := range keys {
				counts[key] = new(atomic.Int32)
			}
			timing := &harness.Timing{Keys: keys, Latency: make([]time.Duration, len(keys))}
			if err := run(func(key string) { counts[key].Add(1) })(t.Context(), timing); err != nil {
				t.Fatal(err)
			}
			for key, n := range counts {
				if n.Load() != 1 {
					t.Errorf("%s: %d times", key, n.Load())
				}
			}
			for i, d := range timing.Latency {
				if (d > 0) != (name == "callers") {
					t.Errorf("latency %d is %v", i, d)
				}
			}
		})
	}
}

func TestAFailureEndsAllCallers(t *testing.T) {
	boom := errors.New("boom")
	run := callers(4, func(ctx context.Context, key string) error {
		if key == "bad" {
			return boom
		}
		<-ctx.Done()
		return ctx.Err()
	})
	timing := &harness.Timing{Keys: []string{"a", "b", "bad", "c"}, Latency: make([]time.Duration, 4)}
	if err := run(t.Context(), timing); !errors.Is(err, boom) {
		t.Errorf("error %v", err)
	}
}
