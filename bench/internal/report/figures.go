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
	Area, Name, Family, Title, Caption string

	X, Y                    string // labels; of bars X alone
	Unit                    string // of the rows; of bars empty: any
	LogX, LogY, Even, Plain bool
	// Series are the lines, where they are not a side of the family each: "latencies" or "streams".
	Series string
	// Bars has one for each side but those of Without: its first row, or its first one At a
	// parameter.
	Bars    bool
	At      *float64
	Without []string
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
	l := chart.Lines{Title: f.Title, XLabel: f.X, YLabel: cmp.Or(f.Y, f.Unit), LogX: f.LogX,
		LogY: f.LogY, Plain: f.Plain, Even: f.Even}
	switch f.Series {
	case "latencies":
		l.Series = latencies(r)
	case "streams":
		l.Series = streams(r)
	default:
		l.Series = sides(r, f.Family, f.Unit)
	}
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
	// A side of one parameter only is no line.
	return slices.DeleteFunc(series, func(s chart.Series) bool { return len(s.Points) < 2 })
}

func latencies(r harness.Results) (series []chart.Series) {
	for _, side := range []string{"onceward seen-only", "onceward full", "plain go-redis",
		"rueidis, MaxFlushDelay 20µs"} {
		p50 := designs.Styles[side]
		p99 := p50
		p50.Name, p99.Name, p99.Dashed, p99.Bold = side, side+", p99", true, false
		for _, row := range (run{r}).Of("callers") {
			if row.Side == side && row.P50Micros > 0 {
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
		for _, s := range sides(r, m[0], "keys/s") {
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
