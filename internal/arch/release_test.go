package arch

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tagLine matches a line of the list of tags in docs/internals/releases.md, and finds the module's
// directory.
var tagLine = regexp.MustCompile(`(?m)^ *((?:[a-z0-9]+/)*)vX\.Y\.Z$`)

// TestTagOrder holds the list of tags in docs/internals/releases.md to the requirements of the
// go.mod files. If the tag of a module is pushed before that of one it requires, nobody can get the
// version.
func TestTagOrder(t *testing.T) {
	dirs := modules(t)
	page, err := os.ReadFile(filepath.Join(dirs[module], "docs", "internals", "releases.md"))
	require.NoError(t, err)
	requires := map[string][]string{}
	for _, name := range append([]string{"", "cmd"}, libraries...) {
		mod, err := os.ReadFile(filepath.Join(dirs[module], name, "go.mod"))
		require.NoError(t, err)
		requires[name] = ours(string(mod))
	}
	for _, fault := range tagFaults(string(page), requires) {
		t.Error(fault)
	}
}

// ours are the modules of ours that a go.mod requires, by their directories; the root's is "".
func ours(mod string) []string {
	var found []string
	for line := range strings.Lines(mod) {
		if m := requireLine.FindStringSubmatch(line); m != nil && within(m[1], module) {
			found = append(found, strings.TrimPrefix(strings.TrimPrefix(m[1], module), "/"))
		}
	}
	return found
}

// tagFaults returns what is wrong with the list of tags, given what each released module requires
// of ours.
func tagFaults(page string, requires map[string][]string) []string {
	var found, tagged []string
	for _, m := range tagLine.FindAllStringSubmatch(page, -1) {
		name := strings.TrimSuffix(m[1], "/")
		needed, released := requires[name]
		switch {
		case !released:
			found = append(found, fmt.Sprintf("%q is not released", name))
		case slices.Contains(tagged, name):
			found = append(found, fmt.Sprintf("%q has two tags", name))
		}
		for _, other := range needed {
			if !slices.Contains(tagged, other) {
				found = append(found,
					fmt.Sprintf("the tag of %q comes before that of %q, which it requires",
						name, other))
			}
		}
		tagged = append(tagged, name)
	}
	for name := range requires {
		if !slices.Contains(tagged, name) {
			found = append(found, fmt.Sprintf("%q has no tag", name))
		}
	}
	return found
}

func TestTagFaultsAreSeen(t *testing.T) {
	mod := "module " + module + "/a/b\n\nrequire (\n\t" + module + " v0.0.0\n\t" + module +
		"/c v0.0.0 // indirect\n\t" + goRedis + " v9.0.0\n)\n\nreplace " +
		module + "/d => ../../d\n"
	requires := map[string][]string{"": nil, "c": {""}, "a/b": ours(mod)}
	for name, c := range map[string]struct{ page, want string }{
		"right": {"vX.Y.Z c/vX.Y.Z a/b/vX.Y.Z", ""},
		"before a library": {"vX.Y.Z a/b/vX.Y.Z c/vX.Y.Z",
			`the tag of "a/b" comes before that of "c", which it requires`},
		"before the root": {"c/vX.Y.Z vX.Y.Z a/b/vX.Y.Z",
			`the tag of "c" comes before that of "", which it requires`},
		"none":              {"vX.Y.Z c/vX.Y.Z", `"a/b" has no tag`},
		"twice":             {"vX.Y.Z c/vX.Y.Z a/b/vX.Y.Z c/vX.Y.Z", `"c" has two tags`},
		"of what is tested": {"vX.Y.Z c/vX.Y.Z bench/vX.Y.Z a/b/vX.Y.Z", `"bench" is not released`},
	} {
		page := "Some words, vX.Y.Z.\n\n   " + strings.ReplaceAll(c.page, " ", "\n   ") + "\n"
		assert.Equal(t, c.want, strings.Join(tagFaults(page, requires), "\n"), name)
	}
}
