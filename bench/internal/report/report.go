// Package report turns a file of results into figures, a page to read and the table in the
// project's README.
package report

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/onceward/onceward/bench/internal/harness"
)

// Write draws the figures of results beside their file: for results/redis.json the folder
// results/redis and the page results/redis.html.
func Write(results harness.Results, file string) error {
	base := strings.TrimSuffix(file, filepath.Ext(file))
	if err := os.MkdirAll(base, 0o755); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	var drawn []Drawn
	for _, f := range figures(results) {
		fig, err := f.Draw()
		if err != nil {
			return err
		}
		svg, err := fig.Save(filepath.Join(base, f.name))
		if err != nil {
			return err
		}
		drawn = append(drawn, Drawn{Name: f.name, Caption: f.caption, SVG: svg})
	}
	var page bytes.Buffer
	if err := HTML(&page, results, drawn); err != nil {
		return err
	}
	if err := os.WriteFile(base+".html", page.Bytes(), 0o644); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}
