// Package chart draws the figures of a report as SVG and PNG: light background, legend
// beside the lines, colours that everybody can tell apart.
package chart

import (
	"bytes"
	"fmt"
	"image/color"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Figure is a drawing.
type Figure struct {
	plot   *plot.Plot
	legend *plot.Legend // nil: none
	height vg.Length    // 0: the usual
}

func (f *Figure) size() (w, h vg.Length) {
	if f.height != 0 {
		return width, f.height
	}
	return width, height
}

func (f *Figure) drawTo(c draw.Canvas) {
	c.SetColor(color.White)
	c.Fill(c.Path())
	inner := draw.Crop(c, margin, -margin, margin, -margin)
	if f.legend == nil {
		f.plot.Draw(inner)
		return
	}
	f.plot.Draw(draw.Crop(inner, 0, -legendWidth-margin, 0, 0))
	w, _ := f.size()
	f.legend.Draw(draw.Crop(inner, w-2*margin-legendWidth, 0, 0, -vg.Points(34)))
}

// SVG returns the figure as text.
func (f *Figure) SVG() ([]byte, error) {
	w, h := f.size()
	c := vgsvg.New(w, h)
	f.drawTo(draw.New(c))
	var out bytes.Buffer
	if _, err := c.WriteTo(&out); err != nil {
		return nil, fmt.Errorf("chart: %w", err)
	}
	return out.Bytes(), nil
}

// PNG returns the figure as an image of twice the density of a plain screen.
func (f *Figure) PNG() ([]byte, error) {
	w, h := f.size()
	c := vgimg.NewWith(vgimg.UseWH(w, h), vgimg.UseDPI(dpi))
	f.drawTo(draw.New(c))
	var out bytes.Buffer
	if _, err := (vgimg.PngCanvas{Canvas: c}).WriteTo(&out); err != nil {
		return nil, fmt.Errorf("chart: %w", err)
	}
	return out.Bytes(), nil
}

// Save writes path.svg and path.png and returns the SVG.
func (f *Figure) Save(path string) ([]byte, error) {
	svg, err := f.SVG()
	if err != nil {
		return nil, err
	}
	png, err := f.PNG()
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(path+".svg", svg, 0o644); err != nil {
		return nil, fmt.Errorf("chart: %w", err)
	}
	if err := os.WriteFile(path+".png", png, 0o644); err != nil {
		return nil, fmt.Errorf("chart: %w", err)
	}
	return svg, nil
}
