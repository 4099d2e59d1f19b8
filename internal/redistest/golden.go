package redistest

import (
	"encoding/hex"
	"os"
	"strings"
	"testing"
)

// Golden reads from a file a value that servers hold: hexadecimal, with a comment on every field.
func Golden(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var digits strings.Builder
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		digits.WriteString(strings.TrimSpace(line))
	}
	b, err := hex.DecodeString(digits.String())
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return string(b)
}
