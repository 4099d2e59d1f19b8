package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/onceward/onceward/bench/internal/harness"
)

// frontTables are the tables of docs/front.md, by their names in its markers.
var frontTables = []struct {
	name  string
	table func(harness.Results) string
}{
	{"answers", answersTable}, {"rotation", rotationTable},
	{"owned", ownedTable}, {"owned CPU", ownedCPU}, {"owned load", loadTable},
	{"layered", layeredTable}, {"goals that are missed", missedGoals},
}

// noRows stands where a run has not measured what a table is about.
const noRows = "The newest run in bench/results/bloom.json has no rows of this.\n"

// ReplaceFront returns docs/front.md with the tables of results between its markers.
func ReplaceFront(page []byte, r harness.Results) ([]byte, error) {
	for _, t := range frontTables {
		text := t.table(r)
		var err error
		if page, err = replace(page, t.name, "bloom", text); err != nil {
			return nil, err
		}
	}
	return page, nil
}

// ofRun is a table with the name of its run, or says that it has no rows.
func (g *grid) ofRun(r harness.Results) string {
	if strings.Count(g.String(), "\n") == 2 { // the head alone
		return noRows
	}
	return g.String() + fmt.Sprintf("\nCommit %s, %s.\n", r.Commit, r.Date)
}

// answersTable is the time of an answer, by the ids of the window.
func answersTable(r harness.Results) string {
	var sizes []float64
	head := []string{""}
	for _, row := range r.Rows {
		if row.Workload == "new ids, 1 goroutine" && row.Unit == cpuNanos &&
			!slices.Contains(sizes, row.X) {
			sizes, head = append(sizes, row.X), append(head, ids(row.X)+" ids")
		}
	}
	if len(sizes) == 0 {
		return noRows
	}
	g := newGrid(head...)
	for _, line := range [][3]string{
		{"`Check`, new id", "new ids", checkSide},
		{"`Where` (no clock), new id", "new ids", whereSide},
		{"`WhereAll`, 256 new ids, each", "new ids", whereAllSide},
		{"`Where`, kind `Classic`, new id", "new ids", classicSide},
		{"`Check`, known id", "known ids", checkSide},
		{"`Add`", "ids added", "onceward Add"},
		{"bits-and-blooms + Mutex, new id: one filter", "new ids", peerBloom},
		{"exact map + Mutex, new id", "new ids", peerMap},
	} {
		cells := []string{line[0]}
		for _, n := range sizes {
			row, _ := r.Find(line[1]+", 1 goroutine", line[2], cpuNanos, n)
			cells = append(cells, micros(math.Round(row.Value)))
		}
		g.row(cells...)
	}
	return g.ofRun(r)
}

// ids are so many as people write them.
func ids(n float64) string {
	if n >= 1e6 {
		return fmt.Sprintf("%g M", n/1e6)
	}
	return fmt.Sprintf("%g k", n/1e3)
}

// rotationTable is what happens once a slice, and at a start.
func rotationTable(r harness.Results) string {
	g := newGrid("", "", "goal", "")
	for _, row := range r.Rows {
		if row.Workload == "rotation" || row.Workload == "snapshot" {
			g.row(row.Name+", "+ids(row.X)+" ids", number(row.Value)+" "+row.Unit, row.Goal,
				goalStatus(row))
		}
	}
	return g.ofRun(r)
}

// ownedPoints are the streams, in the order in which people read them.
func ownedPoints(r harness.Results) (all []harness.Row) {
	for _, family := range []string{"owned", "owned, old duplicates"} {
		for _, row := range r.Rows {
			if row.Workload == family && row.Side == ownedSide && row.Unit == keysPerSecond &&
				row.Against == bareSide {
				all = append(all, row)
			}
		}
	}
	return all
}

func streamName(row harness.Row) string {
	switch {
	case row.X == 0:
		return "no duplicates"
	case row.Workload == "owned":
		return fmt.Sprintf("%g %%, recent", row.X)
	default:
		return fmt.Sprintf("%g %%, old", row.X)
	}
}

// ownedTable is throughput.
func ownedTable(r harness.Results) string {
	g := newGrid("duplicates", "owned, keys/s", "beside the raw commands", "shared, seen-only",
		"shared, compact", "owned, one trip a batch", "beside the raw commands", "shared, one trip")
	for _, p := range ownedPoints(r) {
		g.row(streamName(p), number(p.Value), compared(r, p, ownedSide, bareSide),
			compared(r, p, ownedSide, sharedSide), compared(r, p, ownedSide, smallSide),
			number(rateOf(r, p, mergedSide).Value), compared(r, p, mergedSide, bareSide),
			compared(r, p, mergedSide, sharedOne))
	}
	return g.ofRun(r)
}

// rateOf is a row of throughput of a side, in the family and at the share of another one.
func rateOf(r harness.Results, p harness.Row, side string) harness.Row {
	row, _ := r.Find(p.Workload, side, keysPerSecond, p.X)
	return row
}

// compared is the ratio of two sides in the family and at the share of a row.
func compared(r harness.Results, p harness.Row, side, against string) string {
	i := slices.IndexFunc(r.Rows, func(row harness.Row) bool {
		return row.Workload == p.Workload && row.X == p.X && row.Side == side &&
			row.Against == against && row.Unit == keysPerSecond
	})
	if i < 0 {
		return ""
	}
	row := r.Rows[i]
	text := ratio(row.Ratio)
	if row.Goal != "" && !row.OK {
		text += " (missed: " + row.Goal + ")"
	}
	return text
}

// ownedCPU is what a key takes of Redis and of the client.
func ownedCPU(r harness.Results) string {
	g := newGrid("duplicates", "owned", "owned, one trip", "raw commands", "shared, seen-only",
		"shared, compact")
	for _, p := range ownedPoints(r) {
		cells := []string{streamName(p)}
		for _, side := range []string{ownedSide, mergedSide, bareSide, sharedSide, smallSide} {
			row := rateOf(r, p, side)
			cells = append(cells, number(row.ServerUS)+" + "+number(row.ClientUS))
		}
		g.row(cells...)
	}
	return g.ofRun(r)
}

// loadTable is what an owner has to read.
func loadTable(r harness.Results) string {
	g := newGrid("of a partition", "value", "Redis CPU, us a mark", "CPU of the owner, us a mark",
		"goal", "")
	for _, row := range r.Rows {
		if row.Workload == "owned load" {
			g.row(strings.TrimPrefix(row.Name, "owned, a partition of "),
				number(row.Value)+" "+row.Unit, micros(row.ServerUS), micros(row.ClientUS),
				row.Goal, goalStatus(row))
		}
	}
	return g.ofRun(r)
}

// layeredTable is what a filter saves in front of SQL.
func layeredTable(r harness.Results) string {
	g := newGrid("duplicates", "keys/s with the filter", "beside without", "goal",
		"", "lookups for 100 keys, with and without")
	for _, row := range r.Rows {
		if row.Workload != "layered" || row.Side != "onceward layered, Filter" {
			continue
		}
		lookups := ""
		for _, l := range r.Rows {
			if l.Workload == "layered lookups" && l.X == row.X && l.Unit == "lookups" {
				lookups = number(l.Value) + ", " + number(l.AgainstValue)
			}
		}
		g.row(fmt.Sprintf("%g %%", row.X), number(row.Value), ratio(row.Ratio), row.Goal,
			status(row), lookups)
	}
	return g.ofRun(r)
}

// missedGoals names what the run has not reached.
func missedGoals(r harness.Results) string {
	g := newGrid("work", "who", "beside", "reached", "goal")
	goals, missed := 0, 0
	for _, row := range r.Rows {
		if row.Goal == "" {
			continue
		}
		goals++
		if !row.OK {
			missed++
			g.row(row.Name, row.Side, row.Against, reached(row), row.Goal)
		}
	}
	head := fmt.Sprintf("Commit %s, %s. %d of %d goals are missed", r.Commit,
		r.Machine, missed, goals)
	if missed == 0 {
		return head + ".\n"
	}
	return head + ":\n\n" + g.String()
}
