package migrate

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/onceward/onceward/cmd/internal/cli"
)

// The SQL that is printed makes tables that the command itself then finds.
func TestPrintedSQL(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			r := newRig(t, engines[0], kind)
			code, out, errOut := command(t,
				slices.Concat([]string{"--dialect", "sqlite", "--kind", kind, "--table", r.table,
					"--print", "sql"}, r.window)...)
			if code != cli.Done || errOut != "" {
				t.Fatalf("%d, %s", code, errOut)
			}
			r.want(cli.No, "version 0 to 1")
			r.exec(out)
			r.want(cli.Done, "nothing is to be done", r.window...)
		})
	}
}

// With --sql instead of --dialect nothing is connected.
func TestPrintConnectsToNothing(t *testing.T) {
	code, out, errOut := command(t, "--sql", "postgres://127.0.0.1:1/db", "--kind", "fence",
		"--schema", "Shop", "--print", "sql")
	if code != cli.Done || errOut != "" ||
		!strings.Contains(out, `CREATE TABLE IF NOT EXISTS "Shop"."onceward_fence"`) {
		t.Errorf("%d, %s%s", code, out, errOut)
	}
}

func TestPrintedDialects(t *testing.T) {
	for dialect, want := range map[string]string{"postgres": "octet_length",
		"mysql": "ENGINE=InnoDB", "sqlite": "WITHOUT ROWID", "sqlserver": "OBJECT_ID"} {
		code, out, errOut := command(t, "--dialect", dialect, "--kind", "marks", "--window",
			"72h", "--print", "sql")
		if code != cli.Done || errOut != "" || !strings.Contains(out, want) ||
			!strings.Contains(out, "259200000") {
			t.Errorf("%s: %d, %s%s", dialect, code, out, errOut)
		}
	}
}

func TestPrintedFiles(t *testing.T) {
	for form, want := range map[string]map[string]string{
		"files": {"0001_claims.up.sql": "CREATE TABLE", "0001_claims.down.sql": "DROP TABLE"},
		"goose": {"0001_claims.sql": "-- +goose Down"},
	} {
		t.Run(form, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "db", "migrations")
			args := []string{"--dialect", "mysql", "--kind", "store", "--print", form, "--out", dir}
			code, out, errOut := command(t, args...)
			if code != cli.Done || errOut != "" {
				t.Fatalf("%d, %s", code, errOut)
			}
			var listed []string
			for name, words := range want {
				listed = append(listed, filepath.Join(dir, name))
				if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil ||
					!strings.Contains(string(text), words) ||
					!strings.Contains(string(text), "onceward_migrations") {
					t.Errorf("%s: %v, %s", name, err, text)
				}
			}
			slices.Sort(listed)
			if got := strings.Split(strings.TrimSpace(out), "\n"); !slices.Equal(got, listed) {
				t.Errorf("told of %q, want %q", got, listed)
			}

			mine := listed[len(listed)-1]
			for _, name := range listed[:len(listed)-1] {
				if err := os.Remove(name); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(mine, []byte("mine"), 0o600); err != nil {
				t.Fatal(err)
			}
			if code, out, errOut = command(t, args...); code != cli.Usage || out != "" ||
				!strings.Contains(errOut, "is not overwritten; nothing was written") {
				t.Errorf("%d, %s%s", code, out, errOut)
			}
			left, err := os.ReadDir(dir)
			if text, _ := os.ReadFile(mine); string(text) != "mine" || err != nil ||
				len(left) != 1 {
				t.Errorf("what was there is %q; %v, %v", text, left, err)
			}
		})
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errOut := command(t, "--dialect", "mysql", "--kind", "store", "--print", "goose",
		"--out", file); code != cli.Usage || !strings.Contains(errOut, "--out: ") {
		t.Errorf("a file for a directory: %d, %s", code, errOut)
	}
}
