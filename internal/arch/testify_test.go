package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTestsUseTestify fails when a test checks by hand. That takes three lines, and the message
// often lacks one of the values.
func TestTestsUseTestify(t *testing.T) {
	folders := testFolders(t, modules(t)[module])
	require.NotEmpty(t, folders, "there are no tests: this test looked in the wrong place")
	for _, files := range folders {
		assert.Empty(t, testifyFaults(t, files, nil))
	}
}

// testFolders returns the test files below root by their folders.
func testFolders(t *testing.T, root string) map[string][]string {
	t.Helper()
	folders := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && path != root &&
			(d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".")) {
			return filepath.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		folders[filepath.ToSlash(folder)] = append(folders[filepath.ToSlash(folder)], path)
		return err
	})
	require.NoError(t, err)
	return folders
}

// testifyFaults returns the checks by hand in the test files of a folder. A folder whose tests do
// not import testify at all has a fault too.
func testifyFaults(t *testing.T, files []string, source any) []string {
	t.Helper()
	var found []string
	var tests, imports bool
	for _, path := range files {
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, source, parser.SkipObjectResolution)
		require.NoError(t, err)
		imports = imports || slices.ContainsFunc(f.Imports, func(s *ast.ImportSpec) bool {
			return within(strings.Trim(s.Path.Value, `"`), testify)
		})
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				tests = tests || strings.HasPrefix(n.Name.Name, "Test") && n.Name.Name != "TestMain"
			case *ast.IfStmt:
				if byHand(n.Body.List) {
					at := fset.Position(n.Pos())
					found = append(found,
						fmt.Sprintf("%s: a check by hand: use assert or require", at))
				}
			}
			return true
		})
	}
	if tests && !imports {
		found = append(found, filepath.Dir(files[0])+": its tests do not import testify")
	}
	return found
}

// byHand reports whether all that the body of an if does is to fail the test.
func byHand(body []ast.Stmt) bool {
	if len(body) == 2 {
		switch body[1].(type) {
		case *ast.ReturnStmt, *ast.BranchStmt:
			body = body[:1]
		}
	}
	if len(body) != 1 {
		return false
	}
	x, ok := body[0].(*ast.ExprStmt)
	if !ok {
		return false
	}
	call, ok := x.X.(*ast.CallExpr)
	if !ok {
		return false
	}
	fun, ok := call.Fun.(*ast.SelectorExpr)
	return ok && isT(fun.X) &&
		slices.Contains([]string{"Error", "Errorf", "Fatal", "Fatalf"}, fun.Sel.Name)
}

// isT reports whether an expression is a testing.TB by its name. One that is called b is left out:
// the loop of a benchmark checks by hand, because an assertion takes time.
func isT(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return slices.Contains([]string{"t", "f", "tb"}, e.Name)
	case *ast.SelectorExpr:
		return isT(e.Sel)
	}
	return false
}

// Every form of a check by hand must be seen, and nothing else.
func TestChecksByHandAreSeen(t *testing.T) {
	const file = "package p\nimport \"" + testify + "/require\"\nfunc TestF(t *testing.T) { %s }"
	for body, want := range map[string]int{
		"if err != nil { t.Fatal(err) }":                         1,
		"if err := g(); err != nil { s.t.Error(err); return }":   1,
		"if a { g() } else if c { tb.Errorf(`%d`, 1) }":          1,
		"for { if a { t.Error(1); continue } }":                  1,
		"t.Fatal(err)":                                           0,
		"for b.Loop() { if a { b.Fatal(1) } }":                   0,
		"if err != nil { log.Fatal(err) }":                       0,
		"if err != nil { g(); t.Error(err) }":                    0,
		"if !assert.NoError(t, err) { return }":                  0,
		"if a { require.NoError(t, err) } else { t.Error(`b`) }": 0,
	} {
		got := testifyFaults(t, []string{"a_test.go"}, strings.Replace(file, "%s", body, 1))
		assert.Len(t, got, want, body)
	}
	for source, want := range map[string]int{
		"package p\nfunc TestF(t *testing.T) { t.Error(1) }": 1,
		"package p\nfunc Example() {}":                       0,
		"package p\nfunc TestMain(m *testing.M) {}":          0,
	} {
		assert.Len(t, testifyFaults(t, []string{"a_test.go"}, source), want, source)
	}
}
