package report

import (
	"fmt"
	"strings"

	"github.com/onceward/onceward/bench/internal/chart"
	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/web/serve"
)

// areaHTTP is the area whose rows are latencies of requests.
const areaHTTP = "http"

func ofHTTP(r harness.Results) []figure {
	caption := "Median latency of a POST over loopback, one connection."
	return []figure{
		{"new", caption, answered(r, "A request with a new key", serve.New)},
		{"replay", caption, answered(r, "A request whose answer is on record", serve.Replay)},
	}
}

// answered are the medians of all sides of a family, from one connection.
func answered(r harness.Results, title, workload string) chart.Bars {
	b := chart.Bars{Title: title, XLabel: "microseconds"}
	told := make(map[string]bool)
	for _, row := range r.Rows {
		if row.Workload != workload || row.X != 1 || told[row.Side] {
			continue
		}
		told[row.Side] = true
		b.Bars = append(b.Bars, chart.Bar{Name: row.Side, Value: row.P50Micros, Color: barColor(row.Side)})
	}
	return b
}

// answers is the table of latencies: every side, and beside what its median stands.
func answers(b *strings.Builder, r harness.Results) {
	b.WriteString("| work | who | p50 | p99 | allocations per request | p50 beside | ratio | goal | |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, row := range r.Rows {
		if row.Unit != harness.P50.Unit() {
			continue
		}
		against, compared, goal := "-", "-", "-"
		if row.Against != "" {
			against, compared = fmt.Sprintf("%s (%s)", cell(row.Against), span(row.AgainstValue)), spread(row)
		}
		reached := ""
		if row.Goal != "" {
			goal, reached = cell(row.Goal), verdict(row)
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", cell(row.Name), cell(row.Side), span(row.P50Micros), span(row.P99Micros),
			number(row.Allocs), against, compared, goal, reached)
	}
}

// span is a time of so many microseconds.
func span(micros float64) string {
	if micros >= 1e3 {
		return number(micros/1e3) + " ms"
	}
	return number(micros) + " us"
}
