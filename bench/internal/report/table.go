package report

import (
	"cmp"
	_ "embed"
	"fmt"
	"maps"
	"math"
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
	"faults": listed[int], "after": strings.TrimPrefix,
	"cpu": func(r harness.Row) string { return number(r.ServerUS) + " + " + number(r.ClientUS) },
}).Parse(tablesText))

// filled is a table of results.
func filled(name string, data any) string {
	var text strings.Builder
	must.Do(tables.ExecuteTemplate(&text, name, data))
	return text.String()
}

// row is a line of a table. An empty cell is a dash.
func row(cells ...any) string {
	var line strings.Builder
	for _, c := range cells {
		line.WriteString("| " + strings.TrimSpace(cell(fmt.Sprint(c))) + " ")
	}
	return line.String() + "|\n"
}

func cell(text string) string { return cmp.Or(strings.ReplaceAll(text, "|", "\\|"), "-") }

func status(r harness.Row) string {
	switch {
	case r.Goal == "":
		return " " // nothing, not even a dash
	case r.OK:
		return "yes"
	default:
		return "missed"
	}
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

// Of are the rows of families, one after the other.
func (r run) Of(families ...string) (rows []harness.Row) {
	for _, f := range families {
		rows = append(rows, r.chosen(func(row harness.Row) bool { return row.Workload == f })...)
	}
	return rows
}

// table is that of docs/evidence/benchmarks.md: the rows that have a goal; the page has the rest.
func table(r harness.Results) string {
	text := fmt.Sprintf("Commit %s, %s; %s. Ratios are medians of %s (smallest to largest).\n",
		r.Commit, r.Machine, clients(r), rounds(r))
	if len(r.LeftOut) > 0 {
		text += fmt.Sprintf("Left out: %s.\n", strings.Join(r.LeftOut, "; "))
	}
	name := r.Area
	if tables.Lookup(name) == nil {
		name = "goals"
	}
	return text + "\n" + filled(name, run{r})
}

// Tabled reports whether a row stands in the table: of the many rows of the filter that allocate
// nothing only one that does is news.
func (r run) Tabled(row harness.Row) bool {
	return r.Area != "bloom" || row.Unit != harness.Allocs.Unit || !row.OK
}

// Outside reports whether a row is of PostgreSQL with another number of connections than 8.
func (r run) Outside(row harness.Row) bool {
	connections, ok := strings.CutPrefix(row.Workload, "PostgreSQL, ")
	return ok && connections != "8 connections"
}

// Others has those rows alone.
func (r run) Others() run { return run{harness.Results{Rows: r.chosen(r.Outside)}} }

// clients are the versions that matter most.
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

// listed is what a map has, in order. Of what has not happened there is nothing to say.
func listed[V any](of map[string]V) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if any(of[name]) != any(0) {
			all = append(all, fmt.Sprintf("%s %v", name, of[name]))
		}
	}
	return strings.Join(all, ", ")
}

// rounds says how often what was compared has been timed.
func rounds(r harness.Results) string {
	most := 0
	for _, row := range r.Rows {
		most = max(most, row.Rounds)
	}
	return english.Plural(most, "interleaved round", "")
}

// reached is what the goal speaks of: the ratio, or the value.
func reached(r harness.Row) string {
	if r.Goal.OfRatio() {
		return spread(r)
	}
	return valueOf(r)
}

func valueOf(r harness.Row) string { return number(r.Value) + " " + r.Unit }

// spread is the median of the ratios, and how far they lie apart.
func spread(r harness.Row) string {
	return fmt.Sprintf("%s (%s to %s)", ratio(r.Ratio), ratio(r.Spread[0]), ratio(r.Spread[1]))
}

// span is a time of so many microseconds.
func span(micros float64) string {
	if micros >= 1e3 {
		return number(micros/1e3) + " ms"
	}
	return number(micros) + " us"
}

// number is a figure as people read it: 412 k, 1.25 M, 9.0.
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

// ratio is 12.3x or 0.95x.
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

// Sizes are the ids of the windows for which the time of an answer was measured.
func (r run) Sizes() (sizes []float64) {
	for _, row := range r.Of("new ids, 1 goroutine") {
		if row.Unit == harness.CPUNanos.Unit && !slices.Contains(sizes, row.X) {
			sizes = append(sizes, row.X)
		}
	}
	return sizes
}

// Answer is a line of times, by the ids of the window.
func (r run) Answer(text, ids, side string) string {
	cells := []any{text}
	for _, n := range r.Sizes() {
		like := harness.Row{Workload: ids + ", 1 goroutine", Unit: harness.CPUNanos.Unit, X: n}
		cells = append(cells, micros(math.Round(r.Find(like, side, "").Value)))
	}
	return row(cells...)
}

// stream is how people call the point of owned partitions that a row is about; nothing if the row
// does not compare the rates that stand first.
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

// Find returns the first row of a side with the family, parameter and unit of another one, compared
// with a side, or with any.
func (r run) Find(like harness.Row, side, against string) (row harness.Row) {
	for _, row := range r.Rows {
		if row.Workload == like.Workload && row.X == like.X && row.Unit == like.Unit &&
			row.Side == side && (against == "" || row.Against == against) {
			return row
		}
	}
	return row
}

// Ratio is that of the row of [run.Find].
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

// Lookups are those in SQL, with and without a filter, at the share of a row.
func (r run) Lookups(p harness.Row) string {
	row := r.Find(harness.Row{Workload: "layered lookups", Unit: "lookups", X: p.X}, p.Side, "")
	if row.Name == "" {
		return ""
	}
	return number(row.Value) + ", " + number(row.AgainstValue)
}
