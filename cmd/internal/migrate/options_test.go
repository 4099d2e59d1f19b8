package migrate

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/sqladapter"
)

func TestOptions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.db")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	there := "--sql sqlite:" + file
	for args, want := range map[string]string{
		"":                            "--kind is missing",
		there:                         "--kind is missing",
		"--kind shop " + there:        "one of marks, fence, store, outbox",
		"--kind store":                "--sql is missing",
		"--kind store --sql x":        "--sql is none of",
		"--kind store --sql env:NONE": "the environment has no NONE",
		"--kind store --sql sqlite:" + file +
			".none": "there is no database",
		"--kind store --new-file --sql sqlite:" +
			file: "--new-file needs --apply",
		"--kind store --apply --new-file --sql sqlite:" +
			file + "/b.db": "there is no database",
		"--kind store --apply --new-file --sql postgres://h/db": "--new-file needs --apply and --sql sqlite",
		"--kind store --window 72h " +
			there: "--window and --retention need --kind marks",
		"--kind outbox --retention generations " +
			there: "--window and --retention need --kind marks",
		"--kind marks --retention weekly " +
			there: "one of deletes, generations",
		"--kind store --idtime ulid " + there: "--idtime needs --kind marks",
		"--kind marks --idtime uuid " + there: "must be uuidv7",
		"--kind marks --window 0 --idtime ulid:7 " +
			there: "snowflake alone",
		"--kind marks --window 0 --idtime snowflake " +
			there: "snowflake alone",
		"--kind marks --window 0 --idtime snowflake:x " +
			there: "milliseconds since 1970",
		"--kind marks --window 0 --idtime snowflake:7 " + there: "",
		"--kind marks --apply " + there:                         "--window is missing",
		"--kind marks --apply --to 1 " + there:                  "--window is missing",
		"--kind marks --print sql --dialect mysql":              "--window is missing",
		"--kind marks --window 3 " +
			there: "a duration is written as",
		"--kind store --to x " +
			there: "a version is a number",
		"--kind store --to -1 " +
			there: "a version is a number",
		"--kind store --drop --to 0 " + there:                "--drop needs --apply",
		"--kind store --apply --drop " + there:               "--drop needs --to",
		"--kind store --apply --yes " + there:                "--yes needs --drop",
		"--kind store --apply --to 0 --drop --json " + there: "--json needs --yes",
		"--kind store --out d " + there:                      "--out needs --print",
		"--kind store --schema shop " +
			there: "--schema is of SQLite an attached database",
		"--kind store --dialect mysql": "--dialect needs --print",
		"--kind store --dialect mysql --print sql " +
			there: "--dialect and --sql exclude each other",
		"--kind store --dialect oracle --print sql":        "one of postgres, mysql, sqlite, sqlserver",
		"--kind store --dialect sqlserver --print sql":     "--dialect sqlserver needs --kind marks",
		"--kind store --dialect mysql --print xml":         "one of sql, files, goose",
		"--kind store --dialect mysql --print sql --out d": "--out needs --print files or goose",
		"--kind store --dialect mysql --print files":       "--out is missing",
		"--kind store --dialect mysql --print sql --apply": "--print excludes",
		"--kind store --dialect mysql --print sql --to 0":  "--print excludes",
		"--kind store --dialect mysql --print sql --json":  "--print excludes",
		"--kind store " + there +
			" more": `unexpected argument "more"`,
		// newComponent checks names later
		"--kind store --table a.b " + there:                                       "",
		"--kind marks --window 0 --apply " + there:                                "",
		"--kind marks --to 0 " + there:                                            "",
		"--kind marks --to 0 --apply --drop --yes --json " + there:                "",
		"--kind store --dialect mysql --print goose --out d --schema s --table t": "",
		"--kind store --print sql " + there:                                       "",
		"--kind store --apply --new-file --sql sqlite:" + file + ".none":          "",
		"--kind marks --dialect sqlserver --print sql --window 72h":               "",
		"--kind marks --retention generations --window 72h --sql postgres://h/d":  "",
	} {
		_, err := parse(strings.Fields(args)...)
		assert.Equal(t, (want == ""), (err == nil), args)
		assert.False(t, err != nil && !strings.Contains(err.Error(), want), args)
	}
}

func TestOptionsRead(t *testing.T) {
	o, err := parse(strings.Fields("--kind marks --retention generations --window 0 --dialect postgres --print sql")...)
	require.NoError(t, err)
	assert.Equal(t, sqladapter.Generations, o.Retention)
	assert.True(t, o.Windowed)
	assert.EqualValues(t, 0, o.Window)
	assert.Equal(t, sqladapter.Postgres, o.Dialect)
	assert.Equal(t, newest, o.To)
}

// Impossible names and settings are refused by the names of their flags, before any connection.
func TestNamesRefused(t *testing.T) {
	for args, want := range map[string]string{
		"--kind marks --window 72h --table a.b":                   "--table must",
		"--kind fence --table a.b":                                "--table must",
		"--kind store --table a.b":                                "--table must",
		"--kind outbox --table a.b":                               "--table must",
		"--kind outbox --table onceward_migrations":               "where versions are recorded",
		"--kind store --schema s;":                                "--schema must",
		"--kind marks --window -1h":                               "--window must be zero or at least 1ms",
		"--kind marks --window 0 --retention generations":         "Generations need one",
		"--kind marks --window 1h --retention generations SQLITE": "which is for PostgreSQL and MySQL",
		"--kind outbox --table sqlite_outbox SQLITE":              "SQLite reserves",
		"--kind marks --window 1h --idtime ulid SQLITE":           "--idtime is for PostgreSQL",
	} {
		fields := strings.Fields(args)
		dialect := "postgres"
		if n := len(fields) - 1; fields[n] == "SQLITE" {
			dialect, fields = "sqlite", fields[:n]
		}
		code, out, errOut := command(t, append(fields, "--print", "sql", "--dialect", dialect)...)
		assert.Equal(t, cli.Usage, code, args)
		assert.Equal(t, "", out, args)
		assert.Contains(t, errOut, want, args)
	}
}
