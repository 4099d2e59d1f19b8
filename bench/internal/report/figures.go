package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/onceward/onceward/bench/internal/chart"
	"github.com/onceward/onceward/bench/internal/harness"
)

// figure is a drawing to be, and the name of its files.
type figure struct {
	name, caption string
	drawing
}

type drawing interface {
	Empty() bool
	SVG() ([]byte, error)
}

// Names of sides that stand in tables and lines.
const (
	ownedSide    = "onceward owned"
	mergedSide   = "onceward owned, CompleteAndClaim"
	sharedSide   = "onceward shared, seen-only"
	sharedOne    = "onceward shared, seen-only, CompleteAndClaim"
	smallSide    = "onceward shared, compact"
	bareSide     = "raw RESP, two commands a key"
	bareLoop     = "bare sarama loop"
	checkSide    = "onceward Check"
	whereSide    = "onceward Where, which reads no clock"
	whereAllSide = "onceward WhereAll, 256 ids"
	classicSide  = "onceward Where, Kind Classic"
	peerBloom    = "bits-and-blooms + Mutex"
	peerMap      = "exact map + Mutex"
)

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

	"adapter, rich":                {Color: 0, Bold: true},
	"adapter, seen-only":           {Color: 2, Bold: true},
	"adapter, unclaimed":           {Color: 4},
	"Redis batches, rich":          {Color: 0, Dashed: true},
	"Redis batches, seen-only":     {Color: 2, Dashed: true},
	bareLoop:                       {Color: 7, Dashed: true},
	"naive SET NX, effect, SET":    {Color: 6},
	"by hand, in pipelines of 256": {Color: 1},

	"effect alone, batched":                {Color: 7, Dashed: true},
	"record alone, batched":                {Color: 1, Dashed: true},
	"record + effect, handler per batch":   {Color: 0, Bold: true},
	"record + effect, handler per message": {Color: 4},
	"offset fence + effect, batched":       {Color: 2, Bold: true},
	"a transaction per message, by hand":   {Color: 6},

	checkSide:    {Color: 0, Bold: true},
	whereSide:    {Color: 2},
	whereAllSide: {Color: 4, Bold: true},
	classicSide:  {Color: 1},
	peerBloom:    {Color: 6, Dashed: true},
	peerMap:      {Color: 7, Dashed: true},
	ownedSide:    {Color: 0, Bold: true},
	mergedSide:   {Color: 2, Bold: true},
	sharedSide:   {Color: 4},
	sharedOne:    {Color: 5},
	smallSide:    {Color: 1},
	bareSide:     {Color: 7, Dashed: true},

	"no jitter":                   {Color: 3},
	"full jitter":                 {Color: 0, Bold: true},
	"equal jitter":                {Color: 2},
	"decorrelated jitter":         {Color: 4},
	"what the server can do":      {Color: 7, Dashed: true},
	"three attempts":              {Color: 3},
	"with a budget":               {Color: 0, Bold: true},
	"with a budget and a breaker": {Color: 2, Bold: true},
	"requests, without retries":   {Color: 7, Dashed: true},
}

// Units of the rows that are drawn.
const (
	keysPerSecond     = "keys/s"
	messagesPerSecond = "messages/s"
	perSecond         = "requests/s"
	cpuNanos          = "CPU ns/key"
)

// figures are those that the rows have something for.
func figures(r harness.Results) []figure {
	of := map[string]func(harness.Results) []figure{
		"redis": ofRedis, "kafka": ofKafka, "outbox": ofOutbox, "sql": ofSQL, "bloom": ofBloom,
		"retry": ofRetry, "http": ofHTTP,
	}[r.Area]
	if of == nil {
		return nil
	}
	return slices.DeleteFunc(of(r), func(f figure) bool { return f.Empty() })
}

func ofRedis(r harness.Results) []figure {
	return []figure{
		{"batch", "New keys, claimed and completed in batches; two batches under way.", chart.Lines{
			Title: "Throughput by batch size", XLabel: "keys per batch", YLabel: keysPerSecond,
			LogX: true, Series: sides(r, "batch", keysPerSecond),
		}},
		{"callers", "New keys, one per call, claimed and completed; both axes are logarithmic.",
			chart.Lines{
				Title: "Throughput by concurrent callers", XLabel: "callers", YLabel: keysPerSecond,
				LogX: true, LogY: true, Series: sides(r, "callers", keysPerSecond),
			}},
		{"callers-2ms", "The same with a server 2 ms away.", chart.Lines{
			Title: "Throughput by concurrent callers, 2 ms round trip", XLabel: "callers",
			YLabel: keysPerSecond, LogX: true, LogY: true,
			Series: sides(r, "callers-2ms", keysPerSecond),
		}},
		{"latency", "How long claim and completion of one new key take together; dashed: 99th percentile.", chart.Lines{
			Title: "Latency of a cycle, p50 and p99 (dashed)", XLabel: "callers",
			YLabel: "milliseconds", LogX: true, LogY: true, Series: latencies(r),
		}},
		{"duplicates", "A share of the keys repeats recent ones; dashed: without the cache of finished keys.", chart.Lines{
			Title: "Throughput by share of duplicates", XLabel: "per cent duplicates",
			YLabel: keysPerSecond, LogY: true, Series: streams(r),
		}},
		{"results", "New keys in batches of 256 that store what the handler returned.", chart.Lines{
			Title: "Throughput by size of the stored result", XLabel: "bytes",
			YLabel: keysPerSecond, LogY: true, Even: true,
			Series: sides(r, "result", keysPerSecond),
		}},
		{"memory", "What Redis allocates for a finished key, by how it is kept.",
			bars(r, "Memory per remembered key", "bytes", func(row harness.Row) bool {
				return row.Workload == "memory"
			})},
		{"peers", "Sixteen callers, one new key per call; those that ask Redis.",
			bars(r, "Peers, 16 callers", keysPerSecond, func(row harness.Row) bool {
				return row.Workload == "peers" && row.X == 16 && row.Unit == keysPerSecond &&
					!strings.HasSuffix(row.Side, "(in process)")
			})},
	}
}

// sides are the lines of a family, one per side, in the order of the file.
func sides(r harness.Results, workload, unit string) []chart.Series {
	var series []chart.Series
	for _, row := range r.Rows {
		if row.Workload != workload || row.Unit != unit {
			continue
		}
		i := slices.IndexFunc(series, func(s chart.Series) bool { return s.Name == row.Side })
		if i < 0 {
			s := sideStyle[row.Side]
			s.Name = row.Side
			i, series = len(series), append(series, s)
		}
		series[i].Add(row.X, row.Value)
	}
	// A side of one parameter only is no line.
	return slices.DeleteFunc(series, func(s chart.Series) bool { return len(s.Points) < 2 })
}

// bars are the first rows of each side among those that are chosen.
func bars(r harness.Results, title, label string, chosen func(harness.Row) bool) chart.Bars {
	b := chart.Bars{Title: title, XLabel: label}
	drawn := make(map[string]bool)
	for _, row := range r.Rows {
		if !chosen(row) || drawn[row.Side] {
			continue
		}
		drawn[row.Side] = true
		bar := chart.Bar{Name: row.Side, Value: row.Value, Color: 6}
		if strings.HasPrefix(row.Side, "onceward") || strings.HasPrefix(row.Side, "adapter") {
			bar.Color = 0
		}
		b.Bars = append(b.Bars, bar)
	}
	return b
}

func latencies(r harness.Results) []chart.Series {
	var series []chart.Series
	for _, side := range []string{"onceward seen-only", "onceward rich", "plain go-redis",
		"rueidis, MaxFlushDelay 20µs"} {
		p50, p99 := sideStyle[side], sideStyle[side]
		p50.Name, p99.Name, p99.Dashed, p99.Bold = side, side+", p99", true, false
		for _, row := range r.Rows {
			if row.Workload == "callers" && row.Side == side && row.P50Micros > 0 {
				p50.Add(row.X, row.P50Micros/1e3)
				p99.Add(row.X, row.P99Micros/1e3)
			}
		}
		series = append(series, p50, p99)
	}
	return series
}

func streams(r harness.Results) []chart.Series {
	var series []chart.Series
	for i, m := range [][2]string{{"stream-batch", "batches of 256"}, {"stream-64", "64 callers"},
		{"stream-1", "one caller"}} {
		for _, s := range sides(r, m[0], keysPerSecond) {
			off := strings.Contains(s.Name, "no local cache")
			s.Name, s.Color, s.Bold, s.Dashed = m[1]+", cache", i, !off, off
			if off {
				s.Name = m[1] + ", no cache"
			}
			series = append(series, s)
		}
	}
	return series
}

func ofKafka(r harness.Results) []figure {
	var all []figure
	for _, partitions := range []int{4, 16} {
		all = append(all, figure{
			fmt.Sprintf("consume-%d", partitions),
			fmt.Sprintf("Values of 100 bytes, %d partitions, one consumer. Dashed: the limits, a bare loop of the same client and batches on the same Redis without Kafka.", partitions),
			chart.Lines{
				Title: fmt.Sprintf("Consumed messages by share of duplicates, %d partitions",
					partitions), XLabel: "per cent duplicates", YLabel: messagesPerSecond,
				LogY: true, Series: sides(r, fmt.Sprintf("%d partitions, 100 B", partitions),
					messagesPerSecond),
			},
		})
	}
	return append(all, figure{"consumers",
		"New messages, 4 partitions, values of 100 bytes; the Redis batches are without Kafka.",
		bars(r, "Consumers, no duplicates", messagesPerSecond, func(row harness.Row) bool {
			// The bare loop and the adapter without a store are of another order of magnitude.
			return row.Workload == "4 partitions, 100 B" && row.X == 0 &&
				row.Unit == messagesPerSecond && row.Side != bareLoop &&
				row.Side != "adapter, unclaimed"
		})})
}

func ofOutbox(r harness.Results) []figure {
	relays := func(title string, x float64) chart.Bars {
		b := bars(r, title, messagesPerSecond, func(row harness.Row) bool {
			return row.Workload == "relay" && row.X == x
		})
		for i := range b.Bars {
			// the rest of the name is for tables
			b.Bars[i].Name, _, _ = strings.Cut(b.Bars[i].Name, ", which")
		}
		return b
	}
	return []figure{
		{"relay-0ms", "Messages of 200 bytes, a publisher that acknowledges at once.",
			relays("Relays, broker at 0 ms", 0)},
		{"relay-1ms", "The same with a publisher that takes a millisecond for each call.",
			relays("Relays, broker at 1 ms", 1)},
	}
}

// sqlCentral is the family of the SQL workloads whose goals are in docs/benchmarks.md.
const sqlCentral = "PostgreSQL, 8 connections"

func ofSQL(r harness.Results) []figure {
	var all []figure
	for _, f := range [][2]string{
		{"postgres-8", sqlCentral}, {"postgres-1", "PostgreSQL, 1 connection"},
		{"postgres-32", "PostgreSQL, 32 connections"},
		{"mariadb", "MariaDB, 8 connections"}, {"sqlite", "SQLite, 1 connection"},
	} {
		all = append(all, figure{
			f[0], "New messages. Dashed: the effect alone, which is the ceiling, and the record alone; each in its transaction.",
			chart.Lines{
				Title: f[1] + ": messages by size of the batch", XLabel: "messages per batch",
				YLabel: keysPerSecond, LogX: true, LogY: true,
				Series: sides(r, f[1], keysPerSecond),
			},
		})
	}
	bytes := bars(r, "Bytes per key", "bytes", func(row harness.Row) bool {
		return row.Workload == "bytes per key"
	})
	for i := range bytes.Bars {
		bytes.Bars[i].Color = 0
	}
	return append(all, figure{"bytes",
		"Table and indexes of marks without results, made in batches of 256.", bytes})
}

func ofBloom(r harness.Results) []figure {
	answers := func(family, title string) chart.Lines {
		return chart.Lines{Title: title, XLabel: "ids of the window", YLabel: "CPU ns", LogX: true,
			LogY: true, Series: sides(r, family, cpuNanos)}
	}
	return []figure{
		{"new", "One goroutine asks for ids that nobody added, of filters that are as full as planned; the goal is 80 ns.", answers("new ids, 1 goroutine", "Time of an answer about a new id")},
		{"known", "The same for ids that were added.",
			answers("known ids, 1 goroutine", "Time of an answer about a known id")},
		{"owned", "Batches of 256 through a Deduper; a share of the keys repeats recent ones. Folding is in the time.", chart.Lines{
			Title:  "Owned partitions, shared Redis, and the raw commands",
			XLabel: "per cent duplicates", YLabel: keysPerSecond,
			Series: sides(r, "owned", keysPerSecond),
		}},
		{"bytes", "Memory that is alive, by ids of the window.",
			bars(r, "Bytes per id of the window", "bytes", func(row harness.Row) bool {
				return row.Workload == "memory"
			})},
	}
}

func ofRetry(r harness.Results) []figure {
	load := func(title, family string) chart.Lines {
		return chart.Lines{Title: title, XLabel: "seconds", YLabel: perSecond, Plain: true,
			Series: sides(r, family, perSecond)}
	}
	return []figure{
		{"comeback", "1,000 clients whose requests were cut off at 0 s try until they are served. The server is down for 20 s; then it can do 100 requests/s. The first ten seconds, which are much alike, are left out.", load("A server that comes back after 20 s", "comeback")},
		{"outage", "1,000 requests/s, and what a total outage from 20 s to 50 s makes of them.",
			load("An outage from 20 s to 50 s", "outage")},
	}
}

func ofHTTP(r harness.Results) []figure {
	// The medians of all sides of a family, from one connection.
	answered := func(title, workload string) chart.Bars {
		return bars(r, title, "microseconds", func(row harness.Row) bool {
			return row.Workload == workload && row.X == 1
		})
	}
	const caption = "Median latency of a POST over loopback, one connection."
	return []figure{
		{"new", caption, answered("A request with a new key", "new request")},
		{"replay", caption, answered("A request whose answer is on record", "replay")},
	}
}
