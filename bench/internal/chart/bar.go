package chart

import (
	"fmt"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Bar is one bar of a figure.
type Bar struct {
	Name  string
	Value float64
	Color int // of the palette
}

// Bars is a figure of horizontal bars, the first at the top, each with its value.
type Bars struct {
	Title, XLabel string
	Bars          []Bar
}

// Draw returns the figure; without bars it is an error.
func (b Bars) Draw() (*Figure, error) {
	if len(b.Bars) == 0 {
		return nil, fmt.Errorf("chart: %s: there is nothing to draw", b.Title)
	}
	p := newPlot(b.Title, b.XLabel, "")
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = gridLine, nil
	p.Add(grid)
	most := 0.0
	names := make([]string, len(b.Bars))
	labels := plotter.XYLabels{}
	for i, bar := range b.Bars {
		row := len(b.Bars) - 1 - i
		names[row] = bar.Name
		chart, err := plotter.NewBarChart(plotter.Values{bar.Value}, vg.Points(20))
		if err != nil {
			return nil, fmt.Errorf("chart: %s: %w", b.Title, err)
		}
		chart.Horizontal, chart.XMin = true, float64(row)
		chart.Color, chart.LineStyle.Width = palette[bar.Color%len(palette)], 0
		p.Add(chart)
		labels.XYs = append(labels.XYs, plotter.XY{X: bar.Value, Y: float64(row)})
		labels.Labels = append(labels.Labels, " "+short(bar.Value))
		most = max(most, bar.Value)
	}
	values, err := plotter.NewLabels(labels)
	if err != nil {
		return nil, fmt.Errorf("chart: %s: %w", b.Title, err)
	}
	for i := range values.TextStyle {
		values.TextStyle[i].Font, values.TextStyle[i].Color, values.TextStyle[i].YAlign = sans(11), ink, draw.YCenter
	}
	values.Offset.Y = vg.Points(2)
	p.Add(values)
	p.NominalY(names...)
	p.Y.Padding, p.Y.Min, p.Y.Max = 0, -0.6, float64(len(b.Bars))-0.4
	p.X.Min, p.X.Max, p.X.Tick.Marker = 0, most*1.15, numberTicks{}
	return &Figure{plot: p, height: vg.Points(110 + 32*float64(len(b.Bars)))}, nil
}
