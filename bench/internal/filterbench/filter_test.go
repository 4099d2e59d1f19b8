package filterbench

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bloom"
)

// small is an Env for which a test has time.
func small(t *testing.T) *env {
	return &env{sizes: []int{2000}, budget: time.Millisecond, rounds: 1, hits: 2, dir: t.TempDir()}
}

// Every workload runs, and what is no matter of speed reaches its goal in the smallest form as
// well.
func TestEverythingRuns(t *testing.T) {
	e := small(t)
	rows, err := harness.Runner{Rounds: 1, Budget: e.budget}.Run(t.Context(), e.groups())
	if err != nil {
		t.Fatal(err)
	}
	families := map[string]int{}
	for _, r := range rows {
		families[r.Workload]++
		speed := strings.Contains(r.Goal, "ns") || r.Unit == "ns/key" || r.Unit == "CPU ns/key" ||
			r.Unit == "us" || r.Unit == "s" || r.Unit == "bytes" || r.Unit == "allocations/key" ||
			r.Unit == "in a million" // counted from too few
		if !speed && !r.OK {
			t.Errorf("%s: %v %s, goal %s", r.Name, r.Value, r.Unit, r.Goal)
		}
		if r.Value <= 0 && r.Goal == "" && r.Unit != "%" {
			t.Errorf("%s, %s: nothing was measured: %+v", r.Name, r.Side, r)
		}
	}
	for _, family := range []string{
		"known ids, 1 goroutine", "new ids, 2 goroutines", "ids added, 1 goroutine", "memory",
		"false positives", "rotation", "snapshot", "degraded",
	} {
		if families[family] == 0 {
			t.Errorf("no row of %q: %v", family, families)
		}
	}
}

// A side that knows other ids than the rest would be faster or slower for it.
func TestSidesKnowTheSame(t *testing.T) {
	const keys = 2000
	b, err := small(t).of(keys)
	if err != nil {
		t.Fatal(err)
	}
	wrong := 0
	for n := range uint64(keys) {
		answer, _ := b.filter.Check(id(n))
		if other, _ := b.classic.Check(id(n)); answer != bloom.Maybe || other != bloom.Maybe ||
			!b.bloom.has(id(n)) || !b.exact.has(id(n)) {
			t.Fatalf("id %d is known: %v %v %v %v", n, answer, other, b.bloom.has(id(n)),
				b.exact.has(id(n)))
		}
		if answer, _ := b.filter.Check(unknown(n)); answer != bloom.ProvenNew {
			wrong++
		}
		if b.exact.has(unknown(n)) {
			t.Fatalf("id %d is not known", n)
		}
		if other, _ := b.classic.Check(unknown(n)); other != bloom.ProvenNew ||
			b.bloom.has(unknown(n)) {
			wrong++
		}
	}
	if wrong > keys/50 {
		t.Errorf("%d of %d new ids are not new", wrong, keys)
	}
}

// Whoever asks does so for as many ids as are counted.
func TestBatchesAskForAll(t *testing.T) {
	f, _, err := open(options(100))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[uint64]int{}
	inBatches(f, func(n uint64) [16]byte { seen[n]++; return id(n) })(7, 2*batchIDs+3)
	if len(seen) != 2*batchIDs+3 || seen[7] != 1 || seen[2*batchIDs+9] != 1 {
		t.Errorf("asked for %d ids", len(seen))
	}
	total := 0
	for _, n := range f.Stats().Answers {
		total += int(n)
	}
	if total != 2*batchIDs+3 {
		t.Errorf("%d were answered", total)
	}
}

func TestMeasurementsEndWithTheirContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, g := range small(t).rotation() {
		if err := g.Open(ctx, &harness.Setup{}); err == nil {
			t.Errorf("%s goes on", g.Title)
		}
	}
}
