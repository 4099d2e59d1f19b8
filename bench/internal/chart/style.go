package chart

import (
	"fmt"
	"image/color"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Measures of a figure. The unit of vg.Length is a point.
const (
	width       vg.Length = 760
	height      vg.Length = 380
	legendWidth vg.Length = 205
	margin      vg.Length = 12
	dpi                   = 144
)

// palette is Okabe and Ito's, which people with any colour vision can tell apart.
var palette = []color.RGBA{
	{0x00, 0x72, 0xB2, 0xff}, {0xE6, 0x9F, 0x00, 0xff}, {0x00, 0x9E, 0x73, 0xff}, {0xD5, 0x5E, 0x00, 0xff},
	{0xCC, 0x79, 0xA7, 0xff}, {0x56, 0xB4, 0xE9, 0xff}, {0x60, 0x60, 0x60, 0xff}, {0x00, 0x00, 0x00, 0xff},
}

var (
	ink      = color.RGBA{0x22, 0x22, 0x22, 0xff}
	gridLine = color.RGBA{0xe4, 0xe4, 0xe4, 0xff}
	dashed   = []vg.Length{vg.Points(5), vg.Points(4)}
)

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
		axis.Label.TextStyle.Font = sans(12)
		axis.Label.TextStyle.Color = ink
		axis.Label.Padding = vg.Points(4)
		axis.Tick.Label.Font = sans(11)
		axis.Tick.Label.Color = ink
		axis.Color, axis.Tick.Color = ink, ink
		axis.Padding = vg.Points(6)
	}
	return p
}

func sans(size font.Length) font.Font {
	return font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
}

// newLegend is drawn beside the plot, not over its lines.
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

// short is a number as an axis shows it: 20 k, 1.5 M.
func short(v float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e6, " M"}, {1e3, " k"}} {
		if math.Abs(v) >= unit.size {
			return trim(v/unit.size) + unit.name
		}
	}
	return trim(v)
}

func trim(v float64) string {
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// fixedTicks are labelled at these places only.
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
