package chart

import (
	"fmt"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Series is one line of a figure.
type Series struct {
	Name   string
	Points plotter.XYs
	Color  int // of the palette
	Bold   bool
	Dashed bool
}

// Lines is a figure of lines over a parameter.
type Lines struct {
	Title, XLabel, YLabel string
	LogX, LogY            bool
	// Plain draws many points: no marks, and round numbers below instead of every parameter.
	Plain bool
	// Even puts the parameters at equal distances, whatever they are.
	Even   bool
	Series []Series
}

// Draw returns the figure. Series without points are left out; without any it is an error.
func (l Lines) Draw() (*Figure, error) {
	p := newPlot(l.Title, l.XLabel, l.YLabel)
	legend := newLegend()
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = gridLine, gridLine
	p.Add(grid)
	var xs []float64
	low, high := math.Inf(1), 0.0
	for _, s := range l.Series {
		if len(s.Points) == 0 {
			continue
		}
		for _, point := range s.Points {
			xs = append(xs, point.X)
			low, high = min(low, point.Y), max(high, point.Y)
		}
	}
	if len(xs) == 0 {
		return nil, fmt.Errorf("chart: %s: there is nothing to draw", l.Title)
	}
	slices.Sort(xs)
	xs = slices.Compact(xs)
	for _, s := range l.Series {
		if len(s.Points) == 0 {
			continue
		}
		if l.Even {
			s.Points = evenly(s.Points, xs)
		}
		line, marks, err := s.draw()
		if err != nil {
			return nil, fmt.Errorf("chart: %s: %w", l.Title, err)
		}
		if l.Plain {
			p.Add(line)
			legend.Add(s.Name, line)
			continue
		}
		p.Add(line, marks)
		legend.Add(s.Name, line, marks)
	}
	l.scale(p, xs, low, high)
	return &Figure{plot: p, legend: &legend}, nil
}

// scale lays the axes over the parameters and the values from low to high.
func (l Lines) scale(p *plot.Plot, xs []float64, low, high float64) {
	p.X.Tick.Marker = fixedTicks{xs, l.Even}
	if l.Plain {
		p.X.Tick.Marker = numberTicks{}
	}
	if l.LogX && xs[0] > 0 {
		p.X.Scale = logScale{}
	}
	if l.LogY {
		p.Y.Scale, p.Y.Tick.Marker = logScale{}, logTicks{}
		p.Y.Min, p.Y.Max = low/1.25, high*1.25
		return
	}
	p.Y.Min, p.Y.Max, p.Y.Tick.Marker = 0, high*1.08, numberTicks{}
}

// evenly returns points with the index of their parameter in place of it.
func evenly(points plotter.XYs, xs []float64) plotter.XYs {
	moved := make(plotter.XYs, len(points))
	for i, point := range points {
		at, _ := slices.BinarySearch(xs, point.X)
		moved[i] = plotter.XY{X: float64(at), Y: point.Y}
	}
	return moved
}

func (s Series) draw() (*plotter.Line, *plotter.Scatter, error) {
	line, marks, err := plotter.NewLinePoints(s.Points)
	if err != nil {
		return nil, nil, err
	}
	var c color.Color = palette[s.Color%len(palette)]
	line.LineStyle = draw.LineStyle{Color: c, Width: vg.Points(1.6)}
	marks.GlyphStyle = draw.GlyphStyle{Color: c, Radius: vg.Points(2.8), Shape: draw.CircleGlyph{}}
	if s.Bold {
		line.Width, marks.Radius = vg.Points(3), vg.Points(4)
	}
	if s.Dashed {
		line.Dashes, marks.Shape = dashed, draw.RingGlyph{}
	}
	return line, marks, nil
}

// logScale is plot.LogScale without its panic: what is not positive lies at the edge.
type logScale struct{}

// Normalize implements [plot.Normalizer].
func (logScale) Normalize(low, high, x float64) float64 {
	if low <= 0 || x <= 0 || high <= low {
		return 0
	}
	return math.Log(x/low) / math.Log(high/low)
}
