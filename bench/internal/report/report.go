// Package report turns a file of results into figures, a page, and the tables of the project's
// documents.
package report

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/onceward/onceward/bench/internal/chart"
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

// html writes a page that needs no other file. It is light or dark, as the reader's system is.
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

// inline returns an SVG that we have drawn, without the parts that only a separate file needs.
func inline(svg []byte) template.HTML {
	return template.HTML(svg[max(0, bytes.Index(svg, []byte("<svg"))):])
}

// figure is a drawing as figures.json describes it: lines over a parameter, or bars.
type figure struct {
	Area, Name, Family, Caption string
	chart.Lines                 // of bars only the title and X

	Unit  string // of the rows; empty for bars: any
	Sides []line `json:"lines"` // if they are not all those of the family
	// Bars has one bar for each side that is not in Without: its first row or, with At, its first
	// row at that parameter.
	Bars    bool
	At      *float64
	Without []string
}

// line is one side of a family.
type line struct {
	Family, Side string
	P50, P99     bool // its latency in milliseconds, instead of its value
	chart.Series
}

//go:embed figures.json
var figuresText []byte

var designs = func() (d struct {
	Figures []figure
	Styles  map[string]chart.Series // keep the look of a side the same in all figures
}) {
	must.Do(json.Unmarshal(figuresText, &d))
	return d
}()

var ours = regexp.MustCompile("^(onceward|adapter)")

type drawn struct {
	Name, Caption string
	SVG           []byte
}

// figures draws the figures of results, except empty ones.
func figures(r harness.Results) (all []drawn) {
	for _, f := range designs.Figures {
		if f.Area != r.Area {
			continue
		}
		draw := f.lines
		if f.Bars {
			draw = f.bars
		}
		if svg, err := draw(r); !errors.Is(err, chart.ErrEmpty) {
			must.Do(err)
			all = append(all, drawn{f.Name, f.Caption, svg})
		}
	}
	return all
}

func (f figure) lines(r harness.Results) ([]byte, error) {
	l := f.Lines
	l.Y = cmp.Or(f.Y, f.Unit)
	if len(f.Sides) == 0 {
		f.Sides = f.sides(r)
	}
	for _, side := range f.Sides {
		// A side with only one parameter is not a line.
		if s := side.of(r, f.Unit); len(s.Points) > 1 {
			l.Series = append(l.Series, s)
		}
	}
	return l.SVG()
}

// sides returns the sides of the family, in the order of the file.
func (f figure) sides(r harness.Results) (all []line) {
	for _, row := range (run{r}).Of(f.Family) {
		known := slices.ContainsFunc(all, func(l line) bool { return l.Side == row.Side })
		if row.Unit == f.Unit && !known {
			l := line{Family: f.Family, Side: row.Side, Series: designs.Styles[row.Side]}
			l.Name = plain(row.Side)
			all = append(all, l)
		}
	}
	return all
}

// plain returns a side's name without the part from ", which" on: only tables show that part.
func plain(side string) string {
	name, _, _ := strings.Cut(side, ", which")
	return name
}

// bars draws the first chosen row of each side.
func (f figure) bars(r harness.Results) ([]byte, error) {
	b := chart.Bars{Title: f.Title, XLabel: f.X}
	without := slices.Clone(f.Without)
	for _, row := range (run{r}).Of(f.Family) {
		if f.At != nil && row.X != *f.At || f.Unit != "" && row.Unit != f.Unit ||
			slices.Contains(without, row.Side) {
			continue
		}
		without = append(without, row.Side)
		bar := chart.Bar{Name: plain(row.Side), Value: row.Value, Color: 6}
		if f.Area == "sql" || ours.MatchString(bar.Name) {
			bar.Color = 0
		}
		b.Bars = append(b.Bars, bar)
	}
	return b.SVG()
}

func (l line) of(r harness.Results, unit string) chart.Series {
	for _, row := range (run{r}).Of(l.Family) {
		switch {
		case row.Side != l.Side:
		case l.P50 && row.P50Micros > 0:
			l.Add(row.X, row.P50Micros/1e3)
		case l.P99 && row.P99Micros > 0:
			l.Add(row.X, row.P99Micros/1e3)
		case !l.P50 && !l.P99 && row.Unit == unit:
			l.Add(row.X, row.Value)
		}
	}
	return l.Series
}

// The pages that have tables of results, relative to the folder docs. Benchmarks has a table for
// each area, Readme a row for each of five. The others are about the filter, about long runs under
// faults, and about other libraries.
const (
	Benchmarks = "evidence/benchmarks.md"
	Bloom      = "evidence/bloom.md"
	Faults     = "evidence/faults.md"
	Compare    = "compare.md"
	Readme     = "../README.md"
)

// Update returns a page of docs with new tables from a folder of results, which has these areas.
func Update(name string, page []byte, results string, areas ...string) (_ []byte, err error) {
	defer must.Catch(&err)
	from := folder(results)
	switch name {
	case Readme:
		page = replace(page, "headlines", "*", filled("headlines", from))
	case Compare:
		page = replace(page, "peers", "redis", filled("peers", from.run("redis")))
	case Bloom:
		bloom := from.run("bloom")
		for _, table := range []string{"answers", "rotation", "owned", "owned CPU", "owned load",
			"layered", "front", "goals that are missed"} {
			page = replace(page, table, "bloom", filled(table, bloom))
		}
	case Faults:
		var torture Torture
		err := harness.ReadJSON(from.file("torture"), &torture)
		if errors.Is(err, os.ErrNotExist) {
			break // there was no long run
		}
		must.Do(err)
		page = replace(page, "table", "torture", filled("torture", torture))
	default:
		for _, area := range areas {
			page = replace(page, "table", area, table(from.run(area).Results))
		}
	}
	return page, nil
}

const end = "<!-- end of table -->"

// replace returns the page with text between two markers: the line with "what of
// bench/results/area.json", and the line end.
func replace(page []byte, what, area, text string) []byte {
	begin := "<!-- " + what + " of bench/results/" + area + ".json: make bench-table -->"
	head, rest, ok := bytes.Cut(page, []byte(begin+"\n"))
	_, tail, closed := bytes.Cut(rest, []byte(end))
	must.True(ok && closed, "report: the page has no place for the table: %s ... %s", begin, end)
	return []byte(string(head) + begin + "\n\n" + text + "\n" + end + string(tail))
}

// Torture is results/torture.json: the counts of long runs under faults, written by their tests.
type Torture struct {
	Area, Commit, Date, Machine string
	Versions                    map[string]string
	Rows                        []TortureRow
}

// TortureRow is one scenario.
type TortureRow struct {
	Scenario, Store, Level, History string
	Porcupine                       string // its result for the histories of all keys
	Operations                      int    // in these histories
	Seed                            uint64
	Messages, Deliveries, Effects   int
	Lost, Stuck, Seconds            int
	Doubled                         int // without an explanation
	Stale                           int // accepted although their epoch was stale
	Deaths                          int // of processes, by SIGKILL
	SelfDuplicates                  int `json:"self_duplicates"`
	Faults, Explained               map[string]int
	OK                              bool
}

// Scenarios adds up the rows of each scenario.
func (t Torture) Scenarios() (all []TortureRow) {
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
	sums, more := r.counts(), o.counts()
	for i, sum := range sums {
		*sum += *more[i]
	}
	r.OK = r.OK && o.OK
	for name, n := range o.Faults {
		r.Faults[name] += n
	}
	for name, n := range o.Explained {
		r.Explained[name] += n
	}
}

func (r *TortureRow) counts() []*int {
	return []*int{&r.Messages, &r.Deliveries, &r.Effects, &r.Deaths, &r.Lost, &r.Doubled, &r.Stale,
		&r.Operations}
}
