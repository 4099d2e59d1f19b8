package main

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/cmd/internal/cli"
)

var update = flag.Bool("update", false, "write docs/reference/command")

// The pages of docs/reference/command have the same text as the commands' own help.
func TestReference(t *testing.T) {
	const dir = "../../docs/reference/command"
	pages := reference(t)
	if *update {
		require.NoError(t, os.RemoveAll(dir))
		require.NoError(t, os.MkdirAll(dir, 0o755))
		for name, text := range pages {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
		}
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, entries, len(pages), "go test ./onceward -run Reference -update writes them anew")
	for name, want := range pages {
		got, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		assert.Equal(t, want, string(got),
			"%s: go test ./onceward -run Reference -update writes it anew", name)
	}
}

// reference returns all pages, by file name.
func reference(t *testing.T) map[string]string {
	t.Helper()
	pages := make(map[string]string)
	var list, exits strings.Builder
	for _, c := range root(&cli.Streams{Out: io.Discard, Err: io.Discard}).Commands() {
		made := cli.Find(c)
		if made == nil || made.Hidden {
			continue
		}
		pages[c.Name()+".md"] = page(c, made)
		fmt.Fprintf(&list, "| [`%s`](%s.md) | %s |\n", c.Name(), c.Name(), c.Short)
		codes := made.ExitCodes()
		fmt.Fprintf(&exits, "| `%s` |", c.Name())
		for _, code := range []int{cli.Done, cli.No, cli.Usage, cli.Critical, cli.Interrupted} {
			fmt.Fprintf(&exits, " %s |", cell(codes[code]))
		}
		exits.WriteString("\n")
	}
	pages["README.md"] = "# Commands of onceward\n\n" + long + "\n\n| command | purpose |\n|---|---|\n" +
		list.String() + "\n[Find and settle a key](../../guides/keys.md) has settings, addresses of " +
		"stores, and examples.\n\n" +
		"## Exit codes\n\n| command | 0 | 1 | 2 | 3 | 130 |\n|---|---|---|---|---|---|\n" +
		exits.String()
	return pages
}

func cell(text string) string { return strings.ReplaceAll(text, "|", "\\|") }

func page(c *cobra.Command, made *cli.Command) string {
	var b strings.Builder
	about := made.Long
	if about == "" {
		about = made.Short + "."
	}
	fmt.Fprintf(&b, "# onceward %s\n\n%s\n\n```\n%s\n```\n", c.Name(), about, cli.Synopsis(c))
	if c.Example != "" {
		fmt.Fprintf(&b, "\n## Examples\n\n```\n%s\n```\n", c.Example)
	}
	b.WriteString("\n## Flags\n\n| flag | meaning | default | environment |\n|---|---|---|---|\n")
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" {
			return
		}
		value, text := pflag.UnquoteUsage(f)
		text, variable, _ := strings.Cut(text, " [$")
		if variable = strings.TrimSuffix(variable, "]"); variable != "" {
			variable = "`" + variable + "`"
		}
		name := strings.TrimSpace("--" + f.Name + " " + value)
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		preset := f.DefValue
		if slices.Contains([]string{"0", "0s", "[]", "false", ""}, preset) {
			preset = ""
		} else {
			preset = "`" + preset + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", name, cell(text), preset, variable)
	})
	b.WriteString("\n## Exit codes\n\n| code | meaning |\n|---|---|\n")
	codes := made.ExitCodes()
	for _, code := range slices.Sorted(maps.Keys(codes)) {
		fmt.Fprintf(&b, "| %d | %s |\n", code, cell(codes[code]))
	}
	return b.String()
}
