package console

import (
	"fmt"
	"math"
	"strconv"
)

// A chart is drawn by the page's template as SVG. Lengths are in its own units, of which it is
// width wide and height high.
const (
	chartWidth  = 420
	chartHeight = 190
	plotLeft    = 46
	plotRight   = chartWidth - 6
	plotTop     = 12
	plotBottom  = chartHeight - 28
)

// chart is a stack of bars with axes.
type chart struct {
	// Name is that of the elements that describe the chart, and unique in its page.
	Name, Title, Summary string
	Unit                 string
	Series               []series
	Bars                 []bar
	Ticks                []tick // of the vertical axis
	Marks                []tick // of the horizontal one
	Lines                []line
	Empty                string // what to say where there is nothing to draw
	Table                table
}

// series is one color.
type series struct {
	Class, Label string
	Total, Share string
}

type bar struct {
	Class               string
	X, Y, Width, Height string
}

type tick struct {
	At, Label string
	Anchor    string
}

// line stands upright at a place that means something.
type line struct{ X, Label string }

// table says in text what the bars say.
type table struct {
	Head []string
	Rows []row
}

type row struct {
	Name  string
	Cells []string
}

// Left and the others are for the template.
func (*chart) Width() int     { return chartWidth }
func (*chart) Height() int    { return chartHeight }
func (*chart) Left() int      { return plotLeft }
func (*chart) Right() int     { return plotRight }
func (*chart) Bottom() int    { return plotBottom }
func (*chart) Top() int       { return plotTop }
func (*chart) LabelLine() int { return plotBottom + 14 }

// stack draws columns, each a pile of the series' counts from below.
func (c *chart) stack(columns [][]uint64) {
	top := uint64(0)
	for _, column := range columns {
		top = max(top, sum(column))
	}
	if top == 0 {
		return
	}
	step := niceStep(top)
	ceiling := (top + step - 1) / step * step
	scale := float64(plotBottom-plotTop) / float64(ceiling)
	for n := uint64(0); n <= ceiling; n += step {
		c.Ticks = append(c.Ticks, tick{At: unit(plotBottom - float64(n)*scale), Label: brief(n)})
	}
	slot := float64(plotRight-plotLeft) / float64(len(columns))
	for i, column := range columns {
		y := float64(plotBottom)
		for s, n := range column {
			if n == 0 {
				continue
			}
			h := max(float64(n)*scale, least) // what is there is to be seen
			y -= h
			c.Bars = append(c.Bars, bar{
				Class: c.Series[s].Class, X: unit(plotLeft + slot*(float64(i)+0.08)), Y: unit(y),
				Width: unit(slot * 0.84), Height: unit(h),
			})
		}
	}
}

// least is how high a bar is at least.
const least = 2

// niceStep is a step of 1, 2 or 5 with zeros that makes two to five ticks.
func niceStep(top uint64) uint64 {
	step := uint64(math.Pow(10, math.Floor(math.Log10(float64(top)))))
	switch {
	case top/step >= 5:
		return 2 * step
	case top/step >= 2:
		return step
	case step >= 10:
		return step / 10 * 5
	}
	return step
}

func unit(f float64) string { return strconv.FormatFloat(f, 'f', 1, 64) }

func sum(all []uint64) (n uint64) {
	for _, one := range all {
		n += one
	}
	return n
}

// brief is a count that fits next to an axis.
func brief(n uint64) string {
	switch {
	case n >= 1_000_000:
		return strconv.FormatFloat(float64(n)/1_000_000, 'g', 3, 64) + "M"
	case n >= 1000:
		return strconv.FormatFloat(float64(n)/1000, 'g', 3, 64) + "k"
	}
	return strconv.FormatUint(n, 10)
}

// grouped is a count with its thousands apart.
func grouped(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// percent is a share for people. A share that is not zero never looks like zero, and one that is
// not all never looks like all.
func percent(part, of uint64) string {
	if of == 0 {
		return "-"
	}
	share := 100 * float64(part) / float64(of)
	switch {
	case part == 0 || part == of:
		return fmt.Sprintf("%.0f %%", share)
	case share < 0.1:
		return "under 0.1 %"
	case share > 99.9:
		return "over 99.9 %"
	}
	return fmt.Sprintf("%.1f %%", share)
}
