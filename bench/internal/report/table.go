package report

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/onceward/onceward/bench/internal/harness"
)

const end = "<!-- end of table -->"

// replace returns the page with a text between its markers: the line "what of
// bench/results/area.json", and the end.
func replace(page []byte, what, area, text string) ([]byte, error) {
	begin := "<!-- " + what + " of bench/results/" + area + ".json: make bench-table -->"
	head, rest, ok := bytes.Cut(page, []byte(begin+"\n"))
	_, tail, closed := bytes.Cut(rest, []byte(end))
	if !ok || !closed {
		return nil, errors.New("report: the page has no place for the table: " +
			begin + " ... " + end)
	}
	return []byte(string(head) + begin + "\n\n" + text + "\n" + end + string(tail)), nil
}

// Replace returns docs/benchmarks.md with the table of results between its markers.
func Replace(page []byte, r harness.Results) ([]byte, error) {
	return replace(page, "table", r.Area, table(r))
}

// grid is a table of Markdown.
type grid struct{ strings.Builder }

func newGrid(head ...string) *grid {
	g := &grid{}
	for _, name := range head {
		g.WriteString("| " + strings.TrimPrefix(name+" ", " "))
	}
	g.WriteString("|\n" + strings.Repeat("|---", len(head)) + "|\n")
	return g
}

// blank is a cell with nothing in it.
const blank = " "

// row adds one; an empty cell is a dash.
func (g *grid) row(cells ...string) {
	for _, text := range cells {
		g.WriteString("| " + strings.TrimSpace(cell(text)) + " ")
	}
	g.WriteString("|\n")
}

func cell(text string) string {
	if text == "" {
		return "-"
	}
	return strings.ReplaceAll(text, "|", "\\|")
}

// table is that of docs/benchmarks.md: the rows that have a goal, of the layout that people get who
// want speed; the page has the rest.
func table(r harness.Results) string {
	text := fmt.Sprintf("Commit %s, %s; %s. Ratios are medians of %s (smallest to largest).\n",
		r.Commit, r.Machine, clients(r), rounds(r))
	if len(r.LeftOut) > 0 {
		text += fmt.Sprintf("Left out: %s.\n", strings.Join(r.LeftOut, "; "))
	}
	of := map[string]func(harness.Results) string{"kafka": consumers, "sql": records,
		"http": answers}[r.Area]
	if of == nil {
		of = goals
	}
	return text + "\n" + of(r)
}

func goals(r harness.Results) string {
	g := newGrid("work", "beside", "reached", "goal", "")
	for _, row := range r.Rows {
		// Of the many rows of the filter that allocate nothing only one that does is news.
		frugal := r.Area == "bloom" && row.Unit == harness.Allocs.Unit() && row.OK
		if row.Goal != "" && !strings.Contains(row.Side, "onceward rich") && !frugal {
			g.row(row.Name, row.Against, reached(row), row.Goal, status(row))
		}
	}
	return g.String()
}

// consumers is the table of rates: what is done, by whom, and next to which of its limits.
func consumers(r harness.Results) string {
	g := newGrid("work", "who", "messages/s", "allocations per message", "beside", "ratio",
		"goal", "")
	for _, row := range r.Rows {
		switch {
		case row.Goal == "":
		case row.Unit != messagesPerSecond:
			g.row(row.Name, row.Side, number(row.Value)+" "+row.Unit, number(row.Allocs),
				fmt.Sprintf("%s (%s)", row.Against, number(row.AgainstValue)), spread(row),
				row.Goal, status(row))
		default:
			g.row(row.Name, row.Side, number(row.Value), number(row.Allocs),
				fmt.Sprintf("%s (%s/s)", row.Against, number(row.AgainstValue)), reached(row),
				row.Goal, status(row))
		}
	}
	return g.String()
}

// records is the table of SQL: the goals of PostgreSQL with 8 connections, and those that are of no
// such family.
func records(r harness.Results) string {
	g := newGrid("work", "who", "beside", "reached", "goal", "")
	elsewhere, reachedThere := 0, 0
	for _, row := range r.Rows {
		switch {
		case row.Goal == "":
		case strings.HasPrefix(row.Workload, "PostgreSQL, ") && row.Workload != sqlCentral:
			elsewhere++
			if row.OK {
				reachedThere++
			}
		default:
			g.row(row.Name, row.Side, row.Against, reached(row), row.Goal, status(row))
		}
	}
	if elsewhere > 0 {
		fmt.Fprintf(g, "\nWith 1 and 32 connections %d of %d goals are reached; the page has them.\n", reachedThere, elsewhere)
	}
	return g.String()
}

// answers is the table of latencies: every side, and what its median is compared with.
func answers(r harness.Results) string {
	g := newGrid("work", "who", "p50", "p99", "allocations per request", "p50 beside", "ratio",
		"goal", "")
	for _, row := range r.Rows {
		if row.Unit != harness.P50.Unit() {
			continue
		}
		var against, compared string
		if row.Against != "" {
			against, compared = fmt.Sprintf("%s (%s)", row.Against, span(row.AgainstValue)),
				spread(row)
		}
		g.row(row.Name, row.Side, span(row.P50Micros), span(row.P99Micros), number(row.Allocs),
			against, compared, row.Goal, goalStatus(row))
	}
	return g.String()
}

// span is a time of so many microseconds.
func span(micros float64) string {
	if micros >= 1e3 {
		return number(micros/1e3) + " ms"
	}
	return number(micros) + " us"
}

// clients are the versions that matter most.
func clients(r harness.Results) string {
	var all []string
	for _, name := range []string{
		"sarama", "go-redis", "redis", "pgx", "go-sql-driver", "PostgreSQL", "MariaDB", "SQLite",
		"bits-and-blooms", "fiber-v3",
	} {
		if v := r.Versions[name]; v != "" {
			all = append(all, cmp.Or(map[string]string{"redis": "Redis", "fiber-v3": "fiber"}[name],
				name)+" "+v)
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

func status(r harness.Row) string {
	if r.OK {
		return "yes"
	}
	return "missed"
}

// goalStatus is the status of a row that may have no goal.
func goalStatus(r harness.Row) string {
	if r.Goal == "" {
		return blank
	}
	return status(r)
}

// rounds says how often what was compared has been timed.
func rounds(r harness.Results) string {
	most := 0
	for _, row := range r.Rows {
		most = max(most, row.Rounds)
	}
	if most == 1 {
		return "1 round"
	}
	return fmt.Sprintf("%d interleaved rounds", most)
}

// reached is what the goal speaks of: the ratio, or the value.
func reached(r harness.Row) string {
	if strings.HasSuffix(strings.Split(r.Goal+" ", " ")[1], "x") {
		return spread(r)
	}
	return number(r.Value) + " " + r.Unit
}

// spread is the median of the ratios, and how far they lie apart.
func spread(r harness.Row) string {
	return fmt.Sprintf("%s (%s to %s)", ratio(r.Ratio), ratio(r.Spread[0]), ratio(r.Spread[1]))
}
