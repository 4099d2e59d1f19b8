// Package report turns a file of results into figures, a page to read and the tables of the
// project's documents.
package report

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"html/template"
	"io"
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

// inline is an SVG, drawn by us, without what only a file of its own has.
func inline(svg []byte) template.HTML {
	return template.HTML(svg[max(0, bytes.Index(svg, []byte("<svg"))):])
}

// figure is a drawing to be, as figures.json has it: lines over a parameter, or bars.
type figure struct {
	Area, Name, Family, Caption string
	chart.Lines                 // of bars the title and X alone

	Unit  string // of the rows; of bars empty: any
	Sides []line `json:"lines"` // where they are not those of the family
	// Bars has one for each side but those of Without: its first row, or its first one At a
	// parameter.
	Bars    bool
	At      *float64
	Without []string
}

// line is a side of a family.
type line struct {
	Family, Side string
	P50, P99     bool // its latency in milliseconds, and not its value
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

// figures are the drawings of results that have something to show.
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
		// A side of one parameter only is not a line.
		if s := side.of(r, f.Unit); len(s.Points) > 1 {
			l.Series = append(l.Series, s)
		}
	}
	return l.SVG()
}

// sides are those of the family, in the order of the file.
func (f figure) sides(r harness.Results) (all []line) {
	for _, row := range (run{r}).Of(f.Family) {
		known := slices.ContainsFunc(all, func(l line) bool { return l.Side == row.Side })
		if row.Unit == f.Unit && !known {
			l := line{Family: f.Family, Side: row.Side, Series: designs.Styles[row.Side]}
			l.Name = row.Side
			all = append(all, l)
		}
	}
	return all
}

// bars are the first rows of each side among those that are chosen. The part of a
// side's name from ", which" on is for tables.
func (f figure) bars(r harness.Results) ([]byte, error) {
	b := chart.Bars{Title: f.Title, XLabel: f.X}
	without := slices.Clone(f.Without)
	for _, row := range (run{r}).Of(f.Family) {
		if f.At != nil && row.X != *f.At || f.Unit != "" && row.Unit != f.Unit ||
			slices.Contains(without, row.Side) {
			continue
		}
		without = append(without, row.Side)
		bar := chart.Bar{Value: row.Value, Color: 6}
		bar.Name, _, _ = strings.Cut(row.Side, ", which")
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
