package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/onceward/onceward/bench/internal/harness"
)

const (
	resultsDir = "../../results"
	pageFile   = "../../../docs/benchmarks.md"
)

// areas are the results that are checked in, with how many figures they give and a line of
// their table.
var areas = map[string]struct {
	figures int
	line    string
}{
	"redis":  {7, "| 256 callers, new keys |"},
	"kafka":  {3, "| 4 partitions, 100 B, 0 % duplicates | adapter, rich |"},
	"bloom":  {3, "| memory, bytes per id of the window |"},
	"outbox": {2, "| wake-up by polling, median |"},
	"retry":  {2, "| calls of the last of four layers, three attempts in each | header ignored | 3.00 calls |"},
	"http":   {2, "| new request, 1 connection | onceward, Redis |"},
	"sql":    {6, "| PostgreSQL, 8 connections, batch 256 | record + effect, handler per batch |"},
}

func resultsFile(area string) string { return filepath.Join(resultsDir, area+".json") }

// The page's figures are those of the newest run, and nobody types them.
func TestPageHasTheTables(t *testing.T) {
	page, err := os.ReadFile(pageFile)
	if err != nil {
		t.Fatal(err)
	}
	for area, expected := range areas {
		r, err := harness.Read(resultsFile(area))
		if err != nil {
			t.Fatal(err)
		}
		want, err := Replace(page, r)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(want, page) {
			t.Errorf("docs/benchmarks.md does not have the table of %s: make bench-table",
				resultsFile(area))
		}
		if !strings.Contains(string(want), expected.line) {
			t.Errorf("%s: the table lacks what it is about", area)
		}
	}
}

// The page and the figures that are checked in are those of the results that are.
func TestResultsAreRendered(t *testing.T) {
	for area, expected := range areas {
		r, err := harness.Read(resultsFile(area))
		if err != nil {
			t.Fatal(err)
		}
		if r.Area != area {
			t.Errorf("%s is of the area %q", resultsFile(area), r.Area)
		}
		var text bytes.Buffer
		all, err := draw(r)
		if err := errors.Join(err, html(&text, r, all)); err != nil {
			t.Fatal(err)
		}
		if pageOf(t, resultsDir, area) != withoutDrawings(text.Bytes()) {
			t.Errorf("results/%s.html is not what results/%s.json gives: bench render results/%s.json", area, area, area)
		}
		if n := len(figures(r)); n < expected.figures {
			t.Errorf("%s: %d figures", area, n)
		}
		for _, f := range figures(r) {
			if _, err := os.Stat(filepath.Join(resultsDir, area, f.name+".svg")); err != nil {
				t.Error(err)
			}
		}
	}
}

// Write makes the page and every figure.
func TestWrite(t *testing.T) {
	const area = "outbox"
	r, err := harness.Read(resultsFile(area))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := Write(r, filepath.Join(dir, area+".json")); err != nil {
		t.Fatal(err)
	}
	if pageOf(t, dir, area) != pageOf(t, resultsDir, area) {
		t.Error("the page is another one")
	}
	for _, f := range figures(r) {
		if info, err := os.Stat(filepath.Join(dir, area, f.name+".svg")); err != nil ||
			info.Size() == 0 {
			t.Errorf("%s: %v", f.name, err)
		}
	}
}

func pageOf(t *testing.T, dir, area string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, area+".html"))
	if err != nil {
		t.Fatal(err)
	}
	return withoutDrawings(data)
}

// withoutDrawings leaves out the insides of a page's drawings: their last digits depend on the
// processor.
func withoutDrawings(page []byte) string {
	return regexp.MustCompile(`(?s)<svg.*?</svg>`).ReplaceAllString(string(page), "<svg/>")
}

var sample = harness.Results{
	Area: "redis", Commit: "abc", Machine: "2 cores <&>",
	Versions: map[string]string{"go-redis": "9", "redis": "7", "go": "1"},
	LeftOut:  []string{"x & y"},
	Rows: []harness.Row{
		{Name: "batch | 16", Workload: "batch", Side: "onceward seen-only", X: 16, Value: 100,
			Unit: "keys/s", Against: "raw", AgainstValue: 50, Ratio: 2, Spread: [2]float64{1, 12},
			Rounds: 7, Goal: ">= 0.85x (stretch 1x)", OK: true},
		{Name: "batch 64", Workload: "batch", Side: "onceward seen-only", X: 64, Value: 200,
			Unit: "keys/s"},
		{Name: "bytes", Workload: "memory", Side: "onceward seen-only", X: 1, Value: 9.02,
			Unit: "B/key", Against: "string <1>", Goal: "<= 10 B"},
		{Name: "hidden", Workload: "memory", Side: "onceward rich, 10 M remembered", X: 1,
			Value: 9, Unit: "B/key", Goal: "<= 10 B"},
	},
}

func TestHTMLIsWellFormed(t *testing.T) {
	var text bytes.Buffer
	figures := []drawn{{Name: "n", Caption: "c < d",
		SVG: []byte("<?xml version=\"1.0\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\"><g/></svg>")}}
	if err := html(&text, sample, figures); err != nil {
		t.Fatal(err)
	}
	elements := make(map[string]int)
	dec := xml.NewDecoder(&text)
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if start, ok := token.(xml.StartElement); ok {
			elements[start.Name.Local]++
			for _, attr := range start.Attr {
				if attr.Name.Local == "src" || attr.Name.Local == "href" {
					t.Errorf("<%s %s=%q>: the page needs another file", start.Name.Local,
						attr.Name.Local, attr.Value)
				}
			}
		}
	}
	if elements["svg"] != 1 || elements["table"] != 3 || elements["tr"] != 1+3+2+4 {
		t.Errorf("elements %v", elements)
	}
}

func TestTable(t *testing.T) {
	got := table(sample)
	want := `Commit abc, 2 cores <&>; go-redis 9, Redis 7. Ratios are medians of 7 interleaved rounds (smallest to largest).
Left out: x & y.

| work | beside | reached | goal | |
|---|---|---|---|---|
| batch \| 16 | raw | 2.00x (1.00x to 12.0x) | >= 0.85x (stretch 1x) | yes |
| bytes | string <1> | 9.02 B/key | <= 10 B | missed |
`
	if got != want {
		t.Errorf("table\n%s\nwant\n%s", got, want)
	}
}

var consumed = harness.Results{
	Area: "kafka", Commit: "abc", Machine: "2 cores",
	Versions: map[string]string{"sarama": "1", "go-redis": "9", "redis": "7"},
	Rows: []harness.Row{
		{Name: "4 partitions", Workload: "w", Side: "adapter, rich", Value: 80_000,
			Unit: "messages/s", Against: "Redis batches, rich", AgainstValue: 100_000, Ratio: 0.81,
			Spread: [2]float64{0.7, 0.9}, Rounds: 5, Goal: ">= 0.8x (stretch 0.9x)", OK: true,
			Allocs: 21, BrokerUS: 0.25, Binds: "CPU of the client (...)"},
		{Name: "4 partitions", Workload: "w", Side: "bare sarama loop", Value: 1.5e6,
			Unit: "messages/s"},
	},
}

func TestTableOfConsumers(t *testing.T) {
	got := table(consumed)
	want := `Commit abc, 2 cores; sarama 1, go-redis 9, Redis 7. Ratios are medians of 5 interleaved rounds (smallest to largest).

| work | who | messages/s | allocations per message | beside | ratio | goal | |
|---|---|---|---|---|---|---|---|
| 4 partitions | adapter, rich | 80 k | 21.0 | Redis batches, rich (100 k/s) | 0.81x (0.70x to 0.90x) | >= 0.8x (stretch 0.9x) | yes |
`
	if got != want {
		t.Errorf("table\n%s\nwant\n%s", got, want)
	}
}

// What bounds a consumer stands on the page.
func TestPageOfConsumers(t *testing.T) {
	var text bytes.Buffer
	if err := html(&text, consumed, nil); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"broker CPU us", "bound by", "CPU of the client (...)",
		">0.25<"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(text.String(), "p99") {
		t.Error("the page has latencies, which nobody measured")
	}
}

func TestReplace(t *testing.T) {
	const begin = "<!-- table of bench/results/redis.json: make bench-table -->"
	page := []byte("head\n" + begin + "\n\nold\n\n" + end + "\ntail\n")
	got, err := Replace(page, sample)
	if err != nil {
		t.Fatal(err)
	}
	if text := string(got); !strings.HasPrefix(text, "head\n"+begin+"\n\nCommit") ||
		!strings.HasSuffix(text, "|\n\n"+end+"\ntail\n") || strings.Contains(text, "old") {
		t.Errorf("got\n%s", text)
	}
	again, err := Replace(got, sample)
	if err != nil || !bytes.Equal(again, got) {
		t.Errorf("a second time it changes: %v\n%s", err, again)
	}
	for _, bad := range []string{"no markers", begin + "\n no end", end} {
		if _, err := Replace([]byte(bad), sample); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}
