package telemetry_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The page has each metric and each attribute, and no others.
func TestThePageHasEveryMetric(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/telemetry.md")
	require.NoError(t, err)
	told := map[string]bool{}
	for line := range strings.Lines(string(page)) {
		if cells := strings.Split(line, "|"); len(cells) > 3 { // a row of a table
			for _, name := range regexp.MustCompile(
				"`(onceward\\.[a-z_.]+)`").FindAllStringSubmatch(cells[1]+
				cells[min(4, len(cells)-1)], -1) {
				told[name[1]] = false
			}
		}
	}
	made := regexp.MustCompile(`"(onceward\.[a-z_.]+)"`)
	for _, file := range sources(t) {
		code, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, name := range made.FindAllStringSubmatch(string(code), -1) {
			_, is := told[name[1]]
			assert.False(t, !is && name[1] != "onceward.name",
				"docs/reference/telemetry.md has no row of %s, of %s", name[1], file)
			told[name[1]] = true
		}
	}
	for name, is := range told {
		assert.True(t, is, "docs/reference/telemetry.md has %s, which nothing makes", name)
	}
}

// sources are the files of the module, without tests.
func sources(t *testing.T) []string {
	t.Helper()
	var files []string
	for _, dir := range []string{".", "redismetric", "kafkametric", "httptrace",
		"kafkatrace", "internal/meter", "internal/span"} {
		found, err := filepath.Glob(dir + "/*.go")
		require.NoError(t, err, "no files in %s", dir)
		require.NotEmpty(t, found, "no files in %s", dir)
		files = append(files, found...)
	}
	return slices.DeleteFunc(files, func(name string) bool {
		return strings.HasSuffix(name, "_test.go")
	})
}
