//go:build !long

package owned_test

import "time"

// size is that of every commit; under the tag long it is more.
var size = plan{
	keys: 20_000, poison: 2, during: 6 * time.Second, drain: 5 * time.Minute,
	faults: map[string]int{"kill": 8, "stop": 3, "falter": 1, "hand over": 4,
		"race": 2, "restore": 3, "raise": 1},
	quota: counts{
		kills: 8, handovers: 12, stops: 3, restored: 1, saved: 1, loaded: 1, raised: 1,
		proven: 4000, maybe: 1000, unknown: 100, marks: 4000, running: 3,
	},
}

// degradedSize is that of a run with filters that are too small, and snapshots that are spoilt.
var degradedSize = plan{
	keys: 6000, during: 6 * time.Second, drain: 5 * time.Minute,
	faults: map[string]int{"kill": 3, "stop": 1, "hand over": 5},
	quota:  counts{kills: 3, handovers: 5, maybe: 100, unknown: 100, marks: 1000, running: 1},
}
