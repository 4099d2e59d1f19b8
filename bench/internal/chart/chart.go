// Package chart draws the figures of a report as SVG: light background, legend
// next to the lines, colors that everybody can tell apart.
package chart

import (
	"bytes"
	"cmp"
	"fmt"
	"image/color"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Series is one line of a figure.
type Series struct {
	Name   string
	Points plotter.XYs
	Color  int // of the palette
	Bold   bool
	Dashed bool
}

// Add keeps points sorted and takes the first of every x.
func (s *Series) Add(x, y float64) {
	i, found := slices.BinarySearchFunc(s.Points, x, func(p plotter.XY, x float64) int {
		return cmp.Compare(p.X, x)
	})
	if !found {
		s.Points = slices.Insert(s.Points, i, plotter.XY{X: x, Y: y})
	}
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

// Empty reports whether no series is a line.
func (l Lines) Empty() bool {
	return !slices.ContainsFunc(l.Series, func(s Series) bool { return len(s.Points) > 1 })
}

// SVG draws the figure. Series without points are left out; without any it is an error.
func (l Lines) SVG() ([]byte, error) {
	l.Series = slices.DeleteFunc(slices.Clone(l.Series), func(s Series) bool {
		return len(s.Points) == 0
	})
	var xs []float64
	low, high := math.Inf(1), 0.0
	for _, s := range l.Series {
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
	p, legend := newPlot(l.Title, l.XLabel, l.YLabel), newLegend()
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = gridLine, gridLine
	p.Add(grid)
	for _, s := range l.Series {
		if l.Even {
			s.Points = evenly(s.Points, xs)
		}
		line, marks, err := s.draw()
		if err != nil {
			return nil, fmt.Errorf("chart: %s: %w", l.Title, err)
		}
		p.Add(line)
		if l.Plain {
			legend.Add(s.Name, line)
			continue
		}
		p.Add(marks)
		legend.Add(s.Name, line, marks)
	}
	l.scale(p, xs, low, high)
	return save(p, &legend, height)
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

// evenly returns points with the index of their parameter instead of it.
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
		line.Dashes, marks.Shape = []vg.Length{vg.Points(5), vg.Points(4)}, draw.RingGlyph{}
	}
	return line, marks, nil
}

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

// Empty reports whether there is nothing to compare.
func (b Bars) Empty() bool { return len(b.Bars) < 2 }

// SVG draws the figure; without bars it is an error.
func (b Bars) SVG() ([]byte, error) {
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
		values.TextStyle[i].Font, values.TextStyle[i].Color, values.TextStyle[i].YAlign = sans(11),
			ink, draw.YCenter
	}
	values.Offset.Y = vg.Points(2)
	p.Add(values)
	p.NominalY(names...)
	p.Y.Padding, p.Y.Min, p.Y.Max = 0, -0.6, float64(len(b.Bars))-0.4
	p.X.Min, p.X.Max, p.X.Tick.Marker = 0, most*1.15, numberTicks{}
	return save(p, nil, vg.Points(110+32*float64(len(b.Bars))))
}

// Measures of a figure. The unit of vg.Length is a point.
const (
	width       vg.Length = 760
	height      vg.Length = 380
	legendWidth vg.Length = 205
	margin      vg.Length = 12
)

// palette is Okabe and Ito's, which people with any color vision can tell apart.
var palette = []color.RGBA{
	{0x00, 0x72, 0xB2, 0xff}, {0xE6, 0x9F, 0x00, 0xff}, {0x00, 0x9E, 0x73, 0xff},
	{0xD5, 0x5E, 0x00, 0xff},
	{0xCC, 0x79, 0xA7, 0xff}, {0x56, 0xB4, 0xE9, 0xff}, {0x60, 0x60, 0x60, 0xff},
	{0x00, 0x00, 0x00, 0xff},
}

var (
	ink      = color.RGBA{0x22, 0x22, 0x22, 0xff}
	gridLine = color.RGBA{0xe4, 0xe4, 0xe4, 0xff}
)

func sans(size font.Length) font.Font {
	return font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
}

// newPlot is an empty plot in our style.
func newPlot(title, xLabel, yLabel string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = color.White
	p.Title.Text = title
	p.Title.TextStyle.Font = sans(15)
	p.Title.TextStyle.Color = ink
	p.Title.Padding = vg.Points(10)
	for axis, label := range map[*plot.Axis]string{&p.X: xLabel, &p.Y: yLabel} {
		axis.Label.Text = label
		axis.Label.TextStyle.Font, axis.Tick.Label.Font = sans(12), sans(11)
		axis.Label.TextStyle.Color, axis.Tick.Label.Color, axis.Color, axis.Tick.Color = ink,
			ink, ink, ink
		axis.Label.Padding, axis.Padding = vg.Points(4), vg.Points(6)
	}
	return p
}

// newLegend is drawn next to the plot, not over its lines.
func newLegend() plot.Legend {
	l := plot.NewLegend()
	l.TextStyle.Font = sans(11)
	l.TextStyle.Color = ink
	l.Top, l.Left = true, true
	l.Padding = vg.Points(3)
	l.ThumbnailWidth = vg.Points(22)
	l.YPosition = draw.PosCenter
	return l
}

// save draws a plot and its legend, if it has one.
func save(p *plot.Plot, legend *plot.Legend, h vg.Length) ([]byte, error) {
	svg := vgsvg.New(width, h)
	c := draw.New(svg)
	c.SetColor(color.White)
	c.Fill(c.Path())
	inner := draw.Crop(c, margin, -margin, margin, -margin)
	if legend == nil {
		p.Draw(inner)
	} else {
		p.Draw(draw.Crop(inner, 0, -legendWidth-margin, 0, 0))
		legend.Draw(draw.Crop(inner, width-2*margin-legendWidth, 0, 0, -vg.Points(34)))
	}
	var out bytes.Buffer
	if _, err := svg.WriteTo(&out); err != nil {
		return nil, fmt.Errorf("chart: %w", err)
	}
	return out.Bytes(), nil
}

// short is a number as an axis shows it: 20 k, 1.5 M.
func short(v float64) string {
	unit := ""
	switch {
	case math.Abs(v) >= 1e6:
		v, unit = v/1e6, " M"
	case math.Abs(v) >= 1e3:
		v, unit = v/1e3, " k"
	}
	return strconv.FormatFloat(v, 'g', 3, 64) + unit
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

// fixedTicks are labeled at these places only.
type fixedTicks struct {
	values []float64
	even   bool // at their indices
}

// Ticks implements [plot.Ticker].
func (f fixedTicks) Ticks(float64, float64) []plot.Tick {
	ticks := make([]plot.Tick, len(f.values))
	for i, v := range f.values {
		ticks[i] = plot.Tick{Value: v, Label: fmt.Sprintf("%g", v)}
		if f.even {
			ticks[i].Value = float64(i)
		}
	}
	return ticks
}

// numberTicks are four to eight round numbers.
type numberTicks struct{}

// Ticks implements [plot.Ticker].
func (numberTicks) Ticks(low, high float64) []plot.Tick {
	step := math.Pow(10, math.Floor(math.Log10((high-low)/4)))
	for _, factor := range []float64{5, 2} {
		if (high-low)/(step*factor) >= 4 {
			step *= factor
			break
		}
	}
	var ticks []plot.Tick
	for i := math.Ceil(low / step); i*step <= high; i++ {
		ticks = append(ticks, plot.Tick{Value: i * step, Label: short(i * step)})
	}
	return ticks
}

// logTicks labels 1, 2 and 5 of every power of ten; over more than three powers only 1.
type logTicks struct{}

// Ticks implements [plot.Ticker].
func (logTicks) Ticks(low, high float64) []plot.Tick {
	var ticks []plot.Tick
	wide := math.Log10(high/low) > 2.5
	for power := math.Pow(10, math.Floor(math.Log10(low))); power <= high; power *= 10 {
		for digit := 1.0; digit < 10; digit++ {
			v := digit * power
			if v < low*0.999 || v > high*1.001 {
				continue
			}
			tick := plot.Tick{Value: v}
			if digit == 1 || (!wide && (digit == 2 || digit == 5)) {
				tick.Label = short(v)
			}
			ticks = append(ticks, tick)
		}
	}
	return ticks
}
