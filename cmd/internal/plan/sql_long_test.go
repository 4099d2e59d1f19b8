//go:build long

package plan

import (
	"fmt"
	"testing"
)

// TestTables fills tables with marks, without results and with them. MariaDB gets marks alone, and
// a million of them: in a smaller table the filling of its pages, and the space that it reserves
// ahead, would differ by more than the tolerance.
func TestTables(t *testing.T) {
	for _, e := range []table{postgres, sqlite} {
		for _, c := range []struct {
			n, result   int
			fingerprint bool
		}{{100_000, 0, false}, {100_000, 0, true}, {50_000, 100, false}, {20_000, 1000, false},
			{5_000, 10_000, false}} {
			t.Run(fmt.Sprintf("%s %d %t", e.engine, c.result, c.fingerprint), func(t *testing.T) {
				compareTable(t, e, c.n, c.result, c.fingerprint, tolerance)
			})
		}
	}
	t.Run(mariadb.engine, func(t *testing.T) {
		compareTable(t, mariadb, 1_000_000, 0, false, tolerance)
	})
}
