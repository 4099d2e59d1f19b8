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
	"github.com/onceward/onceward/bench/internal/must"
)

// Write draws the figures of results next to their file: for results/redis.json the folder
// results/redis and the page results/redis.html.
func Write(results harness.Results, file string) (err error) {
	defer must.Catch(&err)
	base := strings.TrimSuffix(file, filepath.Ext(file))
	must.Do(os.MkdirAll(base, 0o755))
	drawings := must.Get(draw(results))
	for _, d := range drawings {
		must.Do(os.WriteFile(filepath.Join(base, d.Name+".svg"), d.SVG, 0o644))
	}
	var page bytes.Buffer
	must.Do(html(&page, results, drawings))
	return os.WriteFile(base+".html", page.Bytes(), 0o644)
}

// drawn is a figure that was drawn.
type drawn struct {
	Name, Caption string
	SVG           []byte
}

func draw(results harness.Results) (all []drawn, err error) {
	for _, f := range figures(results) {
		svg, err := f.of(results).SVG()
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
	var sections []section
	for _, row := range r.Rows {
		if n := len(sections); n == 0 || sections[n-1].Workload != row.Workload {
			sections = append(sections, section{Workload: row.Workload})
		}
		last := &sections[len(sections)-1]
		last.Rows = append(last.Rows, row)
	}
	err := page.Execute(w, map[string]any{
		"Results": run{r}, "Reached": len(run{r}.Goals()) - len(run{r}.Missed()),
		"Sections": sections, "Figures": figures, "Brokers": r.Area == "kafka",
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
