// Package report turns a file of results into figures, a page to read and the table in the
// project's docs/benchmarks.md.
package report

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/onceward/onceward/bench/internal/chart"
	"github.com/onceward/onceward/bench/internal/harness"
)

// Write draws the figures of results beside their file: for results/redis.json the folder
// results/redis and the page results/redis.html.
func Write(results harness.Results, file string) error {
	base := strings.TrimSuffix(file, filepath.Ext(file))
	if err := os.MkdirAll(base, 0o755); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	text, err := render(results, func(name string, fig *chart.Figure) ([]byte, error) {
		return fig.Save(filepath.Join(base, name))
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile(base+".html", text, 0o644); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// render is the page of results, with the drawings that svg makes of their figures.
func render(results harness.Results, svg func(name string, fig *chart.Figure) ([]byte, error)) ([]byte, error) {
	var drawn []Drawn
	for _, f := range figures(results) {
		fig, err := f.Draw()
		if err != nil {
			return nil, err
		}
		text, err := svg(f.name, fig)
		if err != nil {
			return nil, err
		}
		drawn = append(drawn, Drawn{Name: f.name, Caption: f.caption, SVG: text})
	}
	var out bytes.Buffer
	err := HTML(&out, results, drawn)
	return out.Bytes(), err
}
