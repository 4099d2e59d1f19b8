package grpcadapter_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The page has a row for each answer, with its code.
func TestThePageHasEveryAnswer(t *testing.T) {
	code, err := os.ReadFile("answer.go")
	require.NoError(t, err)
	page, err := os.ReadFile("../../docs/reference/grpc.md")
	require.NoError(t, err)
	answers := regexp.MustCompile(`answer\{"([A-Z_]+)", codes\.(\w+),`).FindAllStringSubmatch(
		string(code), -1)
	require.GreaterOrEqual(t, len(answers), 15, "answers in answer.go: it is written otherwise")
	for _, a := range answers {
		found := false
		for row := range strings.Lines(string(page)) {
			found = found || strings.HasPrefix(row, "|") && strings.Contains(row, "`"+a[1]+"`") &&
				strings.Contains(row, a[2])
		}
		assert.True(t, found, "docs/reference/grpc.md has no row of %s with %s", a[1], a[2])
	}
}
