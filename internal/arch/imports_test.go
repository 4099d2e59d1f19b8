package arch

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestImports(t *testing.T) {
	for _, v := range violations(shippedPackages(t), table) {
		t.Error(v)
	}
}

// shippedPackages are those of the root module and of the libraries.
func shippedPackages(t *testing.T) []pkg {
	t.Helper()
	dirs := modules(t)
	pkgs := list(t, dirs[module])
	for _, name := range libraries {
		dir := dirs[module+"/"+name]
		require.NotEmpty(t, dir, "the workspace has no module %s", name)
		pkgs = append(pkgs, list(t, dir)...)
	}
	return pkgs
}

// Nested modules import everything of the root module; nothing imports them, not even each other,
// but for libraries.
func TestNestedModulesAreNotImported(t *testing.T) {
	dirs := modules(t)
	for path, dir := range dirs {
		for _, p := range list(t, dir) {
			for _, v := range intrusions(p, path, dirs) {
				t.Error(v)
			}
		}
	}
}

// violations returns the differences between the root module's packages and the table.
func violations(pkgs []pkg, table map[string]rule) []string {
	var found []string
	for _, p := range pkgs {
		name, _ := rel(p.ImportPath)
		r, listed := table[name]
		if !listed {
			found = append(found, fmt.Sprintf("%s is not in the table of internal/arch",
				p.ImportPath))
			continue
		}
		for _, imp := range p.Imports {
			if !allowed(imp, r.imports) {
				found = append(found, fmt.Sprintf("%s must not import %s", name, imp))
			}
		}
		for _, imp := range p.tests() {
			if imp != p.ImportPath && !within(imp, testify) &&
				!allowed(imp, append(slices.Clone(r.tests), r.imports...)) {
				found = append(found, fmt.Sprintf("the tests of %s must not import %s", name, imp))
			}
		}
		found = append(found, unshippable(name, r, p)...)
	}
	return found
}

// unshippable looks at everything that a package links, however far away.
func unshippable(name string, r rule, p pkg) []string {
	var found []string
	if r.role == shipped && slices.Contains(p.Deps, "testing") {
		found = append(found, fmt.Sprintf("%s is shipped, and links testing", name))
	}
	for _, dep := range p.Deps {
		if r.role == shipped && !allowed(dep, r.imports) &&
			slices.ContainsFunc(drivers, func(d string) bool { return within(dep, d) }) {
			found = append(found, fmt.Sprintf("%s is shipped, and links the driver %s", name, dep))
		}
		if name == core && !standard(dep) && !within(dep, module+"/"+core+"/internal") &&
			dep != module+"/"+core+"/driver" {
			found = append(found, fmt.Sprintf(
				"%s depends on %s: it may depend on the standard library, its own driver and internal only",
				name, dep))
		}
	}
	return found
}

// intrusions returns the imports of p, a package of the module own, that reach into a nested
// module.
func intrusions(p pkg, own string, modules map[string]string) []string {
	var found []string
	for _, imp := range append(p.tests(), p.Imports...) {
		for other := range modules {
			if other != own && other != module && within(imp, other) && !mayImport(own, other) {
				found = append(found,
					fmt.Sprintf("%s must not import %s: nothing imports a nested module",
						p.ImportPath, imp))
			}
		}
	}
	return found
}

// mayImport reports whether a module may import a nested one: a program may import any library, a
// library none.
func mayImport(own, other string) bool {
	importer, _ := rel(own)
	library, _ := rel(other)
	return slices.Contains(libraries, library) && slices.Contains(importers, importer)
}

func allowed(imp string, list []string) bool {
	if standard(imp) {
		return true
	}
	if name, ours := rel(imp); ours {
		return slices.Contains(list, name)
	}
	return slices.ContainsFunc(list, func(m string) bool { return within(imp, m) })
}

// standard reports whether a path is the standard library's: those have no dot in their first
// element.
func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

// within reports whether a package lies in a module or folder.
func within(path, in string) bool {
	return path == in || strings.HasPrefix(path, in+"/")
}

// Every kind of violation must be seen; a check that cannot fail protects nothing.
func TestViolationsAreSeen(t *testing.T) {
	const pgx = "github.com/jackc/pgx/v5/stdlib"
	own := func(name string) string { return module + "/" + name }
	for _, c := range []struct {
		name string
		p    pkg
		want string
	}{
		{"unlisted", pkg{ImportPath: own("util")}, "not in the table"},
		{"arrow of ours", pkg{ImportPath: own("lease"), Imports: []string{own("dedup")}},
			"lease must not import " + own("dedup")},
		{"foreign arrow", pkg{ImportPath: own("sqladapter"), Imports: []string{goRedis}},
			"sqladapter must not import " + goRedis},
		{"test arrow", pkg{ImportPath: own("dedup"), XTestImports: []string{goRedis}},
			"the tests of dedup must not import"},
		{"test helper in code", pkg{ImportPath: own("lease"),
			Imports: []string{own("internal/redistest")}}, "lease must not import"},
		{"testing", pkg{ImportPath: own("lease"), Deps: []string{"testing"}},
			"lease is shipped, and links testing"},
		{"driver", pkg{ImportPath: own("sqladapter"), Deps: []string{pgx}},
			"links the driver " + pgx},
		{"driver in tests", pkg{ImportPath: own("sqladapter"), TestImports: []string{pgx}},
			"the tests of sqladapter must not import"},
		{"core dependency", pkg{ImportPath: own("dedup"), Deps: []string{"golang.org/x/sys/unix"}},
			"standard library, its own driver and internal only"},
		{"core dependency of ours", pkg{ImportPath: own("dedup"),
			Deps: []string{own("dedup/internal/drain"), own("internal/backoff")}},
			"dedup depends on " + own("internal/backoff")},
		{"look-alike", pkg{ImportPath: own("lease"), Imports: []string{goRedis + "evil"}},
			"lease must not import"},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Contains(t, strings.Join(violations([]pkg{c.p}, table), "\n"), c.want)
		})
	}
	fine := pkg{ImportPath: own("lease"),
		Imports:     []string{"context", goRedis, own("internal/backoff")},
		TestImports: []string{"testing", own("internal/servertest"), own("lease")},
		Deps:        []string{"context", goRedis}}
	assert.Empty(t, violations([]pkg{fine}, table), "a package that keeps the rules")
	nested := map[string]string{module: "", own("bench"): "", own("cmd"): ""}
	intruder := pkg{ImportPath: own("cmd/onceward"), TestImports: []string{own("bench/load")},
		Imports: []string{own("dedup"), own("cmd/x")}}
	got := intrusions(intruder, own("cmd"), nested)
	require.Len(t, got, 1, "a nested module that imports another")
	assert.Contains(t, got[0], "bench/load")
	nested[own("kafkaadapter/kafkafranz")] = ""
	user := pkg{ImportPath: own("x"), Imports: []string{own("kafkaadapter/kafkafranz")}}
	assert.Empty(t, intrusions(user, own("bench"), nested), "a program that imports a library")
	assert.Len(t, intrusions(user, module, nested), 1, "the root module that imports a library")
}
