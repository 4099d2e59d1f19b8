package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var watched = regexp.MustCompile("`(onceward\\.[a-z_.]+|Onceward[A-Z][A-Za-z]+)`")

// TestNames: the metrics and alerts that a guide tells to watch exist.
func TestNames(t *testing.T) {
	telemetry, err := os.ReadFile(filepath.Join(root, "docs/reference/telemetry.md"))
	require.NoError(t, err)
	guides, err := filepath.Glob(filepath.Join(root, "docs/guides/*.md"))
	require.NoError(t, err)
	n := 0
	for _, guide := range guides {
		text, err := os.ReadFile(guide)
		require.NoError(t, err)
		for _, m := range watched.FindAllString(string(text), -1) {
			n++
			assert.True(t, strings.Contains(string(telemetry), m),
				"%s: %s is not in docs/reference/telemetry.md", guide, m)
		}
	}
	assert.GreaterOrEqual(t, n, 30, "names: this test looked in the wrong place")
}
