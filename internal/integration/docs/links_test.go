package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.+?) *$`)
	anchor  = regexp.MustCompile(`<a id="([^"]+)">`)
	fenced  = regexp.MustCompile("(?ms)^ *```.*?^ *```")
)

// anchorOf returns the anchor that links to a heading.
func anchorOf(title string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, link.ReplaceAllString(title, "]"))
}

// anchors are those of a page.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		all[anchorOf(m[1])] = true
	}
	for _, m := range anchor.FindAllStringSubmatch(text, -1) {
		all[m[1]] = true
	}
	return all
}

// deadLinks are the links of a page to files, or places in them, that do not exist.
func deadLinks(t *testing.T, page string) (dead []string, n int) {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(string(text), ""), -1) {
		if strings.Contains(m[1], "://") {
			continue
		}
		n++
		file, place, _ := strings.Cut(m[1], "#")
		target := page
		if file != "" {
			target = filepath.Join(filepath.Dir(page), file)
		}
		if _, err := os.Stat(target); err != nil {
			dead = append(dead, m[1])
			continue
		}
		if place == "" || !strings.HasSuffix(target, ".md") {
			continue
		}
		to, err := os.ReadFile(target)
		require.NoError(t, err)
		if !anchors(string(to))[place] {
			dead = append(dead, m[1])
		}
	}
	return dead, n
}

// TestLinks: what a page links to in the repository is there.
func TestLinks(t *testing.T) {
	all := 0
	err := filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		// not ours
		if e.IsDir() && (strings.HasPrefix(e.Name(), ".") && len(e.Name()) > 2 ||
			e.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".md") {
			return nil
		}
		dead, n := deadLinks(t, path)
		all += n
		assert.Empty(t, dead, "links of %s", path)
		return nil
	})
	require.NoError(t, err)
	assert.GreaterOrEqual(t, all, 100, "links: this test looked in the wrong place")
	t.Logf("%d links", all)
}

// TestDeadLinks: deadLinks finds them.
func TestDeadLinks(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	text := "# A `b`, c\n[x](page.md) [y](page.md#a-b-c) [z](https://example.com/none) [u](#a-b-c)\n" +
		"[1](none.md) [2](page.md#a-b) [3](#d)\n```\n[4](none.md)\n# d\n```\n"
	require.NoError(t, os.WriteFile(page, []byte(text), 0o600))
	dead, n := deadLinks(t, page)
	assert.Equal(t, 6, n, "links")
	assert.Equal(t, []string{"none.md", "page.md#a-b", "#d"}, dead)
}
