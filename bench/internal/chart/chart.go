// Package chart draws the figures of a report as SVG: with a light background, a legend next to the
// lines, and colors that everybody can tell apart.
package chart

import (
	"bytes"
	"cmp"
	"errors"
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

	"github.com/onceward/onceward/bench/internal/must"
)

// Series is one line of a figure.
type Series struct {
	Name         string
	Points       plotter.XYs
	Color        int // in the palette
	Bold, Dashed bool
}

// Add adds a point. It keeps points sorted, and only the first one of every x.
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
	Title, X, Y string // the labels of the axes
	LogX, LogY  bool
	// Plain suits many points: it draws no marks, and puts round numbers on the axis instead of
	// every parameter.
	Plain bool
	// Even puts the parameters at equal distances, whatever their values are.
	Even   bool
	Series []Series
}

// ErrEmpty reports a figure without a line, or with fewer than two bars to compare.
var ErrEmpty = errors.New("chart: there is nothing to draw")

// SVG draws the figure. On a logarithmic axis, values that are not positive are left out.
func (l Lines) SVG() (svg []byte, err error) {
	defer must.Catch(&err)
	if !slices.ContainsFunc(l.Series, func(s Series) bool { return len(s.Points) > 1 }) {
		return nil, ErrEmpty
	}
	p, legend := newPlot(l.Title, l.X, l.Y), newLegend()
	p.Y.Min, p.Y.Tick.Marker = 0, plot.TickerFunc(numberTicks)
	if l.LogY {
		p.Y.Min, p.Y.Scale = math.Inf(1), plot.LogScale{}
		p.Y.Tick.Marker = plot.TickerFunc(logTicks)
	}
	xs := l.parameters()
	for _, s := range l.Series {
		var points plotter.XYs
		for _, point := range s.Points {
			if point.Y > 0 || !l.LogY {
				points = append(points, plotter.XY{X: l.place(point.X, xs), Y: point.Y})
				p.Y.Min, p.Y.Max = min(p.Y.Min, point.Y), max(p.Y.Max, point.Y)
			}
		}
		if len(points) > 0 {
			s.draw(p, &legend, points, !l.Plain)
		}
	}
	if p.Y.Max *= 1.08; l.LogY {
		p.Y.Min, p.Y.Max = p.Y.Min/1.25, p.Y.Max*1.16
	}
	if l.LogX && xs[0] > 0 {
		p.X.Scale = plot.LogScale{}
	}
	p.X.Tick.Marker = plot.TickerFunc(numberTicks)
	if !l.Plain {
		var ticks plot.ConstantTicks
		for _, x := range xs {
			ticks = append(ticks, plot.Tick{Value: l.place(x, xs), Label: parameter(x)})
		}
		p.X.Tick.Marker = ticks
	}
	return save(p, &legend, height), nil
}

func (l Lines) parameters() (xs []float64) {
	for _, s := range l.Series {
		for _, point := range s.Points {
			xs = append(xs, point.X)
		}
	}
	slices.Sort(xs)
	return slices.Compact(xs)
}

func (l Lines) place(x float64, xs []float64) float64 {
	if l.Even {
		at, _ := slices.BinarySearch(xs, x)
		return float64(at)
	}
	return x
}

func (s Series) draw(p *plot.Plot, legend *plot.Legend, points plotter.XYs, marked bool) {
	line, marks, err := plotter.NewLinePoints(points)
	must.Do(err)
	c, drawn := palette[s.Color%len(palette)], []plot.Thumbnailer{line}
	line.LineStyle = draw.LineStyle{Color: c, Width: vg.Points(1.6)}
	marks.GlyphStyle = draw.GlyphStyle{Color: c, Radius: vg.Points(2.8), Shape: draw.CircleGlyph{}}
	if s.Bold {
		line.Width, marks.Radius = vg.Points(3), vg.Points(4)
	}
	if s.Dashed {
		line.Dashes, marks.Shape = []vg.Length{vg.Points(5), vg.Points(4)}, draw.RingGlyph{}
	}
	if p.Add(line); marked {
		p.Add(marks)
		drawn = append(drawn, marks)
	}
	legend.Add(s.Name, drawn...)
}

// Bar is one bar of a figure.
type Bar struct {
	Name  string
	Value float64
	Color int // in the palette
}

// Bars is a figure of horizontal bars, the first at the top, each with its value.
type Bars struct {
	Title, XLabel string
	Bars          []Bar
}

// SVG draws the figure.
func (b Bars) SVG() (svg []byte, err error) {
	defer must.Catch(&err)
	if len(b.Bars) < 2 {
		return nil, ErrEmpty
	}
	p, most := newPlot(b.Title, b.XLabel, ""), 0.0
	var names []string
	labels := plotter.XYLabels{}
	for row, bar := range slices.Backward(b.Bars) {
		row = len(b.Bars) - 1 - row
		chart := must.Get(plotter.NewBarChart(plotter.Values{bar.Value}, vg.Points(20)))
		chart.Horizontal, chart.XMin = true, float64(row)
		chart.Color, chart.LineStyle.Width = palette[bar.Color%len(palette)], 0
		p.Add(chart)
		names, most = append(names, bar.Name), max(most, bar.Value)
		labels.XYs = append(labels.XYs, plotter.XY{X: bar.Value, Y: float64(row)})
		labels.Labels = append(labels.Labels, " "+short(bar.Value))
	}
	values := must.Get(plotter.NewLabels(labels))
	for i := range values.TextStyle {
		style := &values.TextStyle[i]
		style.Font, style.Color, style.YAlign = sans(11), ink, draw.YCenter
	}
	values.Offset.Y = vg.Points(2)
	p.Add(values)
	p.NominalY(names...)
	p.Y.Padding, p.Y.Min, p.Y.Max = 0, -0.6, float64(len(b.Bars))-0.4
	p.X.Min, p.X.Max, p.X.Tick.Marker = 0, most*1.15, plot.TickerFunc(numberTicks)
	return save(p, nil, vg.Points(110+32*float64(len(b.Bars)))), nil
}

// Measures of a figure. The unit of vg.Length is a point.
const (
	width       vg.Length = 760
	height      vg.Length = 380
	legendWidth vg.Length = 230
	margin      vg.Length = 12
)

// palette is Okabe and Ito's, which people with any color vision can tell apart.
var palette = []color.RGBA{
	{0x00, 0x72, 0xB2, 0xff}, {0xE6, 0x9F, 0x00, 0xff}, {0x00, 0x9E, 0x73, 0xff},
	{0xD5, 0x5E, 0x00, 0xff}, {0xCC, 0x79, 0xA7, 0xff}, {0x56, 0xB4, 0xE9, 0xff},
	{0x60, 0x60, 0x60, 0xff}, {0x00, 0x00, 0x00, 0xff},
}

var (
	ink      = color.RGBA{0x22, 0x22, 0x22, 0xff}
	gridLine = color.RGBA{0xe4, 0xe4, 0xe4, 0xff}
)

func sans(size font.Length) font.Font {
	return font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
}

// newPlot returns an empty plot in our style, with a grid. Without a label for y, it has only
// vertical lines.
func newPlot(title, xLabel, yLabel string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor, p.Title.Text, p.Title.Padding = color.White, title, vg.Points(10)
	p.Title.TextStyle.Font, p.Title.TextStyle.Color = sans(15), ink
	for axis, label := range map[*plot.Axis]string{&p.X: xLabel, &p.Y: yLabel} {
		axis.Label.Text, axis.Label.Padding, axis.Padding = label, vg.Points(4), vg.Points(6)
		axis.Label.TextStyle.Font, axis.Tick.Label.Font = sans(12), sans(11)
		axis.Label.TextStyle.Color, axis.Tick.Label.Color = ink, ink
		axis.Color, axis.Tick.Color = ink, ink
	}
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = gridLine, gridLine
	if yLabel == "" {
		grid.Horizontal.Color = nil
	}
	p.Add(grid)
	return p
}

// newLegend returns a legend that is drawn next to the plot, not over its lines.
func newLegend() plot.Legend {
	l := plot.NewLegend()
	l.TextStyle.Font, l.TextStyle.Color = sans(11), ink
	l.Top, l.Left, l.YPosition = true, true, draw.PosCenter
	l.Padding, l.ThumbnailWidth = vg.Points(3), vg.Points(22)
	return l
}

func save(p *plot.Plot, legend *plot.Legend, h vg.Length) []byte {
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
	must.Get(svg.WriteTo(&out))
	return bytes.ReplaceAll(out.Bytes(), []byte(measured), []byte(shown))
}

// The texts are measured in Liberation Sans. A reader without that font sees one with the same or
// similar widths.
const (
	measured = "font-family:Liberation Sans;"
	shown    = "font-family:'Liberation Sans',Arial,Helvetica,sans-serif;"
)

// short formats a number for an axis: 20 k, 1.5 M.
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

// parameter formats a parameter of a figure. It is exact up to 10,240, the largest size of a
// result.
func parameter(x float64) string {
	if x > 10_240 {
		return short(x)
	}
	return strconv.FormatFloat(x, 'g', -1, 64)
}

// numberTicks returns four to eight round numbers.
func numberTicks(low, high float64) (ticks []plot.Tick) {
	step := math.Pow(10, math.Floor(math.Log10((high-low)/4)))
	switch many := (high - low) / step; {
	case many >= 20:
		step *= 5
	case many >= 8:
		step *= 2
	}
	for v := math.Ceil(low/step) * step; v <= high; v += step {
		ticks = append(ticks, plot.Tick{Value: v, Label: short(v)})
	}
	return ticks
}

// logTicks labels 1, 2 and 5 of every power of ten, or only 1 if there are more than three powers.
func logTicks(low, high float64) (ticks []plot.Tick) {
	for power := math.Pow(10, math.Floor(math.Log10(low))); power <= high; power *= 10 {
		for digit := 1.0; digit < 10; digit++ {
			tick := plot.Tick{Value: digit * power}
			if digit == 1 || high/low < 300 && (digit == 2 || digit == 5) {
				tick.Label = short(tick.Value)
			}
			ticks = append(ticks, tick)
		}
	}
	return ticks
}
