package report

import (
	"github.com/onceward/onceward/bench/internal/chart"
	"github.com/onceward/onceward/bench/internal/harness"
)

// areaBloom is the area whose rows are of the front.
const areaBloom = "bloom"

func ofBloom(r harness.Results) []figure {
	answers := func(family, title string) chart.Lines {
		return chart.Lines{
			Title: title, XLabel: "ids of the window", YLabel: "CPU ns", LogX: true, LogY: true, Series: sides(r, family, harness.CPUNanos.Unit()),
		}
	}
	return []figure{
		{"new", "One goroutine asks for ids that nobody added, of filters that are as full as planned; the goal is 80 ns.", answers("new ids, 1 goroutine", "Time of an answer about a new id")},
		{"known", "The same for ids that were added.", answers("known ids, 1 goroutine", "Time of an answer about a known id")},
		{"owned", "Batches of 256 through a Deduper; a share of the keys repeats recent ones. Folding is in the time.", chart.Lines{
			Title: "Owned partitions, shared Redis, and the raw commands", XLabel: "per cent duplicates", YLabel: "keys/s", Series: sides(r, "owned", harness.Rate.Unit()),
		}},
		{"bytes", "Memory that is alive, by ids of the window.", idBytes(r)},
	}
}

func idBytes(r harness.Results) chart.Bars {
	b := chart.Bars{Title: "Bytes per id of the window", XLabel: "bytes"}
	for _, row := range r.Rows {
		if row.Workload == "memory" {
			b.Bars = append(b.Bars, chart.Bar{Name: row.Side, Value: row.Value, Color: barColor(row.Side)})
		}
	}
	return b
}
