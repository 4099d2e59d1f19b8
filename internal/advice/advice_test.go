package advice_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/internal/advice"
)

func TestFinding(t *testing.T) {
	table := advice.Table{"full": {Severity: preflight.Warning, Why: "it is slow", Fix: "grow it"}}
	want := preflight.Finding{Code: "full", Severity: preflight.Warning, Server: "a:1",
		Detail: "7 of 8 bytes", Why: "it is slow", Fix: "grow it"}
	assert.Equal(t, want, table.Finding("full", "a:1", "%d of %d bytes", 7, 8))
	assert.Empty(t, table["full"].Detail, "the table is not changed")
}

func TestReport(t *testing.T) {
	r := advice.Report{Table: advice.Table{"full": {Why: "it is slow"}}, Server: "a:1"}
	r.Add("full", "%d bytes", 7)
	r.Add("full", "none are left").Severity = preflight.Critical
	assert.Equal(t, []preflight.Finding{
		{Code: "full", Server: "a:1", Detail: "7 bytes", Why: "it is slow"},
		{Code: "full", Severity: preflight.Critical, Server: "a:1", Detail: "none are left",
			Why: "it is slow"},
	}, r.Findings)
}

// TestSort: the worst comes first, then the first server; equals keep their order.
func TestSort(t *testing.T) {
	note, warning, critical := preflight.Note, preflight.Warning, preflight.Critical
	findings := []preflight.Finding{
		{Code: "1", Severity: note}, {Code: "2", Severity: warning, Server: "b"},
		{Code: "3", Severity: critical, Server: "c"}, {Code: "4", Severity: warning, Server: "a"},
		{Code: "5", Severity: warning, Server: "b"}, {Code: "6", Severity: critical, Server: "c"},
	}
	advice.Sort(findings)
	var order string
	for _, f := range findings {
		order += f.Code
	}
	assert.Equal(t, "364251", order)
}
