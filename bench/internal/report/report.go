// Package report turns a file of results into figures, a page to read and the tables of the
// project's documents.
package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
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
	var page bytes.Buffer
	drawn, err := draw(results)
	if err == nil {
		err = html(&page, results, drawn)
	}
	if err != nil {
		return err
	}
	for _, d := range drawn {
		if err := os.WriteFile(filepath.Join(base, d.Name+".svg"), d.SVG, 0o644); err != nil {
			return fmt.Errorf("report: %w", err)
		}
	}
	if err := os.WriteFile(base+".html", page.Bytes(), 0o644); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// drawn is a figure that was drawn.
type drawn struct {
	Name, Caption string
	SVG           []byte
}

func draw(results harness.Results) (all []drawn, err error) {
	for _, f := range figures(results) {
		svg, err := f.SVG()
		if err != nil {
			return nil, err
		}
		all = append(all, drawn{f.name, f.caption, svg})
	}
	return all, nil
}

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"number": number, "ratio": ratio, "svg": inline, "versions": listed[string], "micros": micros,
	"rounds": rounds,
}).Parse(pageText))

// section is the rows of one family.
type section struct {
	Workload string
	Rows     []harness.Row
}

// html writes a page that needs no other file: tables, and the figures inside it. It is
// light or dark as the reader's system is.
func html(w io.Writer, r harness.Results, figures []drawn) error {
	var goals []harness.Row
	var sections []section
	reached := 0
	for _, row := range r.Rows {
		if row.Goal != "" {
			goals = append(goals, row)
			if row.OK {
				reached++
			}
		}
		if n := len(sections); n == 0 || sections[n-1].Workload != row.Workload {
			sections = append(sections, section{Workload: row.Workload})
		}
		last := &sections[len(sections)-1]
		last.Rows = append(last.Rows, row)
	}
	err := page.Execute(w, map[string]any{
		"Results": r, "Goals": goals, "Reached": reached, "Sections": sections, "Figures": figures,
		"Brokers": r.Area == "kafka",
	})
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// inline is an SVG without what only a file of its own has.
func inline(svg []byte) template.HTML {
	if i := bytes.Index(svg, []byte("<svg")); i > 0 {
		svg = svg[i:]
	}
	return template.HTML(svg) //nolint:gosec // drawn by us
}

// number is a figure as people read it: 412 k, 1.25 M, 9.0.
func number(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.2f M", v/1e6)
	case v >= 1e4:
		return fmt.Sprintf("%.0f k", v/1e3)
	case v >= 1e3:
		return fmt.Sprintf("%.1f k", v/1e3)
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

// ratio is 12.3x or 0.95x.
func ratio(v float64) string {
	if v >= 10 {
		return fmt.Sprintf("%.1fx", v)
	}
	return fmt.Sprintf("%.2fx", v)
}

func micros(v float64) string {
	if v == 0 {
		return ""
	}
	return number(v)
}
