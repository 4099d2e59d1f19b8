package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/racebuild"
)

// apiFile has a line for each name that users can write: functions, types, the exported fields and
// methods of these, variables, and constants with their values.
const apiFile = "api.txt"

var updateAPI = flag.Bool("update", false, "write api.txt anew")

// TestAPI fails when the exported API of a module that users import is not what api.txt says. A
// line that is new is an addition. A line that goes away breaks somebody's program: docs say when
// that may be.
func TestAPI(t *testing.T) {
	lines := exportedAPI(t)
	slices.Sort(lines)
	now := strings.Join(lines, "\n") + "\n"
	if *updateAPI {
		require.NoError(t, os.WriteFile(apiFile, []byte(now), 0o600))
		return
	}
	before, err := os.ReadFile(apiFile)
	require.NoError(t, err)
	was := strings.Split(strings.TrimSuffix(string(before), "\n"), "\n")
	const update = "go test ./internal/arch -run TestAPI -update writes api.txt anew"
	assert.Empty(t, without(was, lines), "gone from the API, and breaks programs; %s", update)
	assert.Empty(t, without(lines, was), "new in the API; %s", update)
}

// without returns the lines of a that b does not have.
func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(line string) bool {
		_, found := slices.BinarySearch(b, line)
		return found
	})
}

// exportedAPI returns a line for each exported name that users can import.
func exportedAPI(t *testing.T) []string {
	t.Helper()
	dirs := modules(t)
	args := append([]string{"list", "-export", "-deps", "-json=ImportPath,Export,Module"},
		append(racebuild.Flags(), dirs[module]+"/...")...)
	ours := map[string]bool{module: true}
	for _, name := range libraries {
		args = append(args, dirs[module+"/"+name]+"/...")
		ours[module+"/"+name] = true
	}
	exported := map[string]string{}
	var paths []string
	for dec := json.NewDecoder(bytes.NewReader(run(t, "go", args...))); ; {
		var p struct {
			ImportPath, Export string
			Module             *struct{ Path string }
		}
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		exported[p.ImportPath] = p.Export
		if p.Module != nil && ours[p.Module.Path] && public(p.ImportPath) {
			paths = append(paths, p.ImportPath)
		}
	}
	open := func(path string) (io.ReadCloser, error) { return os.Open(exported[path]) }
	imports := importer.ForCompiler(token.NewFileSet(), "gc", open)
	var lines []string
	for _, path := range paths {
		p, err := imports.Import(path)
		require.NoError(t, err)
		lines = append(lines, packageAPI(p)...)
	}
	return lines
}

// public reports whether users can import a package: it is neither internal nor a program.
func public(path string) bool {
	return !strings.Contains("/"+path+"/", "/internal/") && !strings.Contains(path, "/examples/")
}

func packageAPI(p *types.Package) []string {
	name, _ := rel(p.Path())
	if p.Name() == "main" {
		return nil
	}
	var lines []string
	for _, of := range p.Scope().Names() {
		o := p.Scope().Lookup(of)
		if !o.Exported() {
			continue
		}
		for _, line := range objectAPI(o, types.RelativeTo(p)) {
			lines = append(lines, name+": "+line)
		}
	}
	return lines
}

// objectAPI returns the lines of one name: for a type also those of its fields and methods. An
// alias has those of the type behind it, which may be declared in an internal package.
func objectAPI(o types.Object, by types.Qualifier) []string {
	switch o := o.(type) {
	case *types.Const:
		return []string{types.ObjectString(o, by) + " = " + o.Val().ExactString()}
	case *types.TypeName:
		return typeAPI(o, by)
	default:
		return []string{types.ObjectString(o, by)}
	}
}

func typeAPI(o *types.TypeName, by types.Qualifier) []string {
	head := "type " + types.TypeString(o.Type(), by)
	if named, ok := o.Type().(*types.Named); ok && named.TypeParams().Len() > 0 {
		head = strings.Split(types.ObjectString(o, by), " struct{")[0]
	}
	behind := types.Unalias(o.Type())
	lines := []string{head + " " + shape(behind.Underlying(), by)}
	if s, ok := behind.Underlying().(*types.Struct); ok {
		for f := range s.Fields() {
			if f.Exported() {
				lines = append(lines, fmt.Sprintf("%s.%s %s", o.Name(), f.Name(),
					types.TypeString(f.Type(), by)))
			}
		}
	}
	set := types.NewMethodSet(types.NewPointer(behind))
	if types.IsInterface(behind) {
		set = types.NewMethodSet(behind)
	}
	for m := range set.Methods() {
		if m.Obj().Exported() {
			lines = append(lines, fmt.Sprintf("%s.%s%s", o.Name(), m.Obj().Name(),
				strings.TrimPrefix(types.TypeString(m.Type(), by), "func")))
		}
	}
	return lines
}

// shape is a type without the parts that have lines of their own.
func shape(t types.Type, by types.Qualifier) string {
	switch t := t.(type) {
	case *types.Struct:
		return "struct"
	case *types.Interface:
		return "interface"
	default:
		return types.TypeString(t, by)
	}
}
