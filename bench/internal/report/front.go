package report

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/onceward/onceward/bench/internal/harness"
)

// frontTables are the tables of the page about the front, by their names in its markers.
var frontTables = []struct {
	name  string
	table func(harness.Results) string
}{
	{"answers", answersTable}, {"rotation", rotationTable},
	{"owned", ownedTable}, {"owned CPU", ownedCPU}, {"owned load", loadTable}, {"layered", layeredTable}, {"goals that are missed", missedGoals},
}

func beginFront(name string) string {
	return "<!-- " + name + " of bench/results/bloom.json: make bench-table -->"
}

// noRows stands where a run has not measured what a table is about.
const noRows = "The newest run in bench/results/bloom.json has no rows of this.\n"

// ReplaceFront returns the page about the front with the tables of results between its markers.
func ReplaceFront(page []byte, r harness.Results) ([]byte, error) {
	for _, t := range frontTables {
		begin := beginFront(t.name)
		head, rest, ok := bytes.Cut(page, []byte(begin+"\n"))
		_, tail, closed := bytes.Cut(rest, []byte(end))
		if !ok || !closed {
			return nil, errors.New("report: the page has no place for the table: " + begin + " ... " + end)
		}
		page = []byte(string(head) + begin + "\n\n" + t.table(r) + "\n" + end + string(tail))
	}
	return page, nil
}

// answersTable is the time of an answer, by the ids of the window.
func answersTable(r harness.Results) string {
	var sizes []float64
	for _, row := range r.Rows {
		if row.Workload == "new ids, 1 goroutine" && row.Unit == harness.CPUNanos.Unit() && !slices.Contains(sizes, row.X) {
			sizes = append(sizes, row.X)
		}
	}
	if len(sizes) == 0 {
		return noRows
	}
	var b strings.Builder
	b.WriteString("| |")
	for _, n := range sizes {
		fmt.Fprintf(&b, " %s ids |", ids(n))
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(sizes)) + "\n")
	for _, line := range []struct{ text, what, side string }{
		{"`Check`, new id", "new ids", "onceward Check"},
		{"`Where` (no clock), new id", "new ids", "onceward Where, which reads no clock"},
		{"`WhereAll`, 256 new ids, each", "new ids", "onceward WhereAll, 256 ids"},
		{"`Where`, kind `Classic`, new id", "new ids", "onceward Where, Kind Classic"},
		{"`Check`, known id", "known ids", "onceward Check"},
		{"`Add`", "ids added", "onceward Add"},
		{"bits-and-blooms + Mutex, new id: one filter", "new ids", "bits-and-blooms + Mutex"},
		{"exact map + Mutex, new id", "new ids", "exact map + Mutex"},
	} {
		fmt.Fprintf(&b, "| %s |", line.text)
		for _, n := range sizes {
			row, _ := r.Find(line.what+", 1 goroutine", line.side, harness.CPUNanos.Unit(), n)
			fmt.Fprintf(&b, " %s |", cell(micros(math.Round(row.Value))))
		}
		b.WriteString("\n")
	}
	return b.String() + "\n" + ofRun(r)
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
	var b strings.Builder
	for _, row := range r.Rows {
		if row.Workload == "rotation" || row.Workload == "snapshot" {
			fmt.Fprintf(&b, "| %s, %s ids | %s %s | %s | %s |\n", cell(row.Name), ids(row.X), number(row.Value), row.Unit, cell(row.Goal), goalVerdict(row))
		}
	}
	if b.Len() == 0 {
		return noRows
	}
	return "| | | goal | |\n|---|---|---|---|\n" + b.String() + "\n" + ofRun(r)
}

// ofRun names the run of a table.
func ofRun(r harness.Results) string { return fmt.Sprintf("Commit %s, %s.\n", r.Commit, r.Date) }

// Sides of the owned tables.
const (
	ownedSide  = "onceward owned"
	mergedSide = "onceward owned, CompleteAndClaim"
	sharedSide = "onceward shared, seen-only"
	sharedOne  = "onceward shared, seen-only, CompleteAndClaim"
	smallSide  = "onceward shared, compact"
	bareSide   = "raw RESP, two commands a key"
)

// ownedPoints are the streams, in the order in which people read them.
func ownedPoints(r harness.Results) (all []harness.Row) {
	for _, family := range []string{"owned", "owned, old duplicates"} {
		for _, row := range r.Rows {
			if row.Workload == family && row.Side == ownedSide && row.Unit == harness.Rate.Unit() && row.Against == bareSide {
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
	points := ownedPoints(r)
	if len(points) == 0 {
		return noRows
	}
	var b strings.Builder
	b.WriteString("| duplicates | owned, keys/s | beside the raw commands | shared, seen-only | shared, compact | owned, one trip a batch | beside the raw commands | shared, one trip |\n|---|---|---|---|---|---|---|---|\n")
	for _, p := range points {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", streamName(p), number(p.Value), beside(r, p, ownedSide, bareSide),
			beside(r, p, ownedSide, sharedSide), beside(r, p, ownedSide, smallSide), number(rateOf(r, p, mergedSide).Value),
			beside(r, p, mergedSide, bareSide), beside(r, p, mergedSide, sharedOne))
	}
	return b.String() + "\n" + ofRun(r)
}

// rateOf is a row of throughput of a side, in the family and at the share of another one.
func rateOf(r harness.Results, p harness.Row, side string) harness.Row {
	row, _ := r.Find(p.Workload, side, harness.Rate.Unit(), p.X)
	return row
}

// beside is the ratio of two sides in the family and at the share of a row.
func beside(r harness.Results, p harness.Row, side, against string) string {
	i := slices.IndexFunc(r.Rows, func(row harness.Row) bool {
		return row.Workload == p.Workload && row.X == p.X && row.Side == side && row.Against == against && row.Unit == harness.Rate.Unit()
	})
	if i < 0 {
		return "-"
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
	points := ownedPoints(r)
	if len(points) == 0 {
		return noRows
	}
	var b strings.Builder
	b.WriteString("| duplicates | owned | owned, one trip | raw commands | shared, seen-only | shared, compact |\n|---|---|---|---|---|---|\n")
	for _, p := range points {
		fmt.Fprintf(&b, "| %s ", streamName(p))
		for _, side := range []string{ownedSide, mergedSide, bareSide, sharedSide, smallSide} {
			row := rateOf(r, p, side)
			fmt.Fprintf(&b, "| %s + %s ", number(row.ServerUS), number(row.ClientUS))
		}
		b.WriteString("|\n")
	}
	return b.String() + "\n" + ofRun(r)
}

// loadTable is what an owner has to read.
func loadTable(r harness.Results) string {
	return rowsOf(r, "| of a partition | value | Redis CPU, us a mark | CPU of the owner, us a mark | goal | |\n|---|---|---|---|---|---|\n", "owned load", func(row harness.Row) string {
		return fmt.Sprintf("| %s | %s %s | %s | %s | %s | %s |\n", cell(strings.TrimPrefix(row.Name, "owned, a partition of ")), number(row.Value), row.Unit,
			cell(micros(row.ServerUS)), cell(micros(row.ClientUS)), cell(row.Goal), goalVerdict(row))
	})
}

func rowsOf(r harness.Results, head, family string, line func(harness.Row) string) string {
	var b strings.Builder
	for _, row := range r.Rows {
		if row.Workload == family {
			b.WriteString(line(row))
		}
	}
	if b.Len() == 0 {
		return noRows
	}
	return head + b.String() + "\n" + ofRun(r)
}

func goalVerdict(row harness.Row) string {
	if row.Goal == "" {
		return ""
	}
	return verdict(row)
}

// layeredTable is what a filter saves in front of SQL.
func layeredTable(r harness.Results) string {
	return rowsOf(r, "| duplicates | keys/s with the filter | beside without | goal | | lookups for 100 keys, with and without |\n|---|---|---|---|---|---|\n", "layered", func(row harness.Row) string {
		if row.Side != "onceward layered, Filter" {
			return ""
		}
		lookups := "-"
		for _, l := range r.Rows {
			if l.Workload == "layered lookups" && l.X == row.X && l.Unit == "lookups" {
				lookups = number(l.Value) + ", " + number(l.AgainstValue)
			}
		}
		return fmt.Sprintf("| %g %% | %s | %s | %s | %s | %s |\n", row.X, number(row.Value), ratio(row.Ratio), row.Goal, verdict(row), lookups)
	})
}

// missedGoals names what the run has not reached.
func missedGoals(r harness.Results) string {
	var b strings.Builder
	goals, missed := 0, 0
	for _, row := range r.Rows {
		if row.Goal == "" {
			continue
		}
		goals++
		if !row.OK {
			missed++
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", cell(row.Name), cell(row.Side), cell(row.Against), reached(row), cell(row.Goal))
		}
	}
	head := fmt.Sprintf("Commit %s, %s. %d of %d goals are missed", r.Commit, r.Machine, missed, goals)
	if missed == 0 {
		return head + ".\n"
	}
	return head + ":\n\n| work | who | beside | reached | goal |\n|---|---|---|---|---|\n" + b.String()
}
