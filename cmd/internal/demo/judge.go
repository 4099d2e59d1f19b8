package demo

import (
	"fmt"
	"slices"

	"github.com/onceward/onceward/cmd/internal/demo/worker"
)

// doubling is an id whose effect happened more than once.
type doubling struct {
	id    string
	times int
	// crashes are the crashes between the effect of this id and its record.
	crashes []crash
}

// unexplained is how many of the extra effects no crash explains.
func (d doubling) unexplained() int { return max(0, d.times-1-len(d.crashes)) }

// loss is an id that never had its effect.
type loss struct {
	id      string
	crashes []crash // before the effect of this id
}

// judgment is what the ledger shows about one composition.
type judgment struct {
	composition worker.Composition
	unique      int
	effects     int
	lost        []loss
	doubled     []doubling
	// strange are ids that are in the ledger but were never produced.
	strange []string
}

// judge compares the produced ids with the ledger.
func judge(c worker.Composition, produced []string, ledger map[string]int,
	crashes []crash) judgment {
	v := judgment{composition: c}
	at := func(p worker.Point, id string) []crash {
		var found []crash
		for _, c := range crashes {
			if c.point == p && c.id == id {
				found = append(found, c)
			}
		}
		return found
	}
	known := make(map[string]bool, len(produced))
	for _, id := range produced {
		if known[id] {
			continue
		}
		known[id] = true
		switch n := ledger[id]; {
		case n == 0:
			v.lost = append(v.lost, loss{id, at(worker.BeforeEffect, id)})
		case n > 1:
			v.doubled = append(v.doubled, doubling{id, n, at(worker.AfterEffect, id)})
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
		return len(v.lost)+len(v.doubled)+len(v.strange) == 0
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
