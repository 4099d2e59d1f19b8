package arch

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestCommitSubjects checks which commits scripts/commits.sh refuses.
func TestCommitSubjects(t *testing.T) {
	script := filepath.Join("..", "..", "scripts", "commits.sh")
	for _, row := range []struct{ subject, fault string }{
		{"kafka: stop when a topic is recreated", ""},
		{"Move mutants and tools below internal", ""},
		{"redis: tests of the clock wait for an event", ""},
		{"kafka: stopped when a topic is recreated", `"stopped" is not an imperative`},
		{"Fixes the clock", `"Fixes" is not an imperative`},
		{"sql: adding an index", `"adding" is not an imperative`},
		{"sql: add an index.", "ends with a period"},
		{strings.Repeat("x", 72), ""},
		{strings.Repeat("x", 73), "has 73 characters"},
	} {
		cmd := exec.CommandContext(t.Context(), script, "-")
		cmd.Stdin = strings.NewReader("1234567 " + row.subject + "\n")
		out, err := cmd.CombinedOutput()
		if row.fault == "" {
			assert.NoError(t, err, "%s: %s", row.subject, out)
		} else {
			assert.Error(t, err, row.subject)
			assert.Contains(t, string(out), row.fault)
		}
	}
}
