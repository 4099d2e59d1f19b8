package redisbench

import (
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/bench/internal/work"
	"github.com/onceward/onceward/redisadapter"
)

// embedded is where every family runs in a test: small, and without a server process.
func embedded(t *testing.T) *env {
	t.Helper()
	redis, err := server.Open(t.Context(), server.Embedded, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = redis.Close() })
	e := newEnv(redis, harness.Options{Quick: true, Budget: time.Millisecond})
	e.grown = []int{512}
	return e
}

func titled(groups []harness.Group, pattern string) []harness.Group {
	match := regexp.MustCompile(pattern)
	return slices.DeleteFunc(groups, func(g harness.Group) bool {
		return !match.MatchString(g.Title)
	})
}

// Every family does what it says: sides check their answers, so a run without error means
// that new keys were new and duplicates were known.
func TestFamiliesRun(t *testing.T) {
	e := embedded(t)
	groups := titled(e.groups(),
		"^batch 16,|^batch 256, duplicates|^lone caller, new key|^64 callers, new keys$|^256 .*RTT|^stream with 90 .* one caller|^stream with 50 .* 64|^peers, 16|result of 1024 bytes")
	if len(groups) != 11 {
		t.Fatalf("%d groups", len(groups))
	}
	r := harness.Runner{Rounds: 1, MaxKeys: 64, Budget: e.budget, Between: e.redis.Empty}
	rows, err := r.Run(t.Context(), groups)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		if row.Value <= 0 || row.Rounds != 1 || row.Workload == "" || row.Side == "" ||
			row.Name == "" {
			t.Errorf("row %+v", row)
		}
		if row.Against != "" && (row.Ratio <= 0 || row.AgainstValue <= 0) {
			t.Errorf("row %q has no ratio to %q: a pair names a side that is not there", row.Name,
				row.Against)
		}
	}
}

func TestGoalsAreAllThere(t *testing.T) {
	titles := make(map[string]bool)
	for _, g := range newEnv(&server.Redis{Own: true}, harness.Options{Long: true}).groups() {
		if titles[g.Title] {
			t.Errorf("two groups are called %q", g.Title)
		}
		titles[g.Title] = true
	}
	for _, want := range []string{
		"batch 256, claim + complete, new keys", "batch 256, duplicates", "lone caller, new key",
		"lone caller, new key, other core busy", "64 callers, new keys",
		"256 callers, new keys", "1024 callers, new keys", "1024 callers, new keys, 2 ms RTT",
		"bytes per remembered key, 1 M keys", "duplicates answered in process",
		"stream with 0 % recent duplicates, one caller",
		"stream with 50 % recent duplicates, one caller",
		"stream with 90 % recent duplicates, one caller",
		"growth 10 k -> 10 M keys, duplicate check, " + plain().Name,
	} {
		if !titles[want] {
			t.Errorf("no group is called %q", want)
		}
	}
}

// Memory is not measured in this process, and what stays for an hour is not for a server that
// others use.
func TestOthersServersAreNotFilled(t *testing.T) {
	able := func(own, isEmbedded bool, pattern string) (n int) {
		for _, g := range titled(newEnv(&server.Redis{Own: own, Embedded: isEmbedded},
			harness.Options{Long: true}).groups(), pattern) {
			if g.Unable == "" {
				n++
			}
		}
		return n
	}
	few := len(work.Without(redisadapter.Mixed))
	for _, c := range []struct {
		own, isEmbedded bool
		pattern         string
		want            int
	}{
		{true, false, "^bytes|^server CPU", 2}, {true, true, "^bytes|^server CPU", 0},
		{false, false, "^bytes|^server CPU", 0},
		{true, false, "^growth", 2 * few}, {true, true, "^growth", few},
		{false, false, "^growth", 0}, {false, false, "^batch 16,", 1},
	} {
		if got := able(c.own, c.isEmbedded, c.pattern); got != c.want {
			t.Errorf("%+v: %d can run", c, got)
		}
	}
}
