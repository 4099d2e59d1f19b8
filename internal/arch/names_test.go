package arch

import (
	"flag"
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

// namesFile lists the denied names that are there today.
const namesFile = "names.txt"

var updateLists = flag.Bool("update", false,
	"write api.txt anew, and remove the lines of names.txt that have to go")

// TestDeniedNames fails when a name is declared that the field has a better word for, unless
// names.txt lists it; and when names.txt lists a name that is not declared anymore. So the list can
// only become shorter, unless somebody adds a line.
func TestDeniedNames(t *testing.T) {
	declared := deniedDeclarations(t, modules(t)[module])
	listed := readNames(t)
	if *updateLists {
		writeNames(t, shortenNames(listed, declared))
		return
	}
	for _, problem := range judgeNames(listed, declared) {
		t.Error(problem)
	}
	t.Logf("%d denied names are left", len(listed))
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

// judgeNames returns what is wrong: denied names that are not listed, and lines that have to go.
func judgeNames(listed []string, declared map[string]deniedName) []string {
	var problems []string
	for entry, d := range declared {
		if !slices.Contains(listed, entry) {
			problems = append(problems,
				fmt.Sprintf("%s: %s is a denied name; say %s", d.at, entry, d.say))
		}
	}
	for i, entry := range listed {
		if _, ok := declared[entry]; !ok {
			problems = append(problems,
				fmt.Sprintf("%s: %s is not declared anymore; go test ./internal/arch -run DeniedNames -update removes it", namesFile, entry))
		}
		if i > 0 && listed[i-1] >= entry {
			problems = append(problems,
				fmt.Sprintf("%s: %s is listed twice or out of order", namesFile, entry))
		}
	}
	slices.Sort(problems)
	return problems
}

// shortenNames returns the list as it should be. It adds a name only for one that is gone from
// another package: a package that moves takes its names along.
func shortenNames(listed []string, declared map[string]deniedName) []string {
	var list []string
	gone := map[string]int{} // by what follows the directory
	for _, entry := range listed {
		if _, ok := declared[entry]; ok {
			list = append(list, entry)
		} else {
			_, name, _ := strings.Cut(entry, ": ")
			gone[name]++
		}
	}
	for entry := range declared {
		_, name, _ := strings.Cut(entry, ": ")
		if !slices.Contains(listed, entry) && gone[name] > 0 {
			gone[name]--
			list = append(list, entry)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func readNames(t *testing.T) []string {
	t.Helper()
	content, err := os.ReadFile(namesFile)
	require.NoError(t, err)
	var list []string
	for text := range strings.Lines(string(content)) {
		if text = strings.TrimSpace(text); text != "" && !strings.HasPrefix(text, "#") {
			list = append(list, text)
		}
	}
	return list
}

func writeNames(t *testing.T, list []string) {
	t.Helper()
	const head = "# Names that names_rules_test.go denies and that are still there. Remove a line when its name is gone:\n" +
		"# go test ./internal/arch -run DeniedNames -update does. Do not add one.\n"
	require.NoError(t, os.WriteFile(namesFile, []byte(head+strings.Join(list, "\n")+"\n"), 0o644))
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

// TestNamesListOnlyShrinks: neither a new name nor a line that is left over goes unnoticed.
func TestNamesListOnlyShrinks(t *testing.T) {
	declared := map[string]deniedName{"a: trip": {"a/x.go:3", "batch"}}
	assert.Empty(t, judgeNames([]string{"a: trip"}, declared))
	assert.Equal(t, []string{"a/x.go:3: a: trip is a denied name; say batch"},
		judgeNames(nil, declared))
	problems := judgeNames([]string{"a: trip", "b: desk"}, declared)
	require.Len(t, problems, 1, "a line whose name is gone")
	assert.Contains(t, problems[0], "b: desk is not declared anymore")
	assert.Len(t, judgeNames([]string{"a: trip", "a: trip"}, declared), 1, "a line twice")

	assert.Equal(t, []string{"a: trip"}, shortenNames([]string{"a: trip", "b: desk"}, declared))
	assert.Equal(t, []string{"a: trip"}, shortenNames([]string{"b: trip"}, declared),
		"a package that moved")
	assert.Empty(t, shortenNames([]string{"b: desk"}, declared), "a new name is never added")
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
