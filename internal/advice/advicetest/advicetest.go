// Package advicetest checks that users can read about each finding of an adapter.
package advicetest

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/advice"
)

// row matches a line such as
//
//	| critical or warning `collation` | the index compares keys by a collation |
var row = regexp.MustCompile("(?m)^\\| ([a-z ]+) `(\\w+)` \\| .+ \\|$")

// Documented fails the test unless a section of a page lists the codes of the table, each once and
// with its severity, and no other code. It also requires a reason and a fix for each.
func Documented(t *testing.T, table advice.Table, page, section string) {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "\n"+section+"\n")
	require.True(t, found, "%s has no section %q", page, section)
	rest, _, _ = strings.Cut(rest, "\n#")
	var listed, codes []string
	for _, cells := range row.FindAllStringSubmatch(rest, -1) {
		severity := table[cells[2]].Severity.String()
		assert.True(t, slices.Contains(strings.Fields(cells[1]), severity),
			"%s is of severity %s, and the page says %s", cells[2], severity, cells[1])
		listed = append(listed, cells[2])
	}
	for code, f := range table {
		assert.NotEmpty(t, f.Why, code)
		assert.NotEmpty(t, f.Fix, code)
		codes = append(codes, code)
	}
	assert.ElementsMatch(t, codes, listed, "codes, and rows of %s in %s", section, page)
}
