package demo

import (
	"time"

	"github.com/onceward/onceward/cmd/internal/demo/worker"
	"github.com/onceward/onceward/dedup/driver"
)

// crash is a worker that was killed.
type crash struct {
	worker string
	point  worker.Point
	id     string // of the message at which it was killed
	at     time.Duration
}

// tally counts what the workers report, for the progress and the report. How often an effect
// happened is read from the ledger.
type tally struct {
	delivered   int
	skipped     map[driver.Cause]int
	waited      int
	lostLeases  int
	crashes     []crash
	generations map[int32]bool
	effected    map[string]bool
	warnings    map[string]int
}

func newTally() *tally {
	return &tally{
		skipped: make(map[driver.Cause]int), generations: make(map[int32]bool),
		effected: make(map[string]bool), warnings: make(map[string]int),
	}
}

func (t *tally) add(e worker.Event) {
	switch e.Kind {
	case worker.Delivered:
		t.delivered++
	case worker.Skipped:
		t.skipped[e.Cause]++
	case worker.Effected:
		t.effected[e.ID] = true
	case worker.Waiting:
		t.waited++
	case worker.Assigned:
		t.generations[e.Generation] = true
	case worker.LeaseLost:
		t.lostLeases++
	case worker.Warning:
		t.warnings[e.Text]++
	}
}

func (t *tally) crashed(c crash) { t.crashes = append(t.crashes, c) }

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

func (t *tally) duplicates() int {
	n := 0
	for _, c := range t.skipped {
		n += c
	}
	return n
}
