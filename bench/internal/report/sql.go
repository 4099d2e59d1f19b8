package report

import (
	"fmt"
	"strings"

	"github.com/onceward/onceward/bench/internal/chart"
	"github.com/onceward/onceward/bench/internal/harness"
)

// areaSQL is the area whose rows are rates of transactions.
const areaSQL = "sql"

// sqlFamilies are the workloads that have lines, with the name of their files. Those of the
// first are in docs/benchmarks.md.
var sqlFamilies = []struct{ name, workload string }{
	{"postgres-8", centralFamily}, {"postgres-1", "PostgreSQL, 1 connection"}, {"postgres-32", "PostgreSQL, 32 connections"},
	{"mariadb", "MariaDB, 8 connections"}, {"sqlite", "SQLite, 1 connection"},
}

const centralFamily = "PostgreSQL, 8 connections"

func ofSQL(r harness.Results) []figure {
	var all []figure
	for _, f := range sqlFamilies {
		all = append(all, figure{
			f.name, "New messages. Dashed: the effect alone, which is the ceiling, and the record alone; each in its transaction.",
			chart.Lines{
				Title: f.workload + ": messages by size of the batch", XLabel: "messages per batch", YLabel: keysPerSecond, LogX: true, LogY: true,
				Series: sides(r, f.workload, keysPerSecond),
			},
		})
	}
	return append(all, figure{"bytes", "Table and indexes of marks without results, made in batches of 256.", keyBytes(r)})
}

func keyBytes(r harness.Results) chart.Bars {
	b := chart.Bars{Title: "Bytes per key", XLabel: "bytes"}
	for _, row := range r.Rows {
		if row.Workload == "bytes per key" {
			b.Bars = append(b.Bars, chart.Bar{Name: row.Side, Value: row.Value})
		}
	}
	return b
}

// records is the table of the area: the goals of PostgreSQL with 8 connections, and those
// that are of no such family.
func records(b *strings.Builder, r harness.Results) {
	b.WriteString("| work | who | beside | reached | goal | |\n|---|---|---|---|---|---|\n")
	elsewhere, reachedThere := 0, 0
	for _, row := range r.Rows {
		switch {
		case row.Goal == "":
			continue
		case strings.HasPrefix(row.Workload, "PostgreSQL, ") && row.Workload != centralFamily:
			elsewhere++
			if row.OK {
				reachedThere++
			}
			continue
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s |\n", cell(row.Name), cell(row.Side), cell(row.Against), reached(row), cell(row.Goal), verdict(row))
	}
	if elsewhere > 0 {
		fmt.Fprintf(b, "\nWith 1 and 32 connections %d of %d goals are reached; the page has them.\n", reachedThere, elsewhere)
	}
}
