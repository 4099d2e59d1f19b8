package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCoreStaysSmall holds the core to a number of exported names that a person can learn.
func TestCoreStaysSmall(t *testing.T) {
	names := slices.DeleteFunc(exports(parse(t, filepath.Join(modules(t)[module], core))),
		func(e export) bool { return e.ofInterface || strings.HasSuffix(e.name, ".Error") })
	t.Logf("%s exports %d names; at most %d are allowed", core, len(names), coreExports)
	assert.LessOrEqual(t, len(names), coreExports, "exported names of %s", core)
	assert.NotEmpty(t, names, "%s exports nothing: this test looked in the wrong place", core)
}

// TestDocumented wants a comment on every exported name that users can reach, and on every package.
func TestDocumented(t *testing.T) {
	for _, p := range shippedPackages(t) {
		files := parse(t, p.Dir)
		assert.False(t, len(files) > 0 && !packageDocumented(files), "package %s has no comment",
			p.ImportPath)
		name, _ := rel(p.ImportPath)
		if table[name].role == tool {
			continue
		}
		for _, e := range exports(files) {
			assert.True(t, e.documented, "%s.%s has no comment", p.ImportPath, e.name)
		}
	}
}

// parse reads the Go files of a directory, without tests.
func parse(t *testing.T, dir string) []*ast.File {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		require.NoError(t, err)
		files = append(files, f)
	}
	return files
}

func packageDocumented(files []*ast.File) bool {
	for _, f := range files {
		if f.Doc != nil {
			return true
		}
	}
	return false
}

// export is one exported name: a function, type, variable, constant, a method of an exported type
// or interface. Fields are none: they come with their type.
type export struct {
	name        string
	documented  bool
	ofInterface bool
}

func exports(files []*ast.File) []export {
	var found []export
	for _, f := range files {
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				found = append(found, function(d)...)
			case *ast.GenDecl:
				for _, s := range d.Specs {
					found = append(found, spec(d, s)...)
				}
			}
		}
	}
	return found
}

func function(d *ast.FuncDecl) []export {
	name := d.Name.Name
	if d.Recv != nil {
		receiver := typeName(d.Recv.List[0].Type)
		if !ast.IsExported(receiver) {
			return nil
		}
		name = receiver + "." + name
	}
	if !d.Name.IsExported() {
		return nil
	}
	return []export{{name: name, documented: d.Doc != nil}}
}

// typeName returns T for T, *T, T[K] and *T[K].
func typeName(e ast.Expr) string {
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		case *ast.Ident:
			return x.Name
		default:
			return fmt.Sprintf("%T", e)
		}
	}
}

// spec accepts, for constants and variables, a comment on the group or at the end of the line.
func spec(d *ast.GenDecl, s ast.Spec) []export {
	var found []export
	switch s := s.(type) {
	case *ast.ValueSpec:
		for _, n := range s.Names {
			if n.IsExported() {
				found = append(found, export{name: n.Name, documented: d.Doc != nil ||
					s.Doc != nil || s.Comment != nil})
			}
		}
	case *ast.TypeSpec:
		if !s.Name.IsExported() {
			return nil
		}
		found = append(found, export{name: s.Name.Name, documented: s.Doc != nil ||
			d.Doc != nil && !d.Lparen.IsValid()})
		if i, ok := s.Type.(*ast.InterfaceType); ok {
			found = append(found, methods(s.Name.Name, i)...)
		}
	}
	return found
}

func methods(of string, i *ast.InterfaceType) []export {
	var found []export
	for _, m := range i.Methods.List {
		for _, n := range m.Names {
			if n.IsExported() {
				found = append(found, export{of + "." + n.Name, m.Doc != nil || m.Comment != nil,
					true})
			}
		}
	}
	return found
}

// TestExports checks which names count, and which count as documented.
func TestExports(t *testing.T) {
	const source = `package p
// Documented is.
func Documented() {}
func Bare() {}
func hidden() {}
// T is.
type T[K any] struct{ Field int }
func (*T[K]) Method() {}
func (*T[K]) hidden() {}
type hiddenType struct{}
// Method is, but of a hidden type.
func (hiddenType) Method() {}
// I is.
type I interface { A(); b()
	B() // B is.
	error }
// The group is.
const ( One = iota; Two; three )
var Loose int
var Line int // Line is.
`
	f, err := parser.ParseFile(token.NewFileSet(), "p.go", source, parser.ParseComments)
	require.NoError(t, err)
	want := map[string]bool{"Documented": true, "Bare": false, "T": true, "T.Method": false,
		"I":   true,
		"I.A": false, "I.B": true, "One": true, "Two": true, "Loose": false, "Line": true}
	got := exports([]*ast.File{f})
	for _, e := range got {
		documented, ok := want[e.name]
		assert.True(t, ok, "%+v was not expected", e)
		assert.Equal(t, e.documented, documented)
	}
	assert.Len(t, got, len(want))
}
