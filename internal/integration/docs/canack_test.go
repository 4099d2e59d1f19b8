package docs_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// aboutTheKey are the fields of a dedup.Result that are there without a value.
var aboutTheKey = []string{"Outcome", "Attempt", "Record", "Cause"}

// reading finds values that are read where the code knows only that the message is done.
type reading struct {
	fset  *token.FileSet
	found []string
}

// valuesUnderCanAck lists the values that a file reads in a branch where dedup.CanAck(err) or
// errors.Is(err, dedup.ErrNoResult) holds, if they came from the same call as err and err may be
// not nil.
func valuesUnderCanAck(fset *token.FileSet, f *ast.File) []string {
	r := &reading{fset: fset}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BlockStmt:
			r.statements(n.List, n)
		case *ast.CaseClause:
			r.statements(n.Body, n)
		case *ast.CommClause:
			r.statements(n.Body, n)
		}
		return true
	})
	slices.Sort(r.found)
	return slices.Compact(r.found)
}

// statements looks at the branches among the statements of a block.
func (r *reading) statements(list []ast.Stmt, in ast.Node) {
	for i, s := range list {
		switch s := s.(type) {
		case *ast.IfStmt:
			for _, name := range done(s.Cond) {
				r.region(s.Body.List, name, r.partners(in, s, name))
			}
			if s.Else == nil && leaves(s.Body.List) {
				if not, ok := s.Cond.(*ast.UnaryExpr); ok && not.Op == token.NOT {
					for _, name := range done(not.X) {
						r.region(list[i+1:], name, r.partners(in, s, name))
					}
				}
			}
		case *ast.SwitchStmt:
			for _, c := range s.Body.List {
				clause := c.(*ast.CaseClause)
				for _, cond := range clause.List {
					for _, name := range done(cond) {
						r.region(clause.Body, name, r.partners(in, s, name))
					}
				}
			}
		}
	}
}

// done lists the errors that may be not nil, of a message that is done, when cond is true.
func done(cond ast.Expr) []string {
	switch c := cond.(type) {
	case *ast.ParenExpr:
		return done(c.X)
	case *ast.BinaryExpr:
		left, right := done(c.X), done(c.Y)
		if c.Op == token.LAND {
			none := isNil(c.X, token.EQL)
			if none == "" {
				none = isNil(c.Y, token.EQL)
			}
			return slices.DeleteFunc(append(left, right...), func(name string) bool {
				return name == none
			})
		}
		return append(left, right...)
	case *ast.CallExpr:
		fn, ok := c.Fun.(*ast.SelectorExpr)
		if !ok || len(c.Args) == 0 {
			return nil
		}
		err, ok := c.Args[0].(*ast.Ident)
		if !ok {
			return nil
		}
		if fn.Sel.Name == "CanAck" ||
			fn.Sel.Name == "Is" && len(c.Args) == 2 && named(c.Args[1]) == "ErrNoResult" {
			return []string{err.Name}
		}
	}
	return nil
}

func named(e ast.Expr) string {
	if s, ok := e.(*ast.SelectorExpr); ok {
		return s.Sel.Name
	}
	return ""
}

// isNil returns the name of the variable that e compares with nil.
func isNil(e ast.Expr, op token.Token) string {
	b, ok := e.(*ast.BinaryExpr)
	if !ok || b.Op != op {
		return ""
	}
	x, ok1 := b.X.(*ast.Ident)
	y, ok2 := b.Y.(*ast.Ident)
	if !ok1 || !ok2 || y.Name != "nil" {
		return ""
	}
	return x.Name
}

// leaves reports whether the last of the statements leaves the block.
func leaves(list []ast.Stmt) bool {
	if len(list) == 0 {
		return false
	}
	switch last := list[len(list)-1].(type) {
	case *ast.ReturnStmt, *ast.BranchStmt:
		return true
	case *ast.ExprStmt:
		call, ok := last.X.(*ast.CallExpr)
		return ok && slices.Contains([]string{"Fatal", "Fatalf", "Exit"}, named(call.Fun))
	}
	return false
}

// partners are the variables that the last assignment of err before a branch has set too.
func (r *reading) partners(in ast.Node, branch ast.Stmt, err string) (names []string) {
	look := func(n ast.Node) {
		ast.Inspect(n, func(n ast.Node) bool {
			a, ok := n.(*ast.AssignStmt)
			if !ok || a.Pos() > branch.End() || len(a.Rhs) != 1 {
				return true
			}
			var all []string
			sets := false
			for _, lhs := range a.Lhs {
				if id, ok := lhs.(*ast.Ident); ok && id.Name == err {
					sets = true
				} else if ok && id.Name != "_" {
					all = append(all, id.Name)
				}
			}
			if sets && (a.Pos() < branch.Pos() || isInit(branch, a)) {
				names = all
			}
			return true
		})
	}
	look(in)
	return names
}

func isInit(branch ast.Stmt, a *ast.AssignStmt) bool {
	switch s := branch.(type) {
	case *ast.IfStmt:
		return s.Init == a
	case *ast.SwitchStmt:
		return s.Init == a
	}
	return false
}

// region looks for the values in statements where err may be not nil.
func (r *reading) region(list []ast.Stmt, err string, values []string) {
	for _, s := range list {
		if known, ok := s.(*ast.IfStmt); ok {
			switch err {
			case isNil(known.Cond, token.EQL):
				if known.Else != nil {
					r.region([]ast.Stmt{known.Else}, err, values)
				}
				continue
			case isNil(known.Cond, token.NEQ):
				r.region(known.Body.List, err, values)
				if leaves(known.Body.List) {
					return // it is nil from here on
				}
				continue
			}
		}
		r.reads(s, values)
	}
}

func (r *reading) reads(s ast.Stmt, values []string) {
	fine := map[*ast.Ident]bool{}
	ast.Inspect(s, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if id, ok := n.X.(*ast.Ident); ok && slices.Contains(aboutTheKey, n.Sel.Name) {
				fine[id] = true
			}
			fine[n.Sel] = true
		case *ast.Ident:
			if slices.Contains(values, n.Name) && !fine[n] {
				r.found = append(r.found,
					fmt.Sprintf("%s: %s is read, and all that is known is that the message is done",
						r.fset.Position(n.Pos()), n.Name))
			}
		}
		return true
	})
}

// TestNoValueIsReadUnderCanAck: CanAck says that a message is done. A page or an example that hands
// out a value because of that may hand out an empty one.
func TestNoValueIsReadUnderCanAck(t *testing.T) {
	fset := token.NewFileSet()
	looked, said := 0, 0
	look := func(name string, source any) {
		f, err := parser.ParseFile(fset, name, source, 0)
		require.NoError(t, err)
		looked++
		assert.Empty(t, valuesUnderCanAck(fset, f))
	}
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "node_modules"):
			return filepath.SkipDir
		case name == "README.md" || strings.HasPrefix(name, "docs"+string(filepath.Separator)) &&
			strings.HasSuffix(name, ".md"):
			text, err := os.ReadFile(path)
			for _, s := range snippets(name, string(text)) {
				if strings.Contains(s.code, "CanAck(") {
					said++
				}
				look(name, s.source())
			}
			return err
		case strings.HasPrefix(name, "examples"+string(filepath.Separator)) &&
			strings.HasSuffix(name, ".go"),
			strings.HasPrefix(d.Name(), "example") && strings.HasSuffix(name, "_test.go"):
			text, err := os.ReadFile(path)
			if bytes.Contains(text, []byte("CanAck(")) {
				said++
			}
			look(name, text)
			return err
		}
		return nil
	}))
	assert.Greater(t, looked, 30, "this test looked in the wrong place")
	assert.GreaterOrEqual(t, said, 3, "nobody shows CanAck")
}

// TestValuesReadUnderCanAckAreFound finds the planted faults, and no other.
func TestValuesReadUnderCanAckAreFound(t *testing.T) {
	for name, row := range map[string]struct {
		code string
		bad  int
	}{
		"if": {"res, err := do()\nif dedup.CanAck(err) { show(res.Value) }",
			1},
		"with an init": {"if res, err := do(); dedup.CanAck(err) { show(res.Value) }",
			1},
		"of another function": {
			"receipt, err := charge()\nif dedup.CanAck(err) { show(receipt) }", 1},
		"case": {
			"res, err := do()\nswitch { case dedup.CanAck(err): show(res.Value) }", 1},
		"one of two cases": {
			"res, err := do()\nswitch { case err == nil, errors.Is(err, dedup.ErrNoResult): show(res.Value) }", 1},
		"or": {
			"res, err := do()\nif err == nil || dedup.CanAck(err) { show(res.Value) }", 1},
		"guard": {
			"res, err := do()\nif !dedup.CanAck(err) { return err }\nack()\nshow(res.Value)", 1},
		"guard in a loop": {
			"for {\nres, err := do()\nif !dedup.CanAck(err) { continue }\nshow(res.Value)\n}", 1},
		"deeper": {
			"res, err := do()\nif dedup.CanAck(err) { if loud { show(res.Value) } }", 1},
		"where it is not nil": {
			"res, err := do()\nif dedup.CanAck(err) { if err != nil { show(res.Value) } }", 1},
		"twice": {
			"res, err := do()\nif dedup.CanAck(err) { show(res.Value)\nshow(res.Value) }", 2},
		"the key's": {
			"res, err := do()\nif dedup.CanAck(err) { show(res.Outcome, res.Record.Age) }", 0},
		"nothing read": {"_, err := do()\nif dedup.CanAck(err) { ack() }", 0},
		"nil is known": {
			"res, err := do()\nif dedup.CanAck(err) && err == nil { show(res.Value) }", 0},
		"nil is found out": {
			"res, err := do()\nif dedup.CanAck(err) { ack()\nif err == nil { show(res.Value) } }",
			0},
		"not nil has gone": {
			"res, err := do()\nif !dedup.CanAck(err) { return err }\nif err != nil { return nil }\nshow(res.Value)", 0},
		"before": {
			"res, err := do()\nif err == nil { show(res.Value) }\nif dedup.CanAck(err) { ack() }",
			0},
		"a case of its own": {
			"res, err := do()\nswitch { case err == nil: show(res.Value)\ncase dedup.CanAck(err): ack() }", 0},
		"another error's value": {
			"res, err := do()\nshown, err2 := do()\nif dedup.CanAck(err2) { show(res.Value) }; _ = shown", 0},
		"an error that is set on": {
			"res, err := do()\n_, err = do()\nif dedup.CanAck(err) { show(res.Value) }", 0},
	} {
		t.Run(name, func(t *testing.T) {
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, "page.go",
				"package page\nfunc _() error {\n"+row.code+"\nreturn nil }", 0)
			require.NoError(t, err)
			assert.Len(t, valuesUnderCanAck(fset, f), row.bad)
		})
	}
}
