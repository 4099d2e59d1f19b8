package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
)

const (
	resultsDir = "../../results"
	docsDir    = "../../../docs"
)

// areas are the checked-in results. Each has its number of figures and a line of its table.
var areas = map[string]struct {
	figures int
	line    string
}{
	"redis":  {7, "| 256 callers, new keys |"},
	"kafka":  {3, "| 4 partitions, 100 B, 0 % duplicates | adapter, full |"},
	"bloom":  {3, "| memory, bytes per id of the window |"},
	"outbox": {2, "| wake-up by polling, median |"},
	"retry": {2, "| calls of the last of four layers, three attempts in each | header ignored " +
		"| 3.00 calls |"},
	"http": {2, "| new request, 1 connection | onceward, Redis |"},
	"sql":  {6, "| PostgreSQL, 8 connections, batch 256 | record + effect, handler per batch |"},
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(data)
}

// The pages have the figures of the newest run, and nobody types them.
func TestPagesHaveTheTables(t *testing.T) {
	names := slices.Collect(maps.Keys(areas))
	for _, name := range []string{Benchmarks, Bloom, Faults, Compare, Readme} {
		page := readFile(t, filepath.Join(docsDir, name))
		want, err := Update(name, []byte(page), resultsDir, names...)
		require.NoError(t, err)
		require.Equal(t, string(want), page, "%s: make bench-table", name)
		_, err = Update(name, []byte("no markers"), resultsDir, names...)
		require.ErrorContains(t, err, "no place for the table")
	}
	for area, expected := range areas {
		page := readFile(t, filepath.Join(docsDir, Benchmarks))
		assert.Contains(t, page, expected.line, area)
	}
	_, err := Update(Benchmarks, nil, t.TempDir(), "redis")
	require.ErrorIs(t, err, os.ErrNotExist, "results are missing")
	none, err := Update(Faults, nil, t.TempDir())
	require.NoError(t, err, "a long run is not needed")
	assert.Empty(t, none)
}

// The checked-in pages and figures are those that Write makes from the checked-in results.
func TestResultsAreRendered(t *testing.T) {
	for area, expected := range areas {
		r, err := harness.Read(filepath.Join(resultsDir, area+".json"))
		require.NoError(t, err)
		assert.Equal(t, area, r.Area)
		dir := t.TempDir()
		require.NoError(t, Write(r, filepath.Join(dir, area+".json")))
		assert.Equal(t, pageOf(t, resultsDir, area), pageOf(t, dir, area),
			"bench render results/%s.json", area)
		assert.GreaterOrEqual(t, len(figures(r)), expected.figures, area)
		for _, f := range figures(r) {
			assert.NotEmpty(t, readFile(t, filepath.Join(dir, area, f.Name+".svg")))
			assert.FileExists(t, filepath.Join(resultsDir, area, f.Name+".svg"))
		}
	}
}

// pageOf returns a page without its drawings, because their last digits depend on the processor.
func pageOf(t *testing.T, dir, area string) string {
	t.Helper()
	return regexp.MustCompile(`(?s)<svg.*?</svg>`).ReplaceAllString(
		readFile(t, filepath.Join(dir, area+".html")), "<svg/>")
}

var sample = harness.Results{
	Area: "redis", Commit: "abc", Machine: "2 cores <&>",
	Versions: map[string]string{"go-redis": "9", "redis": "7", "go": "1"},
	LeftOut:  []string{"x & y"},
	Rows: []harness.Row{
		{Name: "batch | 16", Workload: "batch", Side: "onceward full", X: 16, Value: 100,
			Unit: "keys/s", Against: "raw", AgainstValue: 50, Ratio: 2, Spread: [2]float64{1, 12},
			Rounds: 7, Goal: ">= 0.85x (stretch 1x)", OK: true},
		{Name: "batch 64", Workload: "batch", Side: "onceward full", X: 64, Value: 200,
			Unit: "keys/s"},
		{Name: "bytes", Workload: "memory", Side: "onceward full", X: 1, Value: 9.02,
			Unit: "B/key", Against: "string <1>", Goal: "<= 10 B"},
	},
}

func TestHTMLIsWellFormed(t *testing.T) {
	var text bytes.Buffer
	require.NoError(t, html(&text, sample, []drawn{{Name: "n", Caption: "c < d", SVG: []byte(
		"<?xml version=\"1.0\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\"><g/></svg>")}}))
	elements := make(map[string]int)
	for dec := xml.NewDecoder(&text); ; {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		start, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		elements[start.Name.Local]++
		for _, attr := range start.Attr {
			assert.NotContains(t, []string{"src", "href"}, attr.Name.Local,
				"the page needs another file")
		}
	}
	assert.Equal(t, []int{1, 3, 1 + 3 + 2 + 2},
		[]int{elements["svg"], elements["table"], elements["tr"]})
}

func TestTable(t *testing.T) {
	assert.Equal(t, "Commit abc, 2 cores <&>; go-redis 9, Redis 7. Ratios are medians of "+
		"7 interleaved rounds (smallest to largest).\n"+`Left out: x & y.

| work | compared with | reached | goal | |
|---|---|---|---|---|
| batch \| 16 | raw | 2.00x (1.00x to 12.0x) | >= 0.85x (stretch 1x) | yes |
| bytes | string <1> | 9.02 B/key | <= 10 B | missed |
`, table(sample))
}

var consumers = harness.Results{
	Area: "kafka", Commit: "abc", Machine: "2 cores",
	Versions: map[string]string{"sarama": "1", "go-redis": "9", "redis": "7"},
	Rows: []harness.Row{
		{Name: "4 partitions", Workload: "w", Side: "adapter, full", Value: 80_000,
			Unit: "messages/s", Against: "Redis batches, full", AgainstValue: 100_000, Ratio: 0.81,
			Spread: [2]float64{0.7, 0.9}, Rounds: 5, Goal: ">= 0.8x (stretch 0.9x)", OK: true,
			Usage: harness.Usage{Allocs: 21, BrokerUS: 0.25}, Binds: "CPU of the client (...)"},
		{Name: "4 partitions", Workload: "w", Side: "bare sarama loop", Value: 1.5e6,
			Unit: "messages/s"},
	},
}

func TestTableOfConsumers(t *testing.T) {
	assert.Equal(t, "Commit abc, 2 cores; sarama 1, go-redis 9, Redis 7. Ratios are medians of "+
		`5 interleaved rounds (smallest to largest).

| work | who | messages/s | allocations per message | compared with | ratio | goal | |
|---|---|---|---|---|---|---|---|
`+"| 4 partitions | adapter, full | 80 k | 21.0 | Redis batches, full (100 k/s) "+
		"| 0.81x (0.70x to 0.90x) | >= 0.8x (stretch 0.9x) | yes |\n", table(consumers))
}

// The page shows what bounds a consumer, and no latencies, because none were measured.
func TestPageOfConsumers(t *testing.T) {
	var text bytes.Buffer
	require.NoError(t, html(&text, consumers, nil))
	for _, want := range []string{"broker CPU us", "bound by", "CPU of the client (...)",
		">0.25<"} {
		assert.Contains(t, text.String(), want)
	}
	assert.NotContains(t, text.String(), "p99")
}

func TestReplace(t *testing.T) {
	const begin = "<!-- table of bench/results/redis.json: make bench-table -->"
	put := func(page string) string {
		return string(replace([]byte(page), "table", "redis", "new\n"))
	}
	got := put("head\n" + begin + "\n\nold\n\n" + end + "\ntail\n")
	assert.Equal(t, "head\n"+begin+"\n\nnew\n\n"+end+"\ntail\n", got)
	assert.Equal(t, got, put(got), "a second run changes it")
	for _, bad := range []string{"no markers", begin + "\n no end", end} {
		assert.Error(t, must.Try(func() { put(bad) }), bad)
	}
}
