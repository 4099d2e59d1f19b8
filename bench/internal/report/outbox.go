package report

import (
	"strings"

	"github.com/onceward/onceward/bench/internal/chart"
	"github.com/onceward/onceward/bench/internal/harness"
)

// areaOutbox is the area whose rows are rates of relays.
const areaOutbox = "outbox"

func ofOutbox(r harness.Results) []figure {
	return []figure{
		{"relay-0ms", "Messages of 200 bytes, a publisher that acknowledges at once.", relaysAt(r, "Relays, broker at 0 ms", 0)},
		{"relay-1ms", "The same with a publisher that takes a millisecond for each call.", relaysAt(r, "Relays, broker at 1 ms", 1)},
	}
}

// relaysAt are the rates of all sides behind a broker so many milliseconds away.
func relaysAt(r harness.Results, title string, x float64) chart.Bars {
	b := chart.Bars{Title: title, XLabel: messagesPerSecond}
	told := make(map[string]bool)
	for _, row := range r.Rows {
		if row.Workload != "relay" || row.X != x || told[row.Side] {
			continue
		}
		told[row.Side] = true
		// What people use: the rest of the name is for tables.
		name, _, _ := strings.Cut(row.Side, ", which")
		b.Bars = append(b.Bars, chart.Bar{Name: name, Value: row.Value, Color: barColor(row.Side)})
	}
	return b
}
