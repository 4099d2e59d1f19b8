package docs_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

var (
	// inline is a command of onceward in the text of a page, shell one in a block.
	inline = regexp.MustCompile("`onceward ([a-z]+)([^`]*)`")
	shell  = regexp.MustCompile(`(?m)^ *(?:\$ )?onceward ([a-z]+)((?:[^\n]*\\\n)*[^\n]*)`)
	// quoted is an argument that may have flags of another program.
	quoted = regexp.MustCompile(`'[^']*'|"[^"]*"`)
	option = regexp.MustCompile(`(?:^|\s)(--?[a-zA-Z][\w-]*)`)
	// described matches the flags of a page of docs/reference/command.
	described = regexp.MustCompile("(?m)^\\| `(?:(-\\w), )?(--[\\w-]+)")
)

// unknownFlags are the flags that a page gives to commands that have no such flag, by the flags of
// each command.
func unknownFlags(page string, flags map[string]map[string]bool) (unknown []string, n int) {
	page = strings.ReplaceAll(page, "```", "\n")
	for _, m := range append(inline.FindAllStringSubmatch(page, -1),
		shell.FindAllStringSubmatch(page, -1)...) {
		known := flags[m[1]]
		if known == nil {
			continue // not the name of a command
		}
		args, _, _ := strings.Cut(quoted.ReplaceAllString(m[2], "text"), " -- ")
		for _, flag := range option.FindAllStringSubmatch(args, -1) {
			n++
			if !known[flag[1]] {
				unknown = append(unknown, m[1]+" "+flag[1])
			}
		}
	}
	return unknown, n
}

// commandFlags reads the flags of all commands from their pages.
func commandFlags(t *testing.T) map[string]map[string]bool {
	flags := map[string]map[string]bool{}
	for _, page := range pages(t) {
		name, ok := strings.CutPrefix(page, "docs/reference/command/")
		if !ok || name == "README.md" {
			continue
		}
		of := map[string]bool{"-h": true, "--help": true}
		for _, m := range described.FindAllStringSubmatch(read(t, page), -1) {
			of[m[1]], of[m[2]] = true, true
		}
		flags[strings.TrimSuffix(name, ".md")] = of
	}
	return flags
}

// TestCommands: the commands of onceward that pages show have the flags that the pages use.
func TestCommands(t *testing.T) {
	flags := commandFlags(t)
	assert.GreaterOrEqual(t, len(flags), 10, "commands")
	all := 0
	for _, page := range append(pages(t), "CHANGELOG.md", "examples/README.md") {
		unknown, n := unknownFlags(read(t, page), flags)
		all += n
		assert.Empty(t, unknown, "flags in %s", page)
	}
	assert.GreaterOrEqual(t, all, 100, "flags: this test looked in the wrong place")
	t.Logf("%d flags", all)
}

// TestUnknownFlags: unknownFlags finds unknown flags, and no others.
func TestUnknownFlags(t *testing.T) {
	flags := map[string]map[string]bool{"bench": {"--for": true}, "prove": {"--count": true}}
	unknown, n := unknownFlags("`onceward bench --for 5s --rate\n7` `onceward is --not` "+
		"`onceward prove --count 'psql -At' -- x --port`\n```\n$ onceward bench \\\n  -for 5s\n```\n",
		flags)
	assert.Equal(t, 4, n, "flags")
	assert.Equal(t, []string{"bench --rate", "bench -for"}, unknown)
}
