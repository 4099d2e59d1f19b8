package docs_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	guaranteesBegin = "<!-- the table of guarantees: README includes it, and internal/integration/guarantees tests every sentence of it -->\n\n"
	guaranteesEnd   = "\n<!-- end of the table of guarantees -->\n"
	includedBegin   = "<!-- included from docs/guarantees.md -->\n\n"
	includedEnd     = "\n<!-- end -->\n"
)

// TestGuaranteesAreIncluded: README shows the table of docs/guarantees.md, word for word, and no
// other page has a copy of its own, which would drift.
func TestGuaranteesAreIncluded(t *testing.T) {
	table := between(t, read(t, "docs/guarantees.md"), guaranteesBegin, guaranteesEnd)
	assert.Equal(t, table, between(t, read(t, "README.md"), includedBegin, includedEnd),
		"copy the table of docs/guarantees.md into README.md")
	for _, page := range pages(t) {
		if page == "README.md" || page == "docs/guarantees.md" {
			continue
		}
		assert.NotContains(t, read(t, page), "| when an effect can run twice |",
			"%s has a table of guarantees of its own", page)
	}
}

// TestShortPages: README is also the landing page of the module, and DESIGN.md is read whole. Long
// texts go to docs.
func TestShortPages(t *testing.T) {
	assert.LessOrEqual(t, strings.Count(read(t, "README.md"), "\n"), 200, "lines of README.md")
	assert.LessOrEqual(t, len(read(t, "DESIGN.md")), 12_000, "bytes of DESIGN.md")
}

// TestReadmeNamesModules: the table of packages links every module that users import.
func TestReadmeNamesModules(t *testing.T) {
	readme, n := read(t, "README.md"), 0
	require.NoError(t, filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		dir, _ := filepath.Rel(root, filepath.Dir(path))
		top, _, _ := strings.Cut(dir, string(filepath.Separator))
		if err != nil || e.Name() != "go.mod" ||
			slices.Contains([]string{".", "bench", "cmd", "examples", "internal"}, top) {
			return err
		}
		n++
		assert.True(t, strings.Contains(readme, "]("+filepath.ToSlash(dir)+")"),
			"README does not link the module %s", dir)
		return nil
	}))
	assert.GreaterOrEqual(t, n, 10, "modules: this test looked in the wrong place")
}

// read is a page of the repository.
func read(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	require.NoError(t, err)
	return string(text)
}

// between is what stands between two lines.
func between(t *testing.T, text, begin, end string) string {
	t.Helper()
	_, rest, ok := strings.Cut(text, begin)
	require.True(t, ok, "no line %q", begin)
	inner, _, ok := strings.Cut(rest, end)
	require.True(t, ok, "no line %q", end)
	return inner
}

// pages are README, DESIGN and the pages of docs.
func pages(t *testing.T) []string {
	t.Helper()
	all := []string{"README.md", "DESIGN.md"}
	require.NoError(t, filepath.WalkDir(filepath.Join(root, "docs"),
		func(path string, _ os.DirEntry, err error) error {
			if name, _ := filepath.Rel(root, path); strings.HasSuffix(path, ".md") {
				all = append(all, name)
			}
			return err
		}))
	return all
}
