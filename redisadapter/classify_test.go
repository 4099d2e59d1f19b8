package redisadapter

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestClassifyIsDocumented: the comment of Classify lists the values that the code has, and no
// other. Users compare with what they read there.
func TestClassifyIsDocumented(t *testing.T) {
	source, err := os.ReadFile("errors.go")
	require.NoError(t, err)
	values := func(line string) (all []string) {
		for _, match := range regexp.MustCompile(line).FindAllSubmatch(source, -1) {
			all = append(all, string(match[1]))
		}
		return all
	}
	declared := values(`(?m)^\tclass\w+ += "(\w*)"`)
	assert.ElementsMatch(t, declared, values(`(?m)^//   - "(\w*)"(?: for nil\.$|: )`))
	assert.Contains(t, declared, classReadOnly)
}
