package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestNoSleepInTests refuses time.Sleep: a test must wait for the event that it needs. A sleep is
// either longer than needed or, on a busy machine, shorter. In files that use testing/synctest the
// time is fake.
func TestNoSleepInTests(t *testing.T) {
	seen := 0
	err := filepath.WalkDir(modules(t)[module], func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		seen++
		for _, s := range sleeps(t, path, nil) {
			t.Error(s)
		}
		return nil
	})
	require.NoError(t, err)
	assert.NotZero(t, seen, "there are no test files: this test looked in the wrong place")
}

// sleeps returns the places where a file calls time.Sleep without fake time.
func sleeps(t *testing.T, path string, source any) []string {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, path, source, parser.SkipObjectResolution)
	require.NoError(t, err)
	for _, imp := range f.Imports {
		if imp.Path.Value == `"testing/synctest"` {
			return nil
		}
	}
	var found []string
	ast.Inspect(f, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok || s.Sel.Name != "Sleep" {
			return true
		}
		if x, ok := s.X.(*ast.Ident); ok && x.Name == "time" {
			found = append(found,
				fmt.Sprintf("%s: time.Sleep: wait for an event, or poll with a deadline",
					fset.Position(n.Pos())))
		}
		return true
	})
	return found
}

func TestSleepsAreSeen(t *testing.T) {
	const body = "\nimport \"time\"\nfunc f() { time.Sleep(time.Second) }\n"
	assert.Len(t, sleeps(t, "a_test.go", "package p"+body), 1, "a sleep in real time")
	got := sleeps(t, "b_test.go",
		"package p\nimport \"testing/synctest\""+body+"var _ = synctest.Wait\n")
	assert.Empty(t, got, "a sleep in fake time")
}
