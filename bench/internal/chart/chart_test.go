package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"os"
	"path/filepath"
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

func TestSave(t *testing.T) {
	even := lines
	even.Even, even.LogX, even.LogY = true, false, false
	plain := even
	plain.Even, plain.Plain = false, true
	for name, d := range map[string]interface{ Draw() (*Figure, error) }{
		"lines": lines, "even": even, "plain": plain, "bars": Bars{Title: "Bars", XLabel: "x", Bars: []Bar{{Name: "first", Value: 9}, {Name: "second", Value: 209}}},
	} {
		t.Run(name, func(t *testing.T) {
			fig, err := d.Draw()
			if err != nil {
				t.Fatal(err)
			}
			base := filepath.Join(t.TempDir(), name)
			svg, err := fig.Save(base)
			if err != nil {
				t.Fatal(err)
			}
			wellFormed(t, svg)
			if !bytes.Contains(svg, []byte("first")) || !bytes.Contains(svg, []byte("second")) || bytes.Contains(svg, []byte(">empty<")) {
				t.Error("not what has data, and only that, is named")
			}
			data, err := os.ReadFile(base + ".png")
			if err != nil {
				t.Fatal(err)
			}
			img, err := png.Decode(bytes.NewReader(data))
			if err != nil {
				t.Fatal(err)
			}
			if img.Bounds().Dx() != int(width)*dpi/72 {
				t.Errorf("%v wide", img.Bounds().Dx())
			}
			if r, g, b, a := img.At(2, 2).RGBA(); r&g&b&a != 0xffff {
				t.Error("the background is not white")
			}
		})
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
	for _, d := range []interface{ Draw() (*Figure, error) }{Lines{Title: "t", Series: []Series{{Name: "empty"}}}, Bars{Title: "t"}} {
		if _, err := d.Draw(); err == nil || !strings.Contains(err.Error(), "nothing to draw") {
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
