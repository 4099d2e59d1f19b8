package demo

import (
	"github.com/onceward/onceward/cmd/internal/demo/worker"
	"github.com/onceward/onceward/dedup/driver"
)

// tally counts what the workers report, for the progress and the report. How often an effect
// happened is read from the ledger.
type tally struct {
	events      map[worker.EventKind]int
	skipped     map[driver.Cause]int
	generations map[int32]bool
	effected    map[string]bool
	warnings    map[string]int
	crashes     []crash
}

func newTally() *tally {
	return &tally{
		events: make(map[worker.EventKind]int), skipped: make(map[driver.Cause]int),
		generations: make(map[int32]bool), effected: make(map[string]bool),
		warnings: make(map[string]int),
	}
}

func (t *tally) add(e worker.Event) {
	t.events[e.Kind]++
	switch e.Kind {
	case worker.Skipped:
		t.skipped[e.Cause]++
	case worker.Effected:
		t.effected[e.ID] = true
	case worker.Assigned:
		t.generations[e.Generation] = true
	case worker.Warning:
		t.warnings[e.Text]++
	}
}

// crashesAt counts the crashes at a point.
func (t *tally) crashesAt(p worker.Point) int {
	n := 0
	for _, c := range t.crashes {
		if c.point == p {
			n++
		}
	}
	return n
}

// rebalances is how often partitions were assigned again after the first time.
func (t *tally) rebalances() int { return max(0, len(t.generations)-1) }
