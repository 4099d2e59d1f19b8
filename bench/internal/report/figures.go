package report

import (
	"cmp"
	"slices"
	"strings"

	"gonum.org/v1/plot/plotter"

	"github.com/onceward/onceward/bench/internal/chart"
	"github.com/onceward/onceward/bench/internal/harness"
)

// drawer is what every kind of figure can do.
type drawer interface {
	Draw() (*chart.Figure, error)
}

// figure is a drawing to be, and the name of its files.
type figure struct {
	name, caption string
	drawer
}

// sideStyle keeps the look of a side the same in all figures.
var sideStyle = map[string]chart.Series{
	"onceward seen-only":          {Color: 0, Bold: true},
	"onceward compact":            {Color: 2, Bold: true},
	"onceward mixed":              {Color: 4, Bold: true},
	"onceward rich":               {Color: 5, Bold: true},
	"raw RESP":                    {Color: 7, Dashed: true},
	"plain go-redis":              {Color: 6},
	"go-redis SetArgs pipelines":  {Color: 6},
	"go-redis AutoPipeline":       {Color: 4},
	"rueidis":                     {Color: 1},
	"rueidis DoMulti":             {Color: 1},
	"rueidis, MaxFlushDelay 20µs": {Color: 3},

	"adapter, rich":             {Color: 0, Bold: true},
	"adapter, seen-only":        {Color: 2, Bold: true},
	"adapter, unclaimed":        {Color: 4},
	"Redis batches, rich":       {Color: 0, Dashed: true},
	"Redis batches, seen-only":  {Color: 2, Dashed: true},
	bareLoop:                    {Color: 7, Dashed: true},
	"naive SET NX, effect, SET": {Color: 6},

	"effect alone, batched":                {Color: 7, Dashed: true},
	"record alone, batched":                {Color: 1, Dashed: true},
	"record + effect, handler per batch":   {Color: 0, Bold: true},
	"record + effect, handler per message": {Color: 4},
	"offset fence + effect, batched":       {Color: 2, Bold: true},
	"a transaction per message, by hand":   {Color: 6},

	"onceward Check":                       {Color: 0, Bold: true},
	"onceward Where, which reads no clock": {Color: 2},
	"onceward WhereAll, 256 ids":           {Color: 4, Bold: true},
	"onceward Where, Kind Classic":         {Color: 1},
	"bits-and-blooms + Mutex":              {Color: 6, Dashed: true},
	"exact map + Mutex":                    {Color: 7, Dashed: true},

	ownedSide:  {Color: 0, Bold: true},
	mergedSide: {Color: 2, Bold: true},
	sharedSide: {Color: 4},
	sharedOne:  {Color: 5},
	smallSide:  {Color: 1},
	bareSide:   {Color: 7, Dashed: true},
}

// figures are those that the rows have something for.
func figures(r harness.Results) []figure {
	all := ofRedis(r)
	switch r.Area {
	case areaKafka:
		all = ofKafka(r)
	case areaOutbox:
		all = ofOutbox(r)
	case areaSQL:
		all = ofSQL(r)
	case areaBloom:
		all = ofBloom(r)
	case areaRetry:
		all = ofRetry(r)
	case areaHTTP:
		all = ofHTTP(r)
	}
	return slices.DeleteFunc(all, func(f figure) bool { return empty(f.drawer) })
}

func ofRedis(r harness.Results) []figure {
	return []figure{
		{"batch", "New keys, claimed and completed in batches; two batches under way.", chart.Lines{
			Title: "Throughput by batch size", XLabel: "keys per batch", YLabel: "keys/s", LogX: true,
			Series: sides(r, "batch", keysPerSecond),
		}},
		{"callers", "New keys, one per call, claimed and completed; both axes are logarithmic.", chart.Lines{
			Title: "Throughput by concurrent callers", XLabel: "callers", YLabel: "keys/s", LogX: true, LogY: true,
			Series: sides(r, "callers", keysPerSecond),
		}},
		{"callers-2ms", "The same with a server 2 ms away.", chart.Lines{
			Title: "Throughput by concurrent callers, 2 ms round trip", XLabel: "callers", YLabel: "keys/s", LogX: true, LogY: true,
			Series: sides(r, "callers-2ms", keysPerSecond),
		}},
		{"latency", "How long claim and completion of one new key take together; dashed: 99th percentile.", chart.Lines{
			Title: "Latency of a cycle, p50 and p99 (dashed)", XLabel: "callers", YLabel: "milliseconds", LogX: true, LogY: true,
			Series: latencies(r),
		}},
		{"duplicates", "A share of the keys repeats recent ones; dashed: without the cache of finished keys.", chart.Lines{
			Title: "Throughput by share of duplicates", XLabel: "per cent duplicates", YLabel: "keys/s", LogY: true,
			Series: streams(r),
		}},
		{"results", "New keys in batches of 256 that store what the handler returned.", chart.Lines{
			Title: "Throughput by size of the stored result", XLabel: "bytes", YLabel: "keys/s", LogY: true, Even: true,
			Series: sides(r, "result", keysPerSecond),
		}},
		{"memory", "What Redis allocates for a finished key, by how it is kept.", memory(r)},
		{"peers", "Sixteen callers, one new key per call; those that ask Redis.", peers(r)},
	}
}

func empty(d drawer) bool {
	switch d := d.(type) {
	case chart.Lines:
		return !slices.ContainsFunc(d.Series, func(s chart.Series) bool { return len(s.Points) > 1 })
	case chart.Bars:
		return len(d.Bars) < 2
	}
	return true
}

const keysPerSecond = "keys/s"

// sides are the lines of a family, one per side, in the order of the file.
func sides(r harness.Results, workload, unit string) []chart.Series {
	var names []string
	points := make(map[string]plotter.XYs)
	for _, row := range r.Rows {
		if row.Workload != workload || row.Unit != unit {
			continue
		}
		if !slices.Contains(names, row.Side) {
			names = append(names, row.Side)
		}
		points[row.Side] = add(points[row.Side], row.X, row.Value)
	}
	var series []chart.Series
	for _, name := range names {
		if len(points[name]) < 2 { // a side of one parameter only is no line
			continue
		}
		s := sideStyle[name]
		s.Name, s.Points = name, points[name]
		series = append(series, s)
	}
	return series
}

// add keeps points sorted and takes the first of every x: a side may have several rows.
func add(points plotter.XYs, x, y float64) plotter.XYs {
	i, found := slices.BinarySearchFunc(points, x, func(p plotter.XY, x float64) int { return cmp.Compare(p.X, x) })
	if found {
		return points
	}
	return slices.Insert(points, i, plotter.XY{X: x, Y: y})
}

func latencies(r harness.Results) []chart.Series {
	var series []chart.Series
	for _, side := range []string{"onceward seen-only", "onceward rich", "plain go-redis", "rueidis, MaxFlushDelay 20µs"} {
		p50, p99 := sideStyle[side], sideStyle[side]
		p50.Name, p99.Name, p99.Dashed, p99.Bold = side, side+", p99", true, false
		for _, row := range r.Rows {
			if row.Workload == "callers" && row.Side == side && row.P50Micros > 0 {
				p50.Points, p99.Points = add(p50.Points, row.X, row.P50Micros/1e3), add(p99.Points, row.X, row.P99Micros/1e3)
			}
		}
		series = append(series, p50, p99)
	}
	return series
}

func streams(r harness.Results) []chart.Series {
	var series []chart.Series
	for i, m := range []struct{ workload, name string }{
		{"stream-batch", "batches of 256"}, {"stream-64", "64 callers"}, {"stream-1", "one caller"},
	} {
		for _, s := range sides(r, m.workload, keysPerSecond) {
			off := strings.Contains(s.Name, "no local cache")
			s.Name, s.Color, s.Bold, s.Dashed = m.name+", cache", i, !off, off
			if off {
				s.Name = m.name + ", no cache"
			}
			series = append(series, s)
		}
	}
	return series
}

func memory(r harness.Results) chart.Bars {
	b := chart.Bars{Title: "Memory per remembered key", XLabel: "bytes"}
	for _, row := range r.Rows {
		if row.Workload == "memory" {
			b.Bars = append(b.Bars, chart.Bar{Name: row.Side, Value: row.Value, Color: barColor(row.Side)})
		}
	}
	return b
}

func peers(r harness.Results) chart.Bars {
	b := chart.Bars{Title: "Peers, 16 callers", XLabel: "keys/s"}
	for _, row := range r.Rows {
		if row.Workload == "peers" && row.X == 16 && row.Unit == keysPerSecond && !strings.HasSuffix(row.Side, "(in process)") {
			b.Bars = append(b.Bars, chart.Bar{Name: row.Side, Value: row.Value, Color: barColor(row.Side)})
		}
	}
	return b
}

func barColor(side string) int {
	if strings.HasPrefix(side, "onceward") {
		return 0
	}
	return 6
}
