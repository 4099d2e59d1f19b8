package report

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What a long run has written is read, and stands in docs/benchmarks.md, which has the place for
// it.
func TestTortureIsRendered(t *testing.T) {
	want := Torture{
		Area: "torture", Commit: "abc", Machine: "two processors",
		Versions: map[string]string{"redis": "7", "go": "1"},
		Rows: []TortureRow{
			{
				Scenario: "kills", Store: "redis", History: "20m0s", Messages: 1000,
				Deliveries: 2500, Effects: 1003,
				Faults: map[string]int{"stops": 2, "kills": 9, "none": 0},
				Lost:   4, Doubled: 5, Stale: 6, Deaths: 7, Explained: map[string]int{"killed": 3},
			},
			{
				Scenario: "X1", Store: "redis", Porcupine: "ok", Operations: 10, Messages: 1,
				Deliveries: 2, Effects: 3, Faults: map[string]int{"a": 1}, Deaths: 8, OK: true,
			},
			{
				Scenario: "X1", Store: "sql", Porcupine: "illegal", Operations: 20, Messages: 10,
				Deliveries: 20, Effects: 30,
				Faults: map[string]int{"a": 1, "b": 2}, Explained: map[string]int{"died": 1},
				Lost: 1, Doubled: 2, Stale: 3, Deaths: 9,
			},
		},
	}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "torture.json")
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := ReadTorture(name)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(pageFile)
	if err != nil {
		t.Fatal(err)
	}
	page, err = got.Replace(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"| kills; redis | 1000 | 2500 | 1003 | 7 | kills 9, stops 2 | 4 | 5 | 6 | killed 3 | 20m0s | failed |\n",
		"| X1; 2 stores | 11 | 22 | 33 | 17 | a 2, b 2 | 1 | 2 | 3 | died 1 | ok or illegal, 30 operations | failed |\n", "Commit abc, two processors; go 1, redis 7.\n",
	} {
		if !strings.Contains(string(page), line) {
			t.Errorf("the page lacks %q", line)
		}
	}
	if again, err := got.Replace(page); err != nil || string(again) != string(page) {
		t.Errorf("a second time it is another page: %v", err)
	}
}

// The page's table is that of the newest run.
func TestPageHasTheTableOfTorture(t *testing.T) {
	all, err := ReadTorture(resultsFile("torture"))
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(pageFile)
	if err != nil {
		t.Fatal(err)
	}
	if want, err := all.Replace(page); err != nil || string(want) != string(page) {
		t.Errorf("docs/benchmarks.md does not have the table of %s: make bench-table; %v",
			resultsFile("torture"), err)
	}
}

// A field that is not known is an error: it would be left out of the table.
func TestTortureIsReadWhole(t *testing.T) {
	name := filepath.Join(t.TempDir(), "torture.json")
	if err := os.WriteFile(name, []byte(`{"area": "torture", "rows": [{"loose": 1}]}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadTorture(name); err == nil || !strings.Contains(err.Error(), "loose") {
		t.Errorf("it is read, with %v", err)
	}
}
