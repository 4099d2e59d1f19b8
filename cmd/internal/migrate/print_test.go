package migrate

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/cmd/internal/cli"
)

// The printed SQL makes tables that the command then recognizes.
func TestPrintedSQL(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			r := newRig(t, engines[0], kind)
			code, out, errOut := command(t,
				slices.Concat([]string{"--dialect", "sqlite", "--kind", kind, "--table", r.table,
					"--print", "sql"}, r.window)...)
			require.Equal(t, cli.Done, code)
			require.Equal(t, "", errOut)
			r.want(cli.No, "version 0 to 1")
			r.exec(out)
			r.want(cli.Done, "nothing is to be done", r.window...)
		})
	}
}

// With --sql instead of --dialect the command does not connect either.
func TestPrintConnectsToNothing(t *testing.T) {
	code, out, errOut := command(t, "--sql", "postgres://127.0.0.1:1/db", "--kind", "fence",
		"--schema", "Shop", "--print", "sql")
	assert.Equal(t, cli.Done, code)
	assert.Equal(t, "", errOut)
	assert.Contains(t, out, `CREATE TABLE IF NOT EXISTS "Shop"."onceward_fence"`)
}

func TestPrintedDialects(t *testing.T) {
	for dialect, want := range map[string]string{"postgres": "octet_length",
		"mysql": "ENGINE=InnoDB", "sqlite": "WITHOUT ROWID", "sqlserver": "OBJECT_ID"} {
		code, out, errOut := command(t, "--dialect", dialect, "--kind", "marks", "--window",
			"72h", "--print", "sql")
		assert.Equal(t, cli.Done, code, dialect)
		assert.Equal(t, "", errOut, dialect)
		assert.Contains(t, out, want, dialect)
		assert.Contains(t, out, "259200000", dialect)
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
			require.Equal(t, cli.Done, code)
			require.Equal(t, "", errOut)
			var listed []string
			for name, words := range want {
				listed = append(listed, filepath.Join(dir, name))
				text, err := os.ReadFile(filepath.Join(dir, name))
				require.NoError(t, err, name)
				assert.Contains(t, string(text), words, name)
				assert.Contains(t, string(text), "onceward_migrations", name)
			}
			slices.Sort(listed)
			got := strings.Split(strings.TrimSpace(out), "\n")
			assert.Equal(t, listed, got, "told of %q, want %q", got, listed)

			mine := listed[len(listed)-1]
			for _, name := range listed[:len(listed)-1] {
				require.NoError(t, os.Remove(name))
			}
			require.NoError(t, os.WriteFile(mine, []byte("mine"), 0o600))
			code, out, errOut = command(t, args...)
			assert.Equal(t, cli.Usage, code)
			assert.Equal(t, "", out)
			assert.Contains(t, errOut, "is not overwritten; nothing was written")
			left, err := os.ReadDir(dir)
			text, _ := os.ReadFile(mine)
			assert.Equal(t, "mine", string(text), "what was there is %q; %v, %v", text, left, err)
			require.NoError(t, err, "what was there is %q; %v, %v", text, left, err)
			assert.Len(t, left, 1, "what was there is %q; %v, %v", text, left, err)
		})
	}
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	code, _, errOut := command(t, "--dialect", "mysql", "--kind", "store", "--print", "goose",
		"--out", file)
	assert.Equal(t, cli.Usage, code, "a file for a directory: %d, %s", code, errOut)
	assert.Contains(t, errOut, "--out: ", "a file for a directory: %d, %s", code, errOut)
}
