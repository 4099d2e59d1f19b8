package report

import (
	"fmt"
	"math"
	"slices"

	"github.com/onceward/onceward/bench/internal/harness"
)

// frontTables are the tables of docs/front.md, by their names in its markers.
var frontTables = []string{
	"answers", "rotation", "owned", "owned CPU", "owned load", "layered", "goals that are missed",
}

// ReplaceFront returns docs/front.md with the tables of results between its markers.
func ReplaceFront(page []byte, r harness.Results) (_ []byte, err error) {
	for _, name := range frontTables {
		if page, err = replace(page, name, "bloom", filled(name, run{r})); err != nil {
			return nil, err
		}
	}
	return page, nil
}

// NoRows stands where a run has not measured what a table is about.
func (run) NoRows() string {
	return "The newest run in bench/results/bloom.json has no rows of this.\n"
}

// Run names the run of a table.
func (r run) Run() string { return fmt.Sprintf("\nCommit %s, %s.\n", r.Commit, r.Date) }

// ids are so many as people write them.
func ids(n float64) string {
	if n >= 1e6 {
		return fmt.Sprintf("%g M", n/1e6)
	}
	return fmt.Sprintf("%g k", n/1e3)
}

// Sizes are the ids of the windows for which the time of an answer was measured.
func (r run) Sizes() (sizes []float64) {
	for _, row := range r.Of("new ids, 1 goroutine") {
		if row.Unit == cpuNanos && !slices.Contains(sizes, row.X) {
			sizes = append(sizes, row.X)
		}
	}
	return sizes
}

// Answer is a line of times, by the ids of the window.
func (r run) Answer(text, ids, side string) string {
	cells := []any{text}
	for _, n := range r.Sizes() {
		found, _ := r.Find(ids+", 1 goroutine", side, cpuNanos, n)
		cells = append(cells, micros(math.Round(found.Value)))
	}
	return row(cells...)
}

// Streams are the points of owned partitions, in the order in which people read them.
func (r run) Streams() (all []harness.Row) {
	for _, row := range slices.Concat(r.Of("owned"), r.Of("owned, old duplicates")) {
		if row.Side == ownedSide && row.Unit == keysPerSecond && row.Against == bareSide {
			all = append(all, row)
		}
	}
	return all
}

func stream(row harness.Row) string {
	switch {
	case row.X == 0:
		return "no duplicates"
	case row.Workload == "owned":
		return fmt.Sprintf("%g %%, recent", row.X)
	default:
		return fmt.Sprintf("%g %%, old", row.X)
	}
}

// Rate is a row of throughput of a side, in the family and at the share of another one.
func (r run) Rate(p harness.Row, side string) harness.Row {
	row, _ := r.Find(p.Workload, side, keysPerSecond, p.X)
	return row
}

// Ratio is that of two sides in the family and at the share of a row.
func (r run) Ratio(p harness.Row, side, against string) string {
	for _, row := range r.Of(p.Workload) {
		if row.X != p.X || row.Side != side || row.Against != against || row.Unit != keysPerSecond {
			continue
		}
		if row.Goal != "" && !row.OK {
			return ratio(row.Ratio) + " (missed: " + row.Goal + ")"
		}
		return ratio(row.Ratio)
	}
	return ""
}

// Lookups are those in SQL, with and without a filter, at the share of a row.
func (r run) Lookups(p harness.Row) string {
	row, ok := r.Find("layered lookups", p.Side, "lookups", p.X)
	if !ok {
		return ""
	}
	return number(row.Value) + ", " + number(row.AgainstValue)
}
