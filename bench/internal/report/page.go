package report

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/onceward/onceward/bench/internal/harness"
)

// The lines between which the table of an area stands in docs/benchmarks.md.
func begin(area string) string {
	return "<!-- table of bench/results/" + area + ".json: make bench-table -->"
}

const end = "<!-- end of table -->"

// Table is the table of docs/benchmarks.md: what has a goal, of the layout that people get who want
// speed; the page has the rest.
func Table(r harness.Results) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Commit %s, %s; %s. Ratios are medians of %s (smallest to largest).\n", r.Commit, r.Machine, clients(r), rounds(r))
	if len(r.LeftOut) > 0 {
		fmt.Fprintf(&b, "Left out: %s.\n", strings.Join(r.LeftOut, "; "))
	}
	b.WriteByte('\n')
	switch r.Area {
	case areaKafka:
		consumers(&b, r)
		return b.String()
	case areaSQL:
		records(&b, r)
		return b.String()
	case areaHTTP:
		answers(&b, r)
		return b.String()
	}
	b.WriteString("| work | beside | reached | goal | |\n|---|---|---|---|---|\n")
	for _, row := range r.Rows {
		if row.Goal == "" || strings.Contains(row.Side, "onceward rich") || freeOfGarbage(r, row) {
			continue
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", cell(row.Name), cell(row.Against), reached(row), cell(row.Goal), verdict(row))
	}
	return b.String()
}

// freeOfGarbage are the many rows of the filter that allocate nothing: only one that does is news.
func freeOfGarbage(r harness.Results, row harness.Row) bool {
	return r.Area == areaBloom && row.Unit == harness.Allocs.Unit() && row.OK
}

// consumers is the table of rates: what is done, by whom, and beside which of its limits.
func consumers(b *strings.Builder, r harness.Results) {
	b.WriteString("| work | who | messages/s | allocations per message | beside | ratio | goal | |\n|---|---|---|---|---|---|---|---|\n")
	for _, row := range r.Rows {
		if row.Goal == "" {
			continue
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s (%s/s) | %s | %s | %s |\n", cell(row.Name), cell(row.Side), number(row.Value), number(row.Allocs),
			cell(row.Against), number(row.AgainstValue), reached(row), cell(row.Goal), verdict(row))
	}
}

// clients are the versions that matter most.
func clients(r harness.Results) string {
	var all []string
	for _, c := range [][2]string{{"sarama", "sarama"}, {"go-redis", "go-redis"}, {"redis", "Redis"}, {"pgx", "pgx"}, {"go-sql-driver", "go-sql-driver"},
		{"PostgreSQL", "PostgreSQL"}, {"MariaDB", "MariaDB"}, {"SQLite", "SQLite"},
		{"bits-and-blooms", "bits-and-blooms"}, {"fiber-v3", "fiber"},
	} {
		if v := r.Versions[c[0]]; v != "" {
			all = append(all, c[1]+" "+v)
		}
	}
	if v := r.Versions["go"]; v != "" && len(all) == 0 {
		return "Go " + v
	}
	return strings.Join(all, ", ")
}

func verdict(r harness.Row) string {
	if r.OK {
		return "yes"
	}
	return "missed"
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

func cell(text string) string {
	if text == "" {
		return "-"
	}
	return strings.ReplaceAll(text, "|", "\\|")
}

// Replace returns the page with the table of results between the markers.
func Replace(page []byte, r harness.Results) ([]byte, error) {
	return replace(page, r.Area, Table(r))
}

func replace(page []byte, area, table string) ([]byte, error) {
	begin := begin(area)
	head, rest, ok := bytes.Cut(page, []byte(begin+"\n"))
	_, tail, closed := bytes.Cut(rest, []byte(end))
	if !ok || !closed {
		return nil, errors.New("report: the page has no place for the table: " + begin + " ... " + end)
	}
	return []byte(string(head) + begin + "\n\n" + table + "\n" + end + string(tail)), nil
}
