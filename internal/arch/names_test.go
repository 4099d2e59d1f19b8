package arch

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDeniedNames fails when a name is declared that the field has a better word for.
func TestDeniedNames(t *testing.T) {
	for entry, d := range deniedDeclarations(t, modules(t)[module]) {
		assert.Fail(t, "a denied name", "%s: %s: say %s", d.at, entry, d.say)
	}
}

// TestAllowedNames fails when an exception is left over.
func TestAllowedNames(t *testing.T) {
	root := modules(t)[module]
	for entry := range allowedNames {
		dir, name, _ := strings.Cut(entry, ": ")
		files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		require.NoError(t, err)
		assert.True(t, slices.ContainsFunc(files, func(file string) bool {
			source, err := os.ReadFile(file)
			require.NoError(t, err)
			all, err := declarations(file, source)
			require.NoError(t, err)
			return slices.ContainsFunc(all, func(d declaration) bool {
				return d.name == name && denied(d) != ""
			})
		}), "%s is allowed, and is not declared or not denied", entry)
	}
}

// deniedName is where an entry is declared first, and what to say instead.
type deniedName struct{ at, say string }

// deniedDeclarations returns the denied names of all Go files below root by their entries.
func deniedDeclarations(t *testing.T, root string) map[string]deniedName {
	t.Helper()
	declared, files := map[string]deniedName{}, 0
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if base := entry.Name(); entry.IsDir() && file != root &&
			(base == "testdata" || strings.HasPrefix(base, ".")) {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(file, ".go") {
			return nil
		}
		source, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		files++
		return deniedIn(filepath.ToSlash(name), source, declared)
	})
	require.NoError(t, err)
	require.NotZero(t, files, "there are no Go files: this test looked in the wrong place")
	return declared
}

// deniedIn adds the denied names of one file.
func deniedIn(name string, source []byte, declared map[string]deniedName) error {
	all, err := declarations(name, source)
	for _, d := range all {
		say, entry := denied(d), d.entry(name)
		if _, known := declared[entry]; say != "" && !known && allowedNames[entry] == "" {
			declared[entry] = deniedName{fmt.Sprintf("%s:%d", name, d.line), say}
		}
	}
	return err
}

// TestDeniedNamesAreSeen plants each sort of denied name, and names that only look like one.
func TestDeniedNamesAreSeen(t *testing.T) {
	for _, c := range []struct{ title, file, source, want string }{
		{"type", "p/a.go", "package p\ntype compactTrip struct{}", "p: compactTrip"},
		{"type of a test", "p/a_test.go", "package p\ntype verdict int", "p: verdict"},
		{"type that is a participle", "p/a.go", "package p\ntype asked struct{}", "p: asked"},
		{"type inside of a function", "p/a.go", "package p\nfunc f() { type desk struct{} }",
			"p: desk"},
		{"function", "p/a.go", "package p\nfunc newCourse() {}", "p: newCourse"},
		{"method", "p/a.go", "package p\ntype T int\nfunc (*T) tellLost() {}", "p: T.tellLost"},
		{"method of an interface", "p/a.go", "package p\ntype I interface{ Turn() }", "p: I.Turn"},
		{"field", "p/a.go", "package p\ntype T struct{ orphans []int }", "p: T.orphans"},
		{"constant", "p/a.go", "package p\nconst verdictDone = 1", "p: verdictDone"},
		{"local variable", "p/a.go", "package p\nfunc f() { trip := 1; _ = trip }", "p: trip"},
		{"parameter of a literal", "p/a.go", "package p\nvar f = func(lane int) {}", "p: lane"},
		{"exported name", "p/a.go", "package p\nfunc Danger() {}", "p: Danger"},
		{"package", "p/flow/a.go", "package flow", "p/flow: package flow"},
	} {
		declared := map[string]deniedName{}
		require.NoError(t, deniedIn(c.file, []byte(c.source), declared), c.title)
		require.Contains(t, declared, c.want, c.title)
		assert.Len(t, declared, 1, c.title)
		assert.NotEmpty(t, declared[c.want].say, c.title)
	}
	for _, source := range []string{
		// words of the field, and plain local names
		"func roundTrip() { share, sent, place, turn := 1, 2, 3, 4 }",
		"type DeadLetters struct { Sent, Found, Share int; kept bool }",
		"type T int; func (T) found() bool; func (T) Danger()", // methods say what they say
		"func shareSession() { for way := range 3 {} }",
		"type ReturnValue int; var storyteller, striptease int", // parts of words
		"func ErrNotFound() {}; const sentClaims = 1",
		"func place() {}; const tail = 1; func lines() {}", // verbs and plain names
	} {
		declared := map[string]deniedName{}
		require.NoError(t, deniedIn("p/a.go", []byte("package p\n"+source), declared))
		assert.Empty(t, declared, source)
	}
	declared := map[string]deniedName{}
	require.NoError(t, deniedIn("p/a_test.go",
		[]byte("package p\nfunc TestEveryTurn() { trip := 1 }"), declared))
	assert.Empty(t, declared, "names of tests are sentences")
}

func TestSplit(t *testing.T) {
	for name, want := range map[string]string{
		"compactTrip": "compact trip", "HTTPServer": "http server", "trip": "trip",
		"ErrNoVerdict": "err no verdict",
		"own_turn":     "own turn", "turnMySQL": "turn my sql", "v2Lane": "v2 lane",
	} {
		assert.Equal(t, want, strings.Join(split(name), " "), name)
	}
}
