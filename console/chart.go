package console

import (
	"fmt"
	"math"
	"strconv"
)

// A chart is drawn by the page's template as SVG. Lengths are in units of the chart: it is
// chartWidth wide and chartHeight high.
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
	// Name begins the IDs of the elements that describe the chart, and is unique in its page.
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

// series is what one color of the bars counts.
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

// line is a vertical line at a place with a meaning.
type line struct{ X, Label string }

// table shows the numbers of the bars as text.
type table struct {
	Head []string
	Rows []row
}

type row struct {
	Name  string
	Cells []string
}

// Width and the methods after it are called by the template.
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
			h := max(float64(n)*scale, least) // what is not zero is visible
			y -= h
			c.Bars = append(c.Bars, bar{
				Class: c.Series[s].Class, X: unit(plotLeft + slot*(float64(i)+0.08)), Y: unit(y),
				Width: unit(slot * 0.84), Height: unit(h),
			})
		}
	}
}

// least is the height of the lowest bar.
const least = 2

// niceStep returns a step that makes two to five ticks: 1, 2 or 5, followed by zeros.
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

// brief formats a count so that it fits next to an axis.
func brief(n uint64) string {
	switch {
	case n >= 1_000_000:
		return strconv.FormatFloat(float64(n)/1_000_000, 'g', 3, 64) + "M"
	case n >= 1000:
		return strconv.FormatFloat(float64(n)/1000, 'g', 3, 64) + "k"
	}
	return strconv.FormatUint(n, 10)
}

// grouped formats a count with separated thousands.
func grouped(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// percent formats a share. A share above zero is never shown as 0 %, and a share below the whole is
// never shown as 100 %.
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
