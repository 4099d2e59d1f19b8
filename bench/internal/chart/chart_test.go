package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/plot/plotter"
)

var lines = Lines{
	Title: "Lines <&>", XLabel: "x", YLabel: "y", LogX: true, LogY: true,
	Series: []Series{
		{Name: "first", Points: plotter.XYs{{X: 1, Y: 1500}, {X: 64, Y: 2e6}}, Bold: true},
		{Name: "second", Points: plotter.XYs{{X: 1, Y: 10}, {X: 64, Y: 100}}, Dashed: true},
		{Name: "empty"},
	},
}

func TestSVG(t *testing.T) {
	even := lines
	even.Even, even.LogX, even.LogY = true, false, false
	plain := even
	plain.Even, plain.Plain = false, true
	for name, d := range map[string]interface{ SVG() ([]byte, error) }{
		"lines": lines, "even": even, "plain": plain,
		"bars": Bars{Title: "Bars", XLabel: "x",
			Bars: []Bar{{Name: "first", Value: 9}, {Name: "second", Value: 209}}},
	} {
		t.Run(name, func(t *testing.T) {
			svg, err := d.SVG()
			if err != nil {
				t.Fatal(err)
			}
			wellFormed(t, svg)
			if !bytes.Contains(svg, []byte("first")) || !bytes.Contains(svg, []byte("second")) ||
				bytes.Contains(svg, []byte(">empty<")) {
				t.Error("not what has data, and only that, is named")
			}
		})
	}
}

// The first of every parameter counts, in the order of the parameters.
func TestAdd(t *testing.T) {
	var s Series
	for i, x := range []float64{64, 1, 64, 8} {
		s.Add(x, float64(i))
	}
	if want := (plotter.XYs{{X: 1, Y: 1}, {X: 8, Y: 3}, {X: 64, Y: 0}}); !slices.Equal(s.Points,
		want) {
		t.Errorf("%v, want %v", s.Points, want)
	}
}

func wellFormed(t *testing.T, text []byte) {
	t.Helper()
	dec := xml.NewDecoder(bytes.NewReader(text))
	for {
		_, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestNothingToDraw(t *testing.T) {
	for _, d := range []interface{ SVG() ([]byte, error) }{Lines{Title: "t",
		Series: []Series{{Name: "empty"}}}, Bars{Title: "t"}} {
		if _, err := d.SVG(); err == nil || !strings.Contains(err.Error(), "nothing to draw") {
			t.Errorf("error %v", err)
		}
	}
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		low, high float64
		log       bool
		want      string
	}{
		{0, 26_000, false, "0,5 k,10 k,15 k,20 k,25 k"},
		{0, 220, false, "0,50,100,150,200"},
		{8_000, 210_000, true, "10 k,20 k,50 k,100 k,200 k"},
		{5, 3e6, true, "10,100,1 k,10 k,100 k,1 M"},
	} {
		ticks := numberTicks{}.Ticks(c.low, c.high)
		if c.log {
			ticks = logTicks{}.Ticks(c.low, c.high)
		}
		var labels []string
		for _, tick := range ticks {
			if tick.Label != "" {
				labels = append(labels, tick.Label)
			}
		}
		if got := strings.Join(labels, ","); got != c.want {
			t.Errorf("%v to %v: %s, want %s", c.low, c.high, got, c.want)
		}
	}
}
