package demo

import (
	"fmt"
	"slices"
	"time"

	"github.com/onceward/onceward/cmd/internal/demo/stream"
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

// rebalances is how often partitions were assigned again after the first time.
func (t *tally) rebalances() int { return max(0, len(t.generations)-1) }

// deviation is an id whose effect did not happen exactly once.
type deviation struct {
	id    string
	times int
	// crashes can explain it. They are the crashes between the effect of this id and its record, or
	// before the effect if that never happened.
	crashes []crash
}

// unexplained is how many extra or missing effects no crash explains.
func (d deviation) unexplained() int {
	if d.times == 0 {
		return max(0, 1-len(d.crashes))
	}
	return max(0, d.times-1-len(d.crashes))
}

// judgment is what the ledger shows about one composition.
type judgment struct {
	composition worker.Composition
	unique      int
	effects     int
	lost        []deviation
	doubled     []deviation
	// strange are ids that are in the ledger but were never produced.
	strange []string
}

// judge compares the produced messages with the ledger.
func judge(c worker.Composition, produced []stream.Message, ledger map[string]int,
	crashes []crash) judgment {
	v := judgment{composition: c}
	at := func(p worker.Point, id string) []crash {
		return slices.DeleteFunc(slices.Clone(crashes), func(c crash) bool {
			return c.point != p || c.id != id
		})
	}
	known := make(map[string]bool, len(produced))
	for _, m := range produced {
		if known[m.ID] {
			continue
		}
		known[m.ID] = true
		switch n := ledger[m.ID]; {
		case n == 0:
			v.lost = append(v.lost, deviation{m.ID, 0, at(worker.BeforeEffect, m.ID)})
		case n > 1:
			v.doubled = append(v.doubled, deviation{m.ID, n, at(worker.AfterEffect, m.ID)})
		}
	}
	v.unique = len(known)
	for id, n := range ledger {
		v.effects += n
		if !known[id] {
			v.strange = append(v.strange, id)
		}
	}
	slices.Sort(v.strange)
	return v
}

// unexplained is how many extra effects no crash explains.
func (v judgment) unexplained() int {
	n := 0
	for _, d := range v.doubled {
		n += d.unexplained()
	}
	return n
}

// kept reports whether the composition kept its promise. The naive one makes none.
func (v judgment) kept() bool {
	switch v.composition {
	case worker.Atomic:
		return v.clean()
	case worker.Claimed:
		return len(v.lost)+v.unexplained()+len(v.strange) == 0
	}
	return true
}

// finding returns a sentence about what the composition promised and what was found.
func (v judgment) finding() string {
	found := fmt.Sprintf("lost %d, doubled %d", len(v.lost), len(v.doubled))
	switch {
	case v.composition == worker.Naive && v.clean():
		return "promises nothing, and was lucky: " + found
	case v.composition == worker.Naive:
		return "promises nothing: " + found + ". It skipped messages that were redelivered"
	case !v.kept():
		return fmt.Sprintf("BROKE its promise: %s, %d effects unexplained, %d ids from nowhere",
			found, v.unexplained(), len(v.strange))
	case v.composition == worker.Claimed:
		return "kept its promise: " + found + ", each by a crash between its effect and its record"
	}
	return "kept its promise: " + found
}

// clean reports whether every effect happened once.
func (v judgment) clean() bool { return len(v.lost)+len(v.doubled)+len(v.strange) == 0 }
