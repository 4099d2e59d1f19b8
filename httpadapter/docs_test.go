package httpadapter_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The type of a problem is an address, and it must exist.
func TestEveryProblemIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/reference/http.md")
	require.NoError(t, err)
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	more, err := filepath.Glob("webhook/*.go")
	require.NoError(t, err)
	name := regexp.MustCompile(`problem\.Problem\{Name: "([a-z-]+)"`)
	found := 0
	for _, file := range append(files, more...) {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range name.FindAllStringSubmatch(string(text), -1) {
			found++
			assert.Contains(t, string(page), `<a id="`+m[1]+`"></a>`,
				"%s: docs/reference/http.md has no anchor", file)
		}
	}
	assert.GreaterOrEqual(t, found, 20, "this test looked in the wrong place")
}
