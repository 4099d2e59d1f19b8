package redisadapter

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/redisadapter/internal/wire"
)

// TestClassifyIsDocumented: the comment of Classify lists the values that the code has, and no
// other. Users compare with what they read there.
func TestClassifyIsDocumented(t *testing.T) {
	values := func(file, line string) (all []string) {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, match := range regexp.MustCompile(line).FindAllSubmatch(source, -1) {
			all = append(all, string(match[1]))
		}
		return all
	}
	declared := values("internal/wire/errors.go", `(?m)^\t[Cc]lass\w+ += "(\w*)"`)
	assert.ElementsMatch(t, declared, values("store.go", `(?m)^//   - "(\w*)"(?: for nil\.$|: )`))
	assert.Contains(t, declared, wire.ClassReadOnly)
}
