package httpadapter_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The type of a problem is an address: it must lead somewhere.
func TestEveryProblemIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("webhook/*.go")
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`problem\.Problem\{Name: "([a-z-]+)"`)
	found := 0
	for _, file := range append(files, more...) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range name.FindAllStringSubmatch(string(text), -1) {
			found++
			if !strings.Contains(string(page), `<a id="`+m[1]+`"></a>`) {
				t.Errorf("%s: docs/http.md has no anchor %s", file, m[1])
			}
		}
	}
	if found < 20 {
		t.Errorf("found %d problems: this test looked in the wrong place", found)
	}
}
