// Package report turns a file of results into figures, a page to read and the tables of the
// project's documents.
package report

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
)

// Write draws the figures of results next to their file: for results/redis.json the folder
// results/redis and the page results/redis.html.
func Write(results harness.Results, file string) (err error) {
	defer must.Catch(&err)
	base := strings.TrimSuffix(file, filepath.Ext(file))
	must.Do(os.MkdirAll(base, 0o755))
	drawings := figures(results)
	for _, f := range drawings {
		must.Do(os.WriteFile(filepath.Join(base, f.Name+".svg"), f.SVG, 0o644))
	}
	var page bytes.Buffer
	must.Do(html(&page, results, drawings))
	return os.WriteFile(base+".html", page.Bytes(), 0o644)
}

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"number": number, "ratio": ratio, "svg": inline, "versions": listed[string], "micros": micros,
	"rounds": rounds,
}).Parse(pageText))

type section struct {
	Workload string
	Rows     []harness.Row
}

// html writes a page that needs no other file. It is light or dark as the reader's system is.
func html(w io.Writer, r harness.Results, figures []drawn) error {
	var sections []section
	for _, row := range r.Rows {
		if n := len(sections); n == 0 || sections[n-1].Workload != row.Workload {
			sections = append(sections, section{Workload: row.Workload})
		}
		last := &sections[len(sections)-1]
		last.Rows = append(last.Rows, row)
	}
	return page.Execute(w, map[string]any{
		"Results": run{r}, "Reached": len(run{r}.Goals()) - len(run{r}.Missed()),
		"Sections": sections, "Figures": figures, "Brokers": r.Area == "kafka",
	})
}

// inline is an SVG without what only a file of its own has.
func inline(svg []byte) template.HTML {
	if i := bytes.Index(svg, []byte("<svg")); i > 0 {
		svg = svg[i:]
	}
	return template.HTML(svg) // drawn by us
}

// Torture is results/torture.json: what long runs under faults have counted, written by the
// tests that have them.
type Torture struct {
	Area     string            `json:"area"`
	Commit   string            `json:"commit"`
	Date     string            `json:"date"`
	Machine  string            `json:"machine"`
	Versions map[string]string `json:"versions"`
	Rows     []TortureRow      `json:"rows"`
}

// TortureRow is one scenario.
type TortureRow struct {
	Scenario       string         `json:"scenario"`
	Store          string         `json:"store"`
	Level          string         `json:"level"`
	Seed           uint64         `json:"seed"`
	Messages       int            `json:"messages"`
	Deliveries     int            `json:"deliveries"`
	Effects        int            `json:"effects"`
	Faults         map[string]int `json:"faults"`
	Lost           int            `json:"lost"`
	Doubled        int            `json:"doubled"` // without a reason
	Stale          int            `json:"stale"`   // turns accepted from a stale epoch
	Explained      map[string]int `json:"explained"`
	SelfDuplicates int            `json:"self_duplicates"`
	Stuck          int            `json:"stuck"`
	History        string         `json:"history"`
	Porcupine      string         `json:"porcupine"`  // its status on the histories of all keys
	Operations     int            `json:"operations"` // of these
	Deaths         int            `json:"deaths"`     // of processes, by SIGKILL
	Seconds        int            `json:"seconds"`
	OK             bool           `json:"ok"`
}

// ReadTorture reads a file of them.
func ReadTorture(path string) (t Torture, err error) {
	err = harness.ReadJSON(path, &t)
	return t, err
}

// Replace returns docs/benchmarks.md with the table between its markers: a line per scenario.
func (t Torture) Replace(page []byte) ([]byte, error) {
	head := fmt.Sprintf("Commit %s, %s; %s.\n\n", t.Commit, t.Machine, cell(listed(t.Versions)))
	return replace(page, "table", t.Area, head+filled("torture", t.scenarios()))
}

// Status says whether what was promised held.
func (r TortureRow) Status() string {
	if r.OK {
		return "yes"
	}
	return "failed"
}

func (t Torture) scenarios() (all []TortureRow) {
	byName := map[string][]TortureRow{}
	for _, r := range t.Rows {
		byName[r.Scenario] = append(byName[r.Scenario], r)
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		stores := byName[name]
		sum := TortureRow{OK: true, Faults: map[string]int{}, Explained: map[string]int{}}
		var histories []string
		for _, r := range stores {
			sum.add(r)
			history := cmp.Or(r.Porcupine, r.History)
			if !slices.Contains(histories, history) {
				histories = append(histories, history)
			}
		}
		switch sum.Scenario = name; {
		case len(stores) > 1:
			sum.Scenario += fmt.Sprintf("; %d stores", len(stores))
		case stores[0].Store != "":
			sum.Scenario += "; " + stores[0].Store
		}
		if sum.History = strings.Join(histories, " or "); sum.Operations > 0 {
			sum.History += fmt.Sprintf(", %d operations", sum.Operations)
		}
		all = append(all, sum)
	}
	return all
}

func (r *TortureRow) add(o TortureRow) {
	r.Messages += o.Messages
	r.Deliveries += o.Deliveries
	r.Effects += o.Effects
	r.Deaths += o.Deaths
	r.Lost += o.Lost
	r.Doubled += o.Doubled
	r.Stale += o.Stale
	r.Operations += o.Operations
	r.OK = r.OK && o.OK
	for name, n := range o.Faults {
		r.Faults[name] += n
	}
	for name, n := range o.Explained {
		r.Explained[name] += n
	}
}
