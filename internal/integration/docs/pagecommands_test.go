package docs_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// blockWith returns the one block of a page that has a text.
func blockWith(t *testing.T, page, text string) string {
	t.Helper()
	var found []string
	for _, block := range fenced.FindAllString(read(t, page), -1) {
		if strings.Contains(block, text) && !strings.HasPrefix(block, "```go") {
			lines := strings.Split(block, "\n")
			found = append(found, strings.Join(lines[1:len(lines)-1], "\n"))
		}
	}
	require.Len(t, found, 1, "blocks of %s with %q", page, text)
	return found[0]
}

// pageCommands runs the commands of a page against a program that listens elsewhere, and returns
// what they print.
func pageCommands(t *testing.T, page, with, listen string) string {
	t.Helper()
	return runPage(t, page, with, "127.0.0.1:8080", listen)
}

// runPage runs the block of a page that contains with, with example replaced by instead, and
// returns what the commands print to standard output.
func runPage(t *testing.T, page, with, example, instead string, env ...string) string {
	t.Helper()
	commands := blockWith(t, page, with)
	require.Contains(t, commands, example, page)
	cmd := exec.CommandContext(t.Context(), "sh", "-ec",
		strings.ReplaceAll(commands, example, instead))
	cmd.Env = append(append(os.Environ(), "no_proxy=*"), env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s%s", out, &stderr)
	return string(out)
}

// wantShown requires that the lines that a page shows are in an output, in this order. "..." stands
// for any lines.
func wantShown(t *testing.T, page, with, output string) {
	t.Helper()
	lines := strings.Split(strings.ReplaceAll(output, "\r", ""), "\n")
	for want := range strings.SplitSeq(blockWith(t, page, with), "\n") {
		if want == "..." {
			continue
		}
		for len(lines) > 0 && lines[0] != want {
			lines = lines[1:]
		}
		if !assert.NotEmpty(t, lines, "%s shows %q, which does not come, or not there:\n%s", page,
			want, output) {
			return
		}
		lines = lines[1:]
	}
}
