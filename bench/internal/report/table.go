package report

import (
	"cmp"
	_ "embed"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"github.com/dustin/go-humanize/english"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
)

//go:embed tables.tmpl
var tablesText string

var tables = template.Must(template.New("").Funcs(template.FuncMap{
	"row": row, "number": number, "ratio": ratio, "micros": micros, "span": span,
	"ids":     func(n float64) string { return harness.Short(int(n)) },
	"reached": reached, "spread": spread, "status": status, "value": valueOf, "stream": stream,
	"faults": listed[int], "versions": listed[string], "after": strings.TrimPrefix,
	"clients": clients, "rounds": rounds, "joined": strings.Join,
	"cpu": func(r harness.Row) string { return number(r.ServerUS) + " + " + number(r.ClientUS) },
}).Parse(tablesText))

func filled(name string, data any) string {
	var text strings.Builder
	must.Do(tables.ExecuteTemplate(&text, name, data))
	return text.String()
}

// row returns a line of a table. An empty cell becomes a dash.
func row(cells ...any) string {
	var line strings.Builder
	for _, c := range cells {
		line.WriteString("| " + strings.TrimSpace(cell(fmt.Sprint(c))) + " ")
	}
	return line.String() + "|\n"
}

func cell(text string) string { return cmp.Or(strings.ReplaceAll(text, "|", "\\|"), "-") }

func status(r harness.Row) string {
	if r.Goal == "" {
		return " " // an empty cell, without a dash
	}
	return map[bool]string{true: "yes", false: "missed"}[r.OK]
}

type run struct{ harness.Results }

func (r run) chosen(holds func(harness.Row) bool) []harness.Row {
	return slices.DeleteFunc(slices.Clone(r.Rows),
		func(row harness.Row) bool { return !holds(row) })
}

func (r run) Goals() []harness.Row {
	return r.chosen(func(row harness.Row) bool { return row.Goal != "" })
}

func (r run) Missed() []harness.Row {
	return r.chosen(func(row harness.Row) bool { return row.Goal != "" && !row.OK })
}

// Of returns the rows of families, one family after another.
func (r run) Of(families ...string) (rows []harness.Row) {
	for _, f := range families {
		rows = append(rows, r.chosen(func(row harness.Row) bool { return row.Workload == f })...)
	}
	return rows
}

// table returns the table for docs/evidence/benchmarks.md: the rows with a goal. The page of
// results has the others.
func table(r harness.Results) string {
	name := r.Area
	if tables.Lookup(name) == nil {
		name = "goals"
	}
	return filled("head", run{r}) + filled(name, run{r})
}

// Tabled reports whether a row is in the table. The filter has many rows about allocations: the
// table leaves them out as long as their goal is reached.
func (r run) Tabled(row harness.Row) bool {
	return r.Area != "bloom" || row.Unit != harness.Allocs.Unit || !row.OK
}

// Outside reports whether a row is of PostgreSQL with a number of connections other than 8.
func (r run) Outside(row harness.Row) bool {
	connections, ok := strings.CutPrefix(row.Workload, "PostgreSQL, ")
	return ok && connections != "8 connections"
}

// Others returns a run with only the rows that are Outside.
func (r run) Others() run { return run{harness.Results{Rows: r.chosen(r.Outside)}} }

// clients names the versions that matter most.
func clients(r harness.Results) string {
	names, all := map[string]string{"redis": "Redis", "fiber-v3": "fiber"}, []string(nil)
	for _, name := range []string{"sarama", "go-redis", "redis", "pgx", "go-sql-driver",
		"PostgreSQL", "MariaDB", "SQLite", "bits-and-blooms", "fiber-v3"} {
		if v := r.Versions[name]; v != "" {
			all = append(all, cmp.Or(names[name], name)+" "+v)
		}
	}
	if v := r.Versions["go"]; v != "" && len(all) == 0 {
		return "Go " + v
	}
	return strings.Join(all, ", ")
}

// listed lists a map in order of its keys, without zeros.
func listed[V any](of map[string]V) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if any(of[name]) != any(0) {
			all = append(all, fmt.Sprintf("%s %v", name, of[name]))
		}
	}
	return strings.Join(all, ", ")
}

func rounds(r harness.Results) string {
	most := 0
	for _, row := range r.Rows {
		most = max(most, row.Rounds)
	}
	return english.Plural(most, "interleaved round", "")
}

// reached returns the figure that the goal is about: the ratio, or the value.
func reached(r harness.Row) string {
	if r.Goal.OfRatio() {
		return spread(r)
	}
	return valueOf(r)
}

func valueOf(r harness.Row) string { return number(r.Value) + " " + r.Unit }

// spread formats the median ratio, with the smallest and the largest ratio.
func spread(r harness.Row) string {
	return fmt.Sprintf("%s (%s to %s)", ratio(r.Ratio), ratio(r.Spread[0]), ratio(r.Spread[1]))
}

func span(micros float64) string {
	if micros >= 1e3 {
		return number(micros/1e3) + " ms"
	}
	return number(micros) + " us"
}

// number formats a figure as people write it: 412 k, 1.25 M, 9.0.
func number(v float64) string {
	for _, form := range []struct {
		from, unit float64
		text       string
	}{{1e6, 1e6, "%.2f M"}, {1e4, 1e3, "%.0f k"}, {1e3, 1e3, "%.1f k"}, {100, 1, "%.0f"},
		{10, 1, "%.1f"}} {
		if v >= form.from {
			return fmt.Sprintf(form.text, v/form.unit)
		}
	}
	return fmt.Sprintf("%.2f", v)
}

// ratio formats a ratio, such as 12.3x or 0.95x.
func ratio(v float64) string {
	if v >= 10 {
		return fmt.Sprintf("%.1fx", v)
	}
	return fmt.Sprintf("%.2fx", v)
}

func micros(v float64) string {
	if v == 0 {
		return ""
	}
	return number(v)
}

// Sizes returns the window sizes, in ids, for which the time of an answer was measured.
func (r run) Sizes() (sizes []float64) {
	for _, row := range r.Of("new ids, 1 goroutine") {
		if row.Unit == harness.CPUNanos.Unit && !slices.Contains(sizes, row.X) {
			sizes = append(sizes, row.X)
		}
	}
	return sizes
}

// Answer returns a table line of times, one for each size of the window.
func (r run) Answer(text, ids, side string) string {
	cells := []any{text}
	for _, n := range r.Sizes() {
		like := harness.Row{Workload: ids + ", 1 goroutine", Unit: harness.CPUNanos.Unit, X: n}
		cells = append(cells, micros(math.Round(r.Find(like, side, "").Value)))
	}
	return row(cells...)
}

// stream describes for people which stream of owned partitions a row is about. It is empty unless
// the row compares the rates of the two main sides.
func stream(row harness.Row) string {
	switch {
	case row.Side != "onceward owned" || row.Unit != harness.Rate.Unit ||
		row.Against != "raw RESP, two commands a key":
		return ""
	case row.X == 0:
		return "no duplicates"
	case row.Workload == "owned":
		return fmt.Sprintf("%g %%, recent", row.X)
	default:
		return fmt.Sprintf("%g %%, old", row.X)
	}
}

// Find returns the first row of side with the same workload, parameter and unit as the row like.
// Unless against is empty, the row must be compared with the side against.
func (r run) Find(like harness.Row, side, against string) (row harness.Row) {
	for _, row := range r.Rows {
		if row.Workload == like.Workload && row.X == like.X && row.Unit == like.Unit &&
			row.Side == side && (against == "" || row.Against == against) {
			return row
		}
	}
	return row
}

// Ratio returns the ratio of the row that [run.Find] finds.
func (r run) Ratio(like harness.Row, side, against string) string {
	switch row := r.Find(like, side, against); {
	case row.Name == "":
		return ""
	case row.OK || row.Goal == "":
		return ratio(row.Ratio)
	default:
		return ratio(row.Ratio) + " (missed: " + string(row.Goal) + ")"
	}
}

// Peer returns a table line of a side's keys per second, for each number of callers.
func (r run) Peer(text, side string) string {
	cells := []any{text}
	for _, callers := range []float64{1, 16, 128} {
		like := harness.Row{Workload: "peers", X: callers, Unit: harness.Rate.Unit}
		found := r.Find(like, side, "")
		must.True(found.Name != "", "report: %s.json has no peer %q", r.Area, side)
		cells = append(cells, number(found.Value))
	}
	return row(cells...)
}

type folder string

func (f folder) file(area string) string { return filepath.Join(string(f), area+".json") }

func (f folder) run(area string) run { return run{must.Get(harness.Read(f.file(area)))} }

// Headline returns a line of README's table: the row of an area's results that compares side with
// rival in a unit, and the names for the table.
func (f folder) Headline(work, against, area, name, side, rival, unit string) string {
	r := f.run(area)
	i := slices.IndexFunc(r.Rows, func(row harness.Row) bool {
		return row.Name == name && row.Side == side && row.Against == rival && row.Unit == unit
	})
	must.True(i >= 0, "report: %s.json has no row of %q compared with %q", area, name, rival)
	return row(work, valueOf(r.Rows[i]), against, spread(r.Rows[i]), r.Commit)
}

// Lookups compares the lookups in SQL with and without a filter, at a row's share of duplicates.
func (r run) Lookups(p harness.Row) string {
	row := r.Find(harness.Row{Workload: "layered lookups", Unit: "lookups", X: p.X}, p.Side, "")
	if row.Name == "" {
		return ""
	}
	return number(row.Value) + ", " + number(row.AgainstValue)
}
