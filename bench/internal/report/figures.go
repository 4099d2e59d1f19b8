package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/onceward/onceward/bench/internal/chart"
	"github.com/onceward/onceward/bench/internal/harness"
)

// figure is a drawing to be: lines over a parameter, or bars.
type figure struct {
	area, name, family, title, caption string
	x, y                               string // labels; of bars x alone
	unit                               string // of the rows
	logX, logY, even, plain            bool
	// series are the lines, where they are not a side of the family each
	series func(harness.Results) []chart.Series
	// bar chooses the rows of bars; nil: these are lines
	bar func(harness.Row) bool
}

// all figures, by their area.
var all = slices.Concat([]figure{
	{area: "redis", name: "batch", family: "batch", title: "Throughput by batch size",
		caption: "New keys, claimed and completed in batches; two batches under way.",
		x:       "keys per batch", unit: keysPerSecond, logX: true},
	{area: "redis", name: "callers", family: "callers", title: "Throughput by concurrent callers",
		caption: "New keys, one per call, claimed and completed; both axes are logarithmic.",
		x:       "callers", unit: keysPerSecond, logX: true, logY: true},
	{area: "redis", name: "callers-2ms", family: "callers-2ms", caption: "The same with a server 2 ms away.",
		title: "Throughput by concurrent callers, 2 ms round trip",
		x:     "callers", unit: keysPerSecond, logX: true, logY: true},
	{area: "redis", name: "latency", title: "Latency of a cycle, p50 and p99 (dashed)", x: "callers",
		caption: "How long claim and completion of one new key take together; dashed: 99th percentile.",
		y:       "milliseconds", logX: true, logY: true, series: latencies},
	{area: "redis", name: "duplicates", title: "Throughput by share of duplicates",
		caption: "A share of the keys repeats recent ones; dashed: without the cache of finished keys.",
		x:       "per cent duplicates", unit: keysPerSecond, logY: true, series: streams},
	{area: "redis", name: "results", family: "result", title: "Throughput by size of the stored result",
		caption: "New keys in batches of 256 that store what the handler returned.",
		x:       "bytes", unit: keysPerSecond, logY: true, even: true},
	{area: "redis", name: "memory", title: "Memory per remembered key", x: "bytes",
		caption: "What Redis allocates for a finished key, by how it is kept.", bar: ofFamily("memory")},
	{area: "redis", name: "peers", title: "Peers, 16 callers", x: keysPerSecond,
		caption: "Sixteen callers, one new key per call; those that ask Redis.",
		bar:     at("peers", 16, keysPerSecond, "watermill deduplicator (in process)")},
}, partitions(4), partitions(16), []figure{
	// The bare loop and the adapter without a store are of another order of magnitude.
	{area: "kafka", name: "consumers", title: "Consumers, no duplicates", x: messagesPerSecond,
		caption: "New messages, 4 partitions, values of 100 bytes; the Redis batches are without Kafka.",
		bar:     at("4 partitions, 100 B", 0, messagesPerSecond, bareLoop, "adapter, unclaimed")},
	{area: "outbox", name: "relay-0ms", title: "Relays, broker at 0 ms", x: messagesPerSecond,
		caption: "Messages of 200 bytes, a publisher that acknowledges at once.",
		bar:     at("relay", 0, messagesPerSecond)},
	{area: "outbox", name: "relay-1ms", title: "Relays, broker at 1 ms", x: messagesPerSecond,
		caption: "The same with a publisher that takes a millisecond for each call.",
		bar:     at("relay", 1, messagesPerSecond)},
},
	records("postgres-8", sqlCentral), records("postgres-1", "PostgreSQL, 1 connection"),
	records("postgres-32", "PostgreSQL, 32 connections"),
	records("mariadb", "MariaDB, 8 connections"), records("sqlite", "SQLite, 1 connection"),
	[]figure{
		{area: "sql", name: "bytes", title: "Bytes per key", x: "bytes",
			caption: "Table and indexes of marks without results, made in batches of 256.",
			bar:     ofFamily("bytes per key")},
		{area: "bloom", name: "new", family: "new ids, 1 goroutine",
			title: "Time of an answer about a new id",
			caption: "One goroutine asks for ids that nobody added, of filters that are as full as " +
				"planned; the goal is 80 ns.",
			x: "ids of the window", y: "CPU ns", unit: cpuNanos, logX: true, logY: true},
		{area: "bloom", name: "known", family: "known ids, 1 goroutine",
			title: "Time of an answer about a known id", caption: "The same for ids that were added.",
			x: "ids of the window", y: "CPU ns", unit: cpuNanos, logX: true, logY: true},
		{area: "bloom", name: "owned", family: "owned", x: "per cent duplicates",
			unit: keysPerSecond, title: "Owned partitions, shared Redis, and the raw commands",
			caption: "Batches of 256 through a Deduper; a share of the keys repeats recent ones. " +
				"Folding is in the time."},
		{area: "bloom", name: "bytes", title: "Bytes per id of the window", x: "bytes",
			caption: "Memory that is alive, by ids of the window.", bar: ofFamily("memory")},
		{area: "retry", name: "comeback", family: "comeback", x: "seconds", unit: perSecond,
			plain: true, title: "A server that comes back after 20 s",
			caption: "1,000 clients whose requests were cut off at 0 s try until they are served. The " +
				"server is down for 20 s; then it can do 100 requests/s. The first ten seconds, which " +
				"are much alike, are left out."},
		{area: "retry", name: "outage", family: "outage", x: "seconds", unit: perSecond,
			plain: true, title: "An outage from 20 s to 50 s",
			caption: "1,000 requests/s, and what a total outage from 20 s to 50 s makes of them."},
		{area: "http", name: "new", title: "A request with a new key", x: "microseconds",
			caption: "Median latency of a POST over loopback, one connection.",
			bar:     at("new request", 1, harness.P50.Unit())},
		{area: "http", name: "replay", title: "A request whose answer is on record", x: "microseconds",
			caption: "Median latency of a POST over loopback, one connection.",
			bar:     at("replay", 1, harness.P50.Unit())},
	})

func partitions(n int) []figure {
	return []figure{{area: "kafka", name: fmt.Sprintf("consume-%d", n),
		family: fmt.Sprintf("%d partitions, 100 B", n),
		caption: fmt.Sprintf("Values of 100 bytes, %d partitions, one consumer. Dashed: the limits, a "+
			"bare loop of the same client and batches on the same Redis without Kafka.", n),
		title: fmt.Sprintf("Consumed messages by share of duplicates, %d partitions", n),
		x:     "per cent duplicates", unit: messagesPerSecond, logY: true}}
}

// sqlCentral is the family of the SQL workloads whose goals are in docs/benchmarks.md.
const sqlCentral = "PostgreSQL, 8 connections"

func records(name, family string) []figure {
	return []figure{{area: "sql", name: name, family: family,
		title: family + ": messages by size of the batch",
		caption: "New messages. Dashed: the effect alone, which is the ceiling, and the record " +
			"alone; each in its transaction.",
		x: "messages per batch", unit: keysPerSecond, logX: true, logY: true}}
}

// at are the rows of a family at one parameter, in one unit, but for some sides.
func at(family string, x float64, unit string, without ...string) func(harness.Row) bool {
	return func(row harness.Row) bool {
		return row.Workload == family && row.X == x && row.Unit == unit &&
			!slices.Contains(without, row.Side)
	}
}

func ofFamily(family string) func(harness.Row) bool {
	return func(row harness.Row) bool { return row.Workload == family }
}

// drawing is a chart, of lines or of bars.
type drawing interface {
	Empty() bool
	SVG() ([]byte, error)
}

func figures(r harness.Results) []figure {
	return slices.DeleteFunc(slices.Clone(all), func(f figure) bool {
		return f.area != r.Area || f.of(r).Empty()
	})
}

func (f figure) of(r harness.Results) drawing {
	if f.bar != nil {
		return f.bars(r)
	}
	l := chart.Lines{Title: f.title, XLabel: f.x, YLabel: cmp.Or(f.y, f.unit), LogX: f.logX,
		LogY: f.logY, Plain: f.plain, Even: f.even}
	if f.series != nil {
		l.Series = f.series(r)
	} else {
		l.Series = sides(r, f.family, f.unit)
	}
	return l
}

// Units of the rows that are drawn.
const (
	keysPerSecond     = "keys/s"
	messagesPerSecond = "messages/s"
	perSecond         = "requests/s"
	cpuNanos          = "CPU ns/key"
)

// Names of sides that are looked for.
const (
	ownedSide = "onceward owned"
	bareSide  = "raw RESP, two commands a key"
	bareLoop  = "bare sarama loop"
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

	"onceward Check":                               {Color: 0, Bold: true},
	"onceward Where, which reads no clock":         {Color: 2},
	"onceward WhereAll, 256 ids":                   {Color: 4, Bold: true},
	"onceward Where, Kind Classic":                 {Color: 1},
	"bits-and-blooms + Mutex":                      {Color: 6, Dashed: true},
	"exact map + Mutex":                            {Color: 7, Dashed: true},
	ownedSide:                                      {Color: 0, Bold: true},
	"onceward owned, CompleteAndClaim":             {Color: 2, Bold: true},
	"onceward shared, seen-only":                   {Color: 4},
	"onceward shared, seen-only, CompleteAndClaim": {Color: 5},
	"onceward shared, compact":                     {Color: 1},
	bareSide:                                       {Color: 7, Dashed: true},

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

// sides are the lines of a family, one per side, in the order of the file.
func sides(r harness.Results, workload, unit string) (series []chart.Series) {
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

// bars are the first rows of each side among those that are chosen. What follows ", which" in a
// side's name is for tables.
func (f figure) bars(r harness.Results) chart.Bars {
	b := chart.Bars{Title: f.title, XLabel: f.x}
	drawn := make(map[string]bool)
	for _, row := range (run{r}).chosen(f.bar) {
		if drawn[row.Side] {
			continue
		}
		drawn[row.Side] = true
		name, _, _ := strings.Cut(row.Side, ", which")
		bar := chart.Bar{Name: name, Value: row.Value, Color: 6}
		if f.area == "sql" || strings.HasPrefix(name, "onceward") ||
			strings.HasPrefix(name, "adapter") {
			bar.Color = 0
		}
		b.Bars = append(b.Bars, bar)
	}
	return b
}

func latencies(r harness.Results) (series []chart.Series) {
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

func streams(r harness.Results) (series []chart.Series) {
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
