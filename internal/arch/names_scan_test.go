package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"strings"
)

// kind is what a name is declared as.
type kind int

const (
	packageName kind = iota
	typeDecl
	packageLevel // a function, or a variable or constant of the package
	method
	field
	local // a variable or a parameter of a function
)

// declaration is one declared name.
type declaration struct {
	kind  kind
	owner string // the type that a method or a field belongs to
	name  string
	line  int
}

// declarations returns what a file declares. Of a test these are its package and its types: the
// other names of tests are sentences.
func declarations(file string, source []byte) ([]declaration, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	s := scan{fset: fset, test: strings.HasSuffix(file, "_test.go")}
	s.add(packageName, "", f.Name)
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			s.function(d)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				s.spec(spec)
			}
		}
	}
	return s.found, nil
}

// scan collects the declarations of a file.
type scan struct {
	fset  *token.FileSet
	test  bool
	found []declaration
}

func (s *scan) add(k kind, owner string, names ...*ast.Ident) {
	if s.test && k != packageName && k != typeDecl {
		return
	}
	for _, n := range names {
		if n.Name != "_" {
			s.found = append(s.found, declaration{k, owner, n.Name, s.fset.Position(n.Pos()).Line})
		}
	}
}

func (s *scan) function(d *ast.FuncDecl) {
	if d.Recv == nil {
		s.add(packageLevel, "", d.Name)
	} else {
		s.add(method, typeName(d.Recv.List[0].Type), d.Name)
	}
	s.locals(d)
}

func (s *scan) spec(spec ast.Spec) {
	switch spec := spec.(type) {
	case *ast.ValueSpec:
		s.add(packageLevel, "", spec.Names...)
		for _, v := range spec.Values {
			s.locals(v)
		}
	case *ast.TypeSpec:
		s.typeSpec(spec)
	}
}

func (s *scan) typeSpec(spec *ast.TypeSpec) {
	s.add(typeDecl, "", spec.Name)
	ast.Inspect(spec.Type, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.StructType:
			for _, f := range n.Fields.List {
				s.add(field, spec.Name.Name, f.Names...)
			}
		case *ast.InterfaceType:
			for _, m := range n.Methods.List {
				s.add(method, spec.Name.Name, m.Names...)
			}
		}
		return true
	})
}

// locals adds what is declared inside of a function, its parameters included.
func (s *scan) locals(root ast.Node) {
	ast.Inspect(root, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.TypeSpec:
			s.typeSpec(n)
			return false
		case *ast.FuncType:
			for _, f := range n.Params.List {
				s.add(local, "", f.Names...)
			}
		case *ast.ValueSpec:
			s.add(local, "", n.Names...)
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				s.idents(n.Lhs...)
			}
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				s.idents(n.Key, n.Value)
			}
		}
		return true
	})
}

func (s *scan) idents(exprs ...ast.Expr) {
	for _, e := range exprs {
		if id, ok := e.(*ast.Ident); ok {
			s.add(local, "", id)
		}
	}
}

// denied returns what to say instead of a name, or "" if nothing speaks against it.
func denied(d declaration) string {
	if d.kind == packageName {
		return deniedPackages[strings.TrimSuffix(d.name, "_test")]
	}
	parts := split(d.name)
	whole := strings.Join(parts, "")
	if d.kind == local {
		if deniedLocals[whole] {
			return deniedPart(parts)
		}
		return ""
	}
	if say := deniedPart(parts); say != "" {
		return say
	}
	if d.kind == method || d.kind == field {
		return ""
	}
	if say := deniedExports[d.name]; say != "" {
		return say
	}
	if constructed, ok := strings.CutPrefix(whole, "new"); ok || d.kind == typeDecl {
		if say := deniedTypes[constructed]; say != "" {
			return say
		}
	}
	return deniedNames[whole]
}

var (
	acronym = regexp.MustCompile(`([A-Z]+)([A-Z][a-z])`)
	capital = regexp.MustCompile(`([a-z0-9])([A-Z])`)
)

// split returns the words of a name in lower case: compactTrip has compact and trip, HTTPServer has
// http and server.
func split(name string) []string {
	name = acronym.ReplaceAllString(name, "$1 $2")
	name = capital.ReplaceAllString(name, "$1 $2")
	return strings.Fields(strings.ToLower(strings.ReplaceAll(name, "_", " ")))
}

// deniedPart returns what to say instead of the first denied word of a name.
func deniedPart(parts []string) string {
	phrase := " " + strings.Join(parts, " ") + " "
	for _, a := range allowedPhrases {
		phrase = strings.ReplaceAll(phrase, " "+a+" ", " ")
		phrase = strings.ReplaceAll(phrase, " "+a+"s ", " ")
	}
	for _, p := range strings.Fields(phrase) {
		if say := deniedWords[p]; say != "" {
			return say
		}
		if say := deniedWords[strings.TrimSuffix(p, "s")]; say != "" {
			return say
		}
	}
	return ""
}

// entry is how allowedNames lists a name: the directory of its package, and the name, after its
// type where it has one.
func (d declaration) entry(file string) string {
	name := d.name
	if d.kind == packageName {
		name = "package " + strings.TrimSuffix(name, "_test")
	}
	if d.owner != "" {
		name = d.owner + "." + name
	}
	return path.Dir(file) + ": " + name
}
