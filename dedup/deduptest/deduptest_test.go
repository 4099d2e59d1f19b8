package deduptest

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
)

func newMemory(testing.TB) dedup.Store { return dedup.Memory(1 << 16) }

// The suite must pass on a store that is right, with real time and with fake time.
func TestRunOnMemory(t *testing.T) {
	Run(t, Harness{New: newMemory, Lease: 20 * time.Millisecond})
}

func TestSuiteInFakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, said := range recordSuite(t, Harness{New: newMemory}) {
			t.Errorf("%s fails on a store that is right: %s", name, said)
		}
	})
}

// Only Advance moves a fake clock, so every wait of the suite must call it.
func TestSuiteAdvances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := Harness{New: newMemory, Advance: func(d time.Duration) { <-time.After(d) }}
		for name, said := range recordSuite(t, h) {
			t.Errorf("%s fails on a store with Advance: %s", name, said)
		}
	})
}

func TestEveryPropertyIsExplainedOnce(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range suite(Harness{}) {
		assert.False(t, seen[p.name], "property %q is listed twice", p.name)
		assert.NotEmpty(t, p.prevents, "property %q is not explained", p.name)
		assert.Contains(t, p.name, "/", "property %q has no topic", p.name)
		seen[p.name] = true
	}
	assert.GreaterOrEqual(t, len(seen), 30)
}

// A random walk compares nothing if it reaches few states. The walks must make each call in each.
func TestWalksReachEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		met := map[string]bool{}
		for seed := range uint64(walks) {
			h := Harness{New: newMemory}.withDefaults(t)
			w, err := (&check{TB: t, h: h, store: h.New(t)}).walk(seed + 1)
			require.NoError(t, err)
			for _, way := range w.way {
				way, _, _ = strings.Cut(way, ", expire")
				way, _, _ = strings.Cut(way, ", steps")
				stands, what, _ := strings.Cut(way, ": ")
				what, newer, _ := strings.Cut(strings.TrimLeft(what, "0123456789"), ", newer=")
				what, first, _ := strings.Cut(what, ", first=")
				met[stands+what] = true
				met[stands+" first"] = met[stands+" first"] || first == "true"
				met[stands+" gives way"] = met[stands+" gives way"] || newer == "true"
			}
		}
		assert.True(t, met["in_progress gives way"], "no walk takes a live claim over")
		for _, stands := range []string{"absent", "in_progress", "lapsed", "released", "succeeded",
			"failed", "uncertain"} {
			for _, what := range []string{
				"first", "claims, lapse=false, take=false", "claims, lapse=true, take=false",
				"claims, lapse=false, take=true", "claims, lapse=true, take=true",
				"renews, lapse=false, danger=false", "renews, lapse=false, danger=true", "forgets",
				"ends succeeded, landed=false, not begun=false, unused=false",
				"ends succeeded, landed=true, not begun=false, unused=false",
				"ends failed, landed=false, not begun=false, unused=false",
				"ends released, landed=false, not begun=false, unused=false",
				"ends released, landed=false, not begun=true, unused=false",
				"ends released, landed=false, not begun=false, unused=true",
			} {
				assert.True(t, met[stands+" "+what], "no walk %s when the key is %s", what, stands)
			}
		}
	})
}
