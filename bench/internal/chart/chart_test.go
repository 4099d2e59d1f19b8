package chart

import (
	"encoding/xml"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
)

var lines = Lines{
	Title: "Lines <&>", X: "x", Y: "y", LogX: true, LogY: true,
	Series: []Series{
		{Name: "first", Points: plotter.XYs{{X: 1, Y: 1500}, {X: 64, Y: 2e6}}, Bold: true},
		{Name: "second", Points: plotter.XYs{{X: 0, Y: 0}, {X: 1, Y: 10}, {X: 64, Y: 100}},
			Dashed: true},
		{Name: "empty"},
	},
}

func TestSVG(t *testing.T) {
	even, plain := lines, lines
	even.Even, even.LogX, even.LogY = true, false, false
	plain.Plain, plain.LogX, plain.LogY = true, false, false
	for name, d := range map[string]interface{ SVG() ([]byte, error) }{
		"lines": lines, "even": even, "plain": plain,
		"bars": Bars{Title: "Bars", XLabel: "x",
			Bars: []Bar{{Name: "first", Value: 9}, {Name: "second", Value: 209}}},
	} {
		t.Run(name, func(t *testing.T) {
			svg, err := d.SVG()
			require.NoError(t, err)
			require.NoError(t, xml.Unmarshal(svg, new(struct{})), "it is not well-formed")
			assert.Contains(t, string(svg), "first")
			assert.Contains(t, string(svg), "second")
			assert.NotContains(t, string(svg), ">empty<")
			assert.Contains(t, string(svg), shown)
			assert.NotContains(t, string(svg), measured, "a font that few readers have, alone")
		})
	}
}

// For each x the first value counts, and the points are in the order of x.
func TestAdd(t *testing.T) {
	var s Series
	for i, x := range []float64{64, 1, 64, 8} {
		s.Add(x, float64(i))
	}
	assert.Equal(t, plotter.XYs{{X: 1, Y: 1}, {X: 8, Y: 3}, {X: 64, Y: 0}}, s.Points)
}

func TestNothingToDraw(t *testing.T) {
	for _, d := range []interface{ SVG() ([]byte, error) }{
		Lines{Title: "t", Series: []Series{{Name: "empty"}}}, Bars{Title: "t"},
	} {
		_, err := d.SVG()
		assert.ErrorIs(t, err, ErrEmpty)
	}
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		low, high float64
		ticks     plot.TickerFunc
		want      string
	}{
		{0, 26_000, numberTicks, "0,5 k,10 k,15 k,20 k,25 k"},
		{8_000, 210_000, logTicks, "10 k,20 k,50 k,100 k,200 k"},
		{0.15, 9, logTicks, "0.2,0.5,1,2,5"},
		{5, 3e6, logTicks, "10,100,1 k,10 k,100 k,1 M"},
	} {
		var labels []string
		for _, tick := range c.ticks(c.low, c.high) {
			if tick.Label != "" && tick.Value >= c.low && tick.Value <= c.high {
				labels = append(labels, tick.Label)
			}
		}
		assert.Equal(t, c.want, strings.Join(labels, ","))
	}
}
