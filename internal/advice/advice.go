// Package advice makes the findings of the adapters from tables. A table has what a finding says of
// every server alike.
package advice

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/onceward/onceward/dedup/preflight"
)

// Table holds, for each code, the severity of the finding, why it matters, and how to fix it.
type Table map[string]preflight.Finding

// Finding returns the finding that a code names. The formatted text says what the adapter saw at
// the server. The server may be empty.
func (t Table) Finding(code, server, format string, args ...any) preflight.Finding {
	f := t[code]
	f.Code, f.Server, f.Detail = code, server, fmt.Sprintf(format, args...)
	return f
}

// Report collects findings about one server.
type Report struct {
	Table    Table
	Server   string
	Findings []preflight.Finding
}

// Add adds a finding and returns it, so that the caller can change what the table says of it. The
// pointer is valid until the next call.
func (r *Report) Add(code, format string, args ...any) *preflight.Finding {
	r.Findings = append(r.Findings, r.Table.Finding(code, r.Server, format, args...))
	return &r.Findings[len(r.Findings)-1]
}

// Sort puts the worst findings first, and those of equal severity in the order of their servers.
func Sort(findings []preflight.Finding) {
	slices.SortStableFunc(findings, func(a, b preflight.Finding) int {
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), strings.Compare(a.Server, b.Server))
	})
}
