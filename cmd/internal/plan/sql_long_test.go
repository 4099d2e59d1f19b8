//go:build long

package plan

import (
	"fmt"
	"testing"
)

// TestTables fills tables with marks, without and with results. MariaDB is left out: how full it
// leaves its pages, and how much it reserves ahead, differs by more than is tolerated.
func TestTables(t *testing.T) {
	for _, e := range tablesToFill {
		for _, c := range []struct {
			n, result   int
			fingerprint bool
		}{{100_000, 0, false}, {100_000, 0, true}, {50_000, 100, false}, {20_000, 1000, false},
			{5_000, 10_000, false}} {
			t.Run(fmt.Sprintf("%s %d %t", e.engine, c.result, c.fingerprint), func(t *testing.T) {
				compareTable(t, e, c.n, c.result, c.fingerprint)
			})
		}
	}
}
