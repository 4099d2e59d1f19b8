package grpcadapter_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The page has a row for each answer, with its code.
func TestThePageHasEveryAnswer(t *testing.T) {
	code, err := os.ReadFile("answer.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/grpc.md")
	if err != nil {
		t.Fatal(err)
	}
	answers := regexp.MustCompile(`answer\{"([A-Z_]+)", codes\.(\w+),`).FindAllStringSubmatch(
		string(code), -1)
	if len(answers) < 15 {
		t.Fatalf("only %d answers in answer.go: it is written otherwise", len(answers))
	}
	for _, a := range answers {
		found := false
		for row := range strings.Lines(string(page)) {
			found = found || strings.HasPrefix(row, "|") && strings.Contains(row, "`"+a[1]+"`") &&
				strings.Contains(row, a[2])
		}
		if !found {
			t.Errorf("docs/grpc.md has no row of %s with %s", a[1], a[2])
		}
	}
}
