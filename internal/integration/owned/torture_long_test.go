//go:build long

package owned_test

import "time"

// size is what is published.
var size = plan{
	keys: 1_000_000, poison: 20, during: 20 * time.Minute, drain: 2 * time.Minute, row: true,
	faults: map[string]int{"kill": 220, "stop": 80, "falter": 20, "hand over": 160, "race": 60,
		"restore": 60, "raise": 6},
	quota: counts{
		kills: 200, handovers: 200, stops: 80, restored: 20, saved: 100, loaded: 100, raised: 6,
		proven: 100_000, maybe: 10_000, unknown: 10_000, marks: 100_000, running: 100,
	},
}

var degradedSize = plan{
	keys: 60_000, during: time.Minute, drain: time.Minute,
	faults: map[string]int{"kill": 20, "stop": 10, "hand over": 20, "race": 10},
	quota: counts{kills: 20, handovers: 40, stops: 10, maybe: 1000, unknown: 1000, marks: 5000,
		running: 10, saved: 10, loaded: 10},
}
