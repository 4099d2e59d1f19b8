package report

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/bench/internal/harness"
)

// owners is a run in which some goals are missed.
var owners = harness.Results{
	Area: "bloom", Commit: "abc", Date: "2026-11-22", Machine: "2 cores",
	Rows: []harness.Row{
		{Name: "new", Workload: "new ids, 1 goroutine", Side: "onceward Check",
			X: 1e5, Value: 155.6, Unit: "CPU ns/key"},
		{Name: "new", Workload: "new ids, 1 goroutine", Side: "onceward Check", X: 1e7, Value: 496,
			Unit: "CPU ns/key"},
		{Name: "rotation, slowest", Workload: "rotation", X: 1e7, Value: 1800, Unit: "us",
			Goal: "<= 1000 us", OK: false},
		{Name: "0 %", Workload: "owned", Side: ownedSide, Value: 250_000, Unit: "keys/s",
			Against: bareSide, AgainstValue: 1e5, Ratio: 2.5, Spread: [2]float64{2, 3},
			Goal: ">= 3x (stretch 5x)", Usage: harness.Usage{ServerUS: 1.5, ClientUS: 2.5}},
		{Name: "0 %", Workload: "owned", Side: ownedSide, Value: 250_000, Unit: "keys/s",
			Against: "onceward shared, full", AgainstValue: 2e5, Ratio: 1.25, Goal: ">= 1x", OK: true},
		{Name: "0 %", Workload: "owned", Side: ownedSide, Value: 250_000, Unit: "keys/s",
			Against: "onceward shared, compact", AgainstValue: 1e5, Ratio: 2.4, Goal: ">= 1x", OK: true},
		{Name: "0 %, one trip", Workload: "owned", Side: "onceward owned, CompleteAndClaim", Value: 310_000, Unit: "keys/s",
			Against: bareSide, AgainstValue: 1e5, Ratio: 3.1, Goal: ">= 3x (stretch 5x)",
			OK: true, Usage: harness.Usage{ServerUS: 1.2, ClientUS: 2}},
		{Name: "0 %, CPU", Workload: "owned", Side: ownedSide, Value: 1.5,
			Unit: "server CPU us/key", Against: bareSide, AgainstValue: 4, Ratio: 0.4},
		{Name: "0 %", Workload: "owned", Side: bareSide, Value: 1e5, Unit: "keys/s",
			Usage: harness.Usage{ServerUS: 4, ClientUS: 1}},
		{Name: "50 %", Workload: "owned, old duplicates", Side: ownedSide, X: 50, Value: 9e4,
			Unit: "keys/s", Against: bareSide, AgainstValue: 1e5, Ratio: 0.9},
		{Name: "owned, a partition of 10 M marks, loaded", Workload: "owned load", Side: "loaded",
			X: 1e7, Value: 12, Unit: "s", Goal: "<= 15 s", OK: true,
			Usage: harness.Usage{ServerUS: 0.5, ClientUS: 0.7}},
		{Name: "owned, a partition of 10 M marks, memory", Workload: "owned load", Side: "memory",
			X: 1e7, Value: 14, Unit: "bytes/key"},
		{Name: "layered", Workload: "layered", Side: "onceward layered, Filter", X: 10, Value: 5e3,
			Unit: "keys/s", Against: "no filter", Ratio: 1.4, Goal: ">= 1x", OK: true},
		{Name: "layered", Workload: "layered", Side: "onceward layered, no Filter", X: 10,
			Value: 4e3, Unit: "keys/s"},
		{Name: "lookups", Workload: "layered lookups", Side: "onceward layered, Filter", X: 10,
			Value: 10.1, AgainstValue: 100, Unit: "lookups"},
		{Name: "Seen", Workload: "front, Seen", Side: "onceward, Front", Value: 9e5,
			Unit: "keys/s", Against: "onceward, no Front", Ratio: 250, Goal: ">= 10x", OK: true},
	},
}

const (
	ownedSide = "onceward owned"
	bareSide  = "raw RESP, two commands a key"
)

func TestFrontTables(t *testing.T) {
	for name, lines := range map[string][]string{
		"answers": {"| | 100 k ids | 10 M ids |\n|---|---|---|\n| `Check`, new id | 156 | 496 |\n" +
			"| `Where` (no clock), new id | - | - |\n", "\n\nCommit abc, 2026-11-22.\n"},
		"rotation": {"| rotation, slowest, 10 M ids | 1.8 k us | <= 1000 us | missed |\n"},
		"owned": {"| no duplicates | 250 k | 2.50x (missed: >= 3x (stretch 5x)) | 1.25x | 2.40x " +
			"| 310 k | 3.10x | - |\n| 50 %, old | 90 k | 0.90x | - | - | 0.00 | - | - |\n"},
		"owned CPU": {"| no duplicates | 1.50 + 2.50 | 1.20 + 2.00 | 4.00 + 1.00 | 0.00 + 0.00 " +
			"| 0.00 + 0.00 |\n"},
		"owned load": {"| 10 M marks, loaded | 12.0 s | 0.50 | 0.70 | <= 15 s | yes |\n" +
			"| 10 M marks, memory | 14.0 bytes/key | - | - | - |  |\n"},
		"layered": {"| 10 % | 5.0 k | 1.40x | >= 1x | yes | 10.1, 100 |\n"},
		"front":   {"| Seen | 900 k | 250.0x | >= 10x | yes |\n"},
		"goals that are missed": {"Commit abc, 2 cores. 2 of 8 goals are missed:\n\n" +
			"| work | who | compared with | reached | goal |\n|---|---|---|---|---|\n" +
			"| rotation, slowest | - | - | 1.8 k us | <= 1000 us |\n| 0 % | " + ownedSide + " | " +
			bareSide + " | 2.50x (2.00x to 3.00x) | >= 3x (stretch 5x) |\n"},
	} {
		for _, want := range lines {
			assert.Contains(t, filled(name, run{owners}), want, name)
		}
		if name != "goals that are missed" {
			assert.Equal(t, filled("none", nil), filled(name, run{}), "%s of no rows", name)
		}
	}
}
