package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	// pagePath matches a page that code, a rule or a script names: docs/faq.md, or its address.
	pagePath = regexp.MustCompile(`(?:^|[^\w/.-])(?:(?:\.\./)+|\./|https://github\.com/onceward/` +
		`onceward/(?:blob|tree)/main/)?(docs/[\w./-]+\.(?:md|png|svg))(#[\w-]+)?`)
	// pageBelow matches a page as a string of Go that follows the address of docs.
	pageBelow = regexp.MustCompile(
		`"((?:guides|reference|runbooks|evidence|internals)/[\w./-]+\.md)(#[\w-]+)?"`)
)

// mentioning are the files that may name a page, by their endings.
var mentioning = []string{".go", ".yml", ".yaml", ".json", ".sh", ".mjs", ".tmpl", ".ini", ".md"}

// notOurs are names that look like pages of ours.
var notOurs = []string{
	"docs/middleware/idempotency.md", // of fiber
	"docs/faq.md.page.md",            // made of docs/faq.md for the rules of prose
}

// missing are the pages, and the places in them, that a text names and that do not exist.
func missing(text string) (dead []string, n int) {
	look := func(page, place string) {
		if slices.Contains(notOurs, page) {
			return
		}
		n++
		to, err := os.ReadFile(filepath.Join(root, page))
		if err != nil || place != "" && !anchors(string(to))[place[1:]] {
			dead = append(dead, page+place)
		}
	}
	for _, m := range pagePath.FindAllStringSubmatch(text, -1) {
		look(m[1], m[2])
	}
	for _, m := range pageBelow.FindAllStringSubmatch(text, -1) {
		look("docs/"+m[1], m[2])
	}
	return dead, n
}

// TestPaths: the pages that comments, messages, alerts and scripts name are there. TestLinks has
// the links of pages.
func TestPaths(t *testing.T) {
	all := 0
	err := filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (e.Name() == ".git" || e.Name() == "node_modules"):
			return filepath.SkipDir
		case !slices.Contains(mentioning, filepath.Ext(path)) && e.Name() != "Makefile",
			e.Name() == "paths_test.go":
			return nil
		}
		text, err := os.ReadFile(path)
		dead, n := missing(string(text))
		all += n
		assert.Empty(t, dead, "pages that %s names", path)
		return err
	})
	require.NoError(t, err)
	assert.GreaterOrEqual(t, all, 100, "paths: this test looked in the wrong place")
	t.Logf("%d paths", all)
}

// TestMissingPaths: missing finds missing pages, and no others.
func TestMissingPaths(t *testing.T) {
	dead, n := missing(`// docs/faq.md and docs/none.md, ../../docs/none.md#a
		"https://github.com/onceward/onceward/blob/main/docs/guarantees.md#none"
		pages + "guides/none.md", "runbooks/amnesia.md", https://example.com/docs/none.md
		my/docs/none.md`)
	assert.Equal(t, 6, n, "paths")
	assert.Equal(t, []string{"docs/none.md", "docs/none.md#a", "docs/guarantees.md#none",
		"docs/guides/none.md"}, dead)
}
