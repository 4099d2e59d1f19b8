package audit

import (
	"bytes"
	_ "embed"
	"html/template"

	"github.com/onceward/onceward/cmd/internal/cli"
)

//go:embed page.tmpl
var pageText string

var pageTemplate = template.Must(template.New("").Funcs(template.FuncMap{
	"number": number, "percent": percent, "age": age,
	"size": func(n uint64) string { return cli.Size(float64(n)) },
	"wide": func(n, most uint64) uint64 { return (1000*n + most - 1) / max(most, 1) },
}).Parse(pageText))

// page returns the report as one HTML page that needs no other file.
func (r *Report) page() ([]byte, error) {
	var page bytes.Buffer
	err := pageTemplate.Execute(&page, r)
	return page.Bytes(), err
}

// MostByAge is the count of the longest bar.
func (r *Report) MostByAge() (most uint64) {
	for _, b := range r.Ages {
		most = max(most, b.Count)
	}
	return most
}

// Covers formats how much time the messages cover.
func (r *Report) Covers() string { return age(r.To.Sub(r.From).Milliseconds()) }
