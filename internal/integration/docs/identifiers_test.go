package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// exported matches a name of a package in a page: dedup.Do, dedup.Config.Window.
var exported = regexp.MustCompile(`(?:^|[^\w./*])([a-z][a-z0-9]*)\.([A-Z]\w*)(?:\.([A-Z]\w*))?`)

// notExported matches tests, which the page about security names, and words in capitals, which
// stand for something.
var notExported = regexp.MustCompile(`^(Test|Fuzz|Benchmark|Example)[A-Z]|^[A-Z]{2,}$`)

// code matches a span of code in the text of a page.
var code = regexp.MustCompile("`[^`\n]+`")

// names are the names that a package exports: its declarations, and "Type.Member" of fields and
// methods. A type that embeds another one may have any member.
type names map[string]bool

// namesOf reads the names of a package in a folder.
func namesOf(t *testing.T, dir string) names {
	t.Helper()
	all := names{}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range f.Decls {
			all.declare(d)
		}
	}
	return all
}

func (all names) declare(d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			all[d.Name.Name] = true
			return
		}
		if of := receiver(d.Recv.List[0].Type); of != "" {
			all[of+"."+d.Name.Name] = true
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.ValueSpec:
				for _, n := range s.Names {
					all[n.Name] = true
				}
			case *ast.TypeSpec:
				all.member(s)
			}
		}
	}
}

// receiver is the name of a receiver's type.
func receiver(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.Ident:
		return of.Name
	case *ast.StarExpr:
		return receiver(of.X)
	case *ast.IndexExpr:
		return receiver(of.X)
	case *ast.IndexListExpr:
		return receiver(of.X)
	}
	return ""
}

// member notes a type, and its fields or methods.
func (all names) member(s *ast.TypeSpec) {
	all[s.Name.Name] = true
	var fields *ast.FieldList
	switch of := s.Type.(type) {
	case *ast.StructType:
		fields = of.Fields
	case *ast.InterfaceType:
		fields = of.Methods
	default: // another type's name: it may have any member
		all[s.Name.Name+".*"] = true
		return
	}
	for _, f := range fields.List {
		if len(f.Names) == 0 {
			all[s.Name.Name+".*"] = true
		}
		for _, n := range f.Names {
			all[s.Name.Name+"."+n.Name] = true
		}
	}
}

// firstColumn is that of the rows of a table.
var firstColumn = regexp.MustCompile(`(?m)^\|[^|]*\|`)

// unknownNames are names that a page has of our packages, and that these do not export.
func unknownNames(page string, ours map[string]names) (unknown []string, n int) {
	for _, span := range code.FindAllString(fenced.ReplaceAllString(page, ""), -1) {
		for _, m := range exported.FindAllStringSubmatch(span, -1) {
			of := ours[m[1]]
			if of == nil || notExported.MatchString(m[2]) {
				continue
			}
			n++
			if !of[m[2]] || m[3] != "" && !of[m[2]+"."+m[3]] && !of[m[2]+".*"] {
				unknown = append(unknown, strings.TrimRight(m[1]+"."+m[2]+"."+m[3], "."))
			}
		}
	}
	return unknown, n
}

// TestIdentifiers: names of our packages in the text of pages are exported. TestSnippets has the
// names in blocks of code.
func TestIdentifiers(t *testing.T) {
	ours := map[string]names{}
	require.NoError(t, filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return err
		}
		if strings.HasPrefix(e.Name(), ".") && e.Name() != ".." || e.Name() == "internal" ||
			e.Name() == "testdata" || e.Name() == "node_modules" {
			return filepath.SkipDir
		}
		if all := namesOf(t, path); len(all) > 0 && ours[e.Name()] == nil {
			ours[e.Name()] = all
		}
		return nil
	}))
	all := 0
	for _, page := range pages(t) {
		if strings.HasPrefix(page, filepath.Join("docs", "internals")) {
			continue // these pages also name unexported things
		}
		text, err := os.ReadFile(filepath.Join(root, page))
		require.NoError(t, err)
		if page == filepath.Join("docs", "guides", "upgrading.md") {
			text = firstColumn.ReplaceAll(text, []byte("|")) // names of earlier versions
		}
		unknown, n := unknownNames(string(text), ours)
		all += n
		assert.Empty(t, unknown, "names in %s", page)
	}
	assert.GreaterOrEqual(t, all, 150, "names: this test looked in the wrong place")
	t.Logf("%d names of %d packages", all, len(ours))
}

// TestUnknownNames: unknownNames finds unknown names, and no others.
func TestUnknownNames(t *testing.T) {
	ours := map[string]names{"dedup": {"Do": true, "Config": true, "Config.Window": true,
		"Store": true, "Store.*": true}}
	unknown, n := unknownNames("`dedup.Do(ctx)` `dedup.Config.Window` `dedup.Store.Any` "+
		"`dedup.Gone` `dedup.Config.Gone` `other.Name` `dedup.TestX` dedup.InNoCode\n"+
		"```\n`dedup.InABlock`\n```\n", ours)
	assert.Equal(t, 5, n, "names")
	assert.Equal(t, []string{"dedup.Gone", "dedup.Config.Gone"}, unknown)
}
