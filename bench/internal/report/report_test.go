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
	resultsFile = "../../results/redis.json"
	readmeFile  = "../../../README.md"
)

// The README's figures are those of the newest run, and nobody types them.
func TestReadmeHasTheTable(t *testing.T) {
	r, err := harness.Read(resultsFile)
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(readmeFile)
	if err != nil {
		t.Fatal(err)
	}
	want, err := Replace(readme, r)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, readme) {
		t.Error("README.md does not have the table of bench/results/redis.json: make bench-table")
	}
	if !strings.Contains(string(want), "| 256 callers, new keys |") {
		t.Error("the table lacks what it is about")
	}
}

// The page and the figures that are checked in are those of the results that are.
func TestResultsAreRendered(t *testing.T) {
	r, err := harness.Read(resultsFile)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "redis.json")
	if err := Write(r, file); err != nil {
		t.Fatal(err)
	}
	kept, drawn := pageOf(t, filepath.Dir(resultsFile)), pageOf(t, filepath.Dir(file))
	if kept != drawn {
		t.Error("results/redis.html is not what results/redis.json gives: redisbench -render results/redis.json")
	}
	if n := len(figures(r)); n < 7 {
		t.Errorf("%d figures", n)
	}
	for _, f := range figures(r) {
		for _, ext := range []string{".svg", ".png"} {
			if _, err := os.Stat(filepath.Join(filepath.Dir(resultsFile), "redis", f.name+ext)); err != nil {
				t.Error(err)
			}
		}
	}
}

// pageOf returns the page in dir without the insides of its drawings: their last digits depend on
// the processor.
func pageOf(t *testing.T, dir string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "redis.html"))
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`(?s)<svg.*?</svg>`).ReplaceAllString(string(data), "<svg/>")
}

var sample = harness.Results{
	Area: "redis", Commit: "abc", Machine: "2 cores <&>", Versions: map[string]string{"go-redis": "9", "redis": "7", "go": "1"}, LeftOut: []string{"x & y"},
	Rows: []harness.Row{
		{Name: "batch | 16", Workload: "batch", Side: "onceward seen-only", X: 16, Value: 100, Unit: "keys/s", Against: "raw", AgainstValue: 50, Ratio: 2, Spread: [2]float64{1, 12}, Rounds: 7, Goal: ">= 0.85x (stretch 1x)", OK: true},
		{Name: "batch 64", Workload: "batch", Side: "onceward seen-only", X: 64, Value: 200, Unit: "keys/s"},
		{Name: "bytes", Workload: "memory", Side: "onceward seen-only", X: 1, Value: 9.02, Unit: "B/key", Against: "string <1>", Goal: "<= 10 B"},
		{Name: "hidden", Workload: "memory", Side: "onceward rich, 10 M remembered", X: 1, Value: 9, Unit: "B/key", Goal: "<= 10 B"},
	},
}

func TestHTMLIsWellFormed(t *testing.T) {
	var text bytes.Buffer
	drawn := []Drawn{{Name: "n", Caption: "c < d", SVG: []byte("<?xml version=\"1.0\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\"><g/></svg>")}}
	if err := HTML(&text, sample, drawn); err != nil {
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
					t.Errorf("<%s %s=%q>: the page needs another file", start.Name.Local, attr.Name.Local, attr.Value)
				}
			}
		}
	}
	if elements["svg"] != 1 || elements["table"] != 3 || elements["tr"] != 1+3+2+4 {
		t.Errorf("elements %v", elements)
	}
}

func TestTable(t *testing.T) {
	got := Table(sample)
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

func TestReplace(t *testing.T) {
	readme := []byte("head\n" + begin + "\n\nold\n\n" + end + "\ntail\n")
	got, err := Replace(readme, sample)
	if err != nil {
		t.Fatal(err)
	}
	if text := string(got); !strings.HasPrefix(text, "head\n"+begin+"\n\nCommit") || !strings.HasSuffix(text, "|\n\n"+end+"\ntail\n") || strings.Contains(text, "old") {
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
