package docs_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/racebuild"
)

// beside is a directory with a clone in it, for the modules that the pages make next to one. All
// programs share it: in a directory of its own, each would compile the whole library anew.
var beside string

func TestMain(m *testing.M) {
	code := 1
	if dir, err := os.MkdirTemp("", "onceward-docs-"); err == nil {
		beside = dir
		code = m.Run()
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// programs builds the whole programs of a page, in their order, and returns where they are.
func programs(t *testing.T, page string, want int) (files []string) {
	t.Helper()
	text := read(t, page)
	commands := moduleCommands(t, page, text)
	for _, s := range wholes(page, text) {
		files = append(files, build(t, commands, map[string]string{"main.go": s.code}))
	}
	require.Len(t, files, want, "programs of %s", page)
	return files
}

// programOf builds the program of a page with several variants: main.go is common to all, and file
// is the block that contains with.
func programOf(t *testing.T, page, file, with string, commands *strings.Replacer) string {
	t.Helper()
	text := read(t, page)
	files := map[string]string{}
	for _, s := range wholes(page, text) {
		if strings.Contains(s.code, "\nfunc main() {") {
			files["main.go"] = s.code
		} else if strings.Contains(s.code, with) {
			require.Empty(t, files[file], "%s has two files with %s", page, with)
			files[file] = s.code
		}
	}
	require.Len(t, files, 2, "%s: main.go and the file with %s", page, with)
	return build(t, commands.Replace(moduleCommands(t, page, text)), files)
}

// wholes are the blocks of a page that are files.
func wholes(page, text string) []snippet {
	return slices.DeleteFunc(snippets(page, text),
		func(s snippet) bool { return !strings.HasPrefix(s.code, "package main\n") })
}

// build makes a program as a page says: by the commands of the page that make a module, in a
// directory next to a clone, outside of this repository and its workspace.
func build(t *testing.T, commands string, files map[string]string) (program string) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(beside, "*"))
	require.NoError(t, err)
	for _, of := range left { // left by the program before
		require.NoError(t, os.RemoveAll(of))
	}
	clone, err := filepath.Abs(root)
	require.NoError(t, err)
	require.NoError(t, os.Symlink(clone, filepath.Join(beside, "onceward")))
	for name, code := range files {
		require.NoError(t, os.WriteFile(filepath.Join(beside, name), []byte(code), 0o600))
	}
	pins, err := versions()
	require.NoError(t, err)
	program = filepath.Join(t.TempDir(), "program")
	commands = strings.Replace(commands, "go mod tidy",
		"cp ../*.go .\ngo mod edit "+pins+"\ngo mod tidy", 1)
	cmd := exec.CommandContext(t.Context(), "sh", "-ec",
		commands+"\ngo build -ldflags=-s "+strings.Join(racebuild.Flags(), " ")+" -o "+program+" .")
	cmd.Dir, cmd.Env = beside, append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program
}

// moduleCommands are the lines of a page that make a module next to a clone.
func moduleCommands(t *testing.T, page, text string) string {
	t.Helper()
	for _, block := range fenced.FindAllString(text, -1) {
		if strings.Contains(block, "go mod init") {
			lines := strings.Split(block, "\n")
			commands := strings.Join(lines[1:len(lines)-1], "\n")
			require.Contains(t, commands, "go mod tidy",
				"%s: the commands that make a module", page)
			return commands
		}
	}
	require.Fail(t, "no commands that make a module", page)
	return ""
}

// versions are the arguments of go mod edit that require the versions that this repository builds
// with. A user gets the newest ones. Here, the test would then fail because of a release of
// somebody else, and programs would compile again packages that other tests have compiled.
var versions = sync.OnceValues(func() (string, error) {
	list := exec.CommandContext(context.Background(), "go", "list", "-m", "-f",
		"{{if .Version}} -require={{.Path}}@{{.Version}}{{end}}", "all")
	list.Dir = root
	out, err := list.Output()
	return strings.Join(strings.Fields(string(out)), " "), err
})
