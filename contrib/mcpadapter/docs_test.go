package mcpadapter_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The guide has a row for each answer.
func TestTheGuideHasEveryAnswer(t *testing.T) {
	code, err := os.ReadFile("answer.go")
	require.NoError(t, err)
	guide, err := os.ReadFile("../../docs/guides/agents.md")
	require.NoError(t, err)
	answers := regexp.MustCompile(`= answer\{"([A-Z_]+)"`).FindAllStringSubmatch(string(code), -1)
	require.Len(t, answers, 10, "answer.go is written otherwise")
	for _, a := range answers {
		assert.True(t, strings.Contains(string(guide), "\n| `"+a[1]+"` | "), "no row of %s", a[1])
	}
}
