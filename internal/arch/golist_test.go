package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// pkg is what `go list -json` says of a package.
type pkg struct {
	ImportPath   string
	Dir          string
	Imports      []string
	TestImports  []string
	XTestImports []string
	Deps         []string
	Module       *struct{ Path, Dir string }
}

// tests returns what the package's tests import, those in a package of their own included.
func (p pkg) tests() []string {
	return append(append([]string{}, p.TestImports...), p.XTestImports...)
}

// rel returns a package's path below the root module, and whether it is below it at all.
func rel(path string) (string, bool) {
	below, ok := strings.CutPrefix(path, module+"/")
	return below, ok
}

// list runs go list for all packages of the module in dir, long tests included.
func list(t *testing.T, dir string) []pkg {
	t.Helper()
	const fields = "-json=ImportPath,Dir,Imports,TestImports,XTestImports,Deps,Module"
	out := run(t, "go", "-C", dir, "list", "-tags", "long", fields, "./...")
	var pkgs []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return pkgs
		}
		require.NoError(t, err)
		pkgs = append(pkgs, p)
	}
}

// modules returns the path and the directory of every module of go.work.
func modules(t *testing.T) map[string]string {
	t.Helper()
	watch(t, "../..")
	dirs := map[string]string{}
	for line := range strings.Lines(string(run(t, "go", "list", "-m",
		"-f", "{{.Path}} {{.Dir}}"))) {
		path, dir, ok := strings.Cut(strings.TrimSpace(line), " ")
		if ok {
			dirs[path] = dir
		}
	}
	require.NotEmpty(t, dirs[module], "the workspace has no module %s", module)
	return dirs
}

// watch reads every directory below root. The go command keeps a passed test in its cache while the
// files that the test read are unchanged, but it does not see which files go list reads.
func watch(t *testing.T, root string) {
	t.Helper()
	err := filepath.WalkDir(root, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == ".git" {
			return filepath.SkipDir
		}
		return err
	})
	require.NoError(t, err)
}

func run(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s: %s", strings.Join(cmd.Args, " "), &stderr)
	return out
}
