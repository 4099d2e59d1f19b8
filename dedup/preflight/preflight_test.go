package preflight_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup/preflight"
)

func TestSeverityString(t *testing.T) {
	for severity, want := range map[preflight.Severity]string{
		preflight.Note: "note", preflight.Warning: "warning", preflight.Critical: "critical",
		9: "severity(9)",
	} {
		assert.Equal(t, want, severity.String())
	}
	assert.Less(t, preflight.Note, preflight.Warning)
	assert.Less(t, preflight.Warning, preflight.Critical)
}

func ExampleFinding() {
	f := preflight.Finding{
		Code: "loading", Severity: preflight.Critical, Server: "10.0.0.1:6379",
		Detail: "it is reading its data set", Why: "nothing is answered yet", Fix: "wait",
	}
	fmt.Println(f)
	f.Server = "" // a finding about the client
	fmt.Println(f)
	// Output:
	// critical: loading at 10.0.0.1:6379: it is reading its data set; nothing is answered yet; wait
	// critical: loading: it is reading its data set; nothing is answered yet; wait
}
