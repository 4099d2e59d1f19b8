package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var watched = regexp.MustCompile("`(onceward\\.[a-z_.]+|Onceward[A-Z][A-Za-z]+)`")

// TestNames: the metrics and alerts that a guide tells to watch are those there are.
func TestNames(t *testing.T) {
	telemetry, err := os.ReadFile(filepath.Join(root, "docs/telemetry.md"))
	if err != nil {
		t.Fatal(err)
	}
	guides, err := filepath.Glob(filepath.Join(root, "docs/guides/*.md"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, guide := range guides {
		text, err := os.ReadFile(guide)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range watched.FindAllString(string(text), -1) {
			if n++; !strings.Contains(string(telemetry), m) {
				t.Errorf("%s: %s is not in docs/telemetry.md", guide, m)
			}
		}
	}
	if n < 30 {
		t.Errorf("%d names: this test looked in the wrong place", n)
	}
}
