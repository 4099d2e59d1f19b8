package report

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/onceward/onceward/bench/internal/chart"
	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
)

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

var designs = readDesigns()

func readDesigns() (d struct {
	Figures []figure
	Styles  map[string]chart.Series // keep the look of a side the same in all figures
}) {
	must.Do(json.Unmarshal(figuresText, &d))
	return d
}

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
	for _, side := range f.Sides {
		l.Series = append(l.Series, side.of(r, f.Unit))
	}
	if len(f.Sides) == 0 {
		l.Series = sides(r, f.Family, f.Unit)
	}
	// A side of one parameter only is no line.
	l.Series = slices.DeleteFunc(l.Series, func(s chart.Series) bool { return len(s.Points) < 2 })
	return l.SVG()
}

// bars are the first rows of each side among those that are chosen. What follows ", which" in a
// side's name is for tables.
func (f figure) bars(r harness.Results) ([]byte, error) {
	b := chart.Bars{Title: f.Title, XLabel: f.X}
	without := slices.Clone(f.Without)
	for _, row := range (run{r}).Of(f.Family) {
		if f.At != nil && row.X != *f.At || f.Unit != "" && row.Unit != f.Unit ||
			slices.Contains(without, row.Side) {
			continue
		}
		without = append(without, row.Side)
		name, _, _ := strings.Cut(row.Side, ", which")
		bar := chart.Bar{Name: name, Value: row.Value, Color: 6}
		if f.Area == "sql" || strings.HasPrefix(name, "onceward") ||
			strings.HasPrefix(name, "adapter") {
			bar.Color = 0
		}
		b.Bars = append(b.Bars, bar)
	}
	return b.SVG()
}

// sides are the lines of a family, one per side, in the order of the file.
func sides(r harness.Results, workload, unit string) (series []chart.Series) {
	for _, row := range (run{r}).Of(workload) {
		if row.Unit != unit {
			continue
		}
		i := slices.IndexFunc(series, func(s chart.Series) bool { return s.Name == row.Side })
		if i < 0 {
			s := designs.Styles[row.Side]
			s.Name = row.Side
			i, series = len(series), append(series, s)
		}
		series[i].Add(row.X, row.Value)
	}
	return series
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
