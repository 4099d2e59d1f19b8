package sqlmigrate

import (
	"context"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// notes is a component with two versions.
func notes(extra ...string) fstest.MapFS {
	files := fstest.MapFS{
		"postgres/0001_notes.up.sql": text(
			"-- One row per note;\n-- see below.\nCREATE TABLE {{table}} (id int);\n\nCREATE INDEX {{index:_id}} ON {{bare}} (id);"),
		"postgres/0001_notes.down.sql": text("DROP TABLE {{table}};"),
		"postgres/0002_author.up.sql": text(
			"ALTER TABLE {{table}}\n    ADD COLUMN author text; -- not an end\n;"),
		"postgres/0002_author.down.sql": text(
			"DROP INDEX {{table:_id}};\nDROP TABLE {{bare:_author}};"),
	}
	for i := 0; i < len(extra); i += 2 {
		files["postgres/"+extra[i]] = text(extra[i+1])
	}
	return files
}

func text(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s + "\n")} }

func config() Config {
	return Config{Files: notes(), Component: "notes", Dialect: Postgres, Schema: "Shop",
		Table: "Notes"}
}

func made(t *testing.T, edit ...func(*Config)) *Migrations {
	t.Helper()
	cfg := config()
	for _, f := range edit {
		f(&cfg)
	}
	m, err := New(cfg)
	require.NoError(t, err)
	return m
}

func TestNewRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		edit func(*Config)
		want string
	}{
		"no files":           {func(c *Config) { c.Files = nil }, "Files"},
		"no component":       {func(c *Config) { c.Component = "" }, "Component"},
		"quote in component": {func(c *Config) { c.Component = "n'; --" }, "Component"},
		"quote in table":     {func(c *Config) { c.Table = `n"; DROP TABLE x; --` }, "Table"},
		"apostrophe":         {func(c *Config) { c.Table = `n' OR 'a'='a` }, "Table"},
		"backquote":          {func(c *Config) { c.Table = "n`" }, "Table"},
		"placeholder":        {func(c *Config) { c.Table = "{{bare}}" }, "Table"},
		"newline":            {func(c *Config) { c.Table = "notes\n" }, "Table"},
		"too long":           {func(c *Config) { c.Table = strings.Repeat("n", 64) }, "Table"},
		"no table":           {func(c *Config) { c.Table = "" }, "Table"},
		"our own table":      {func(c *Config) { c.Table = Table }, "versions are recorded"},
		"quote in schema":    {func(c *Config) { c.Schema = `"` }, "Schema"},
		"dot in schema":      {func(c *Config) { c.Schema = "a.b" }, "Schema"},
		"dialect":            {func(c *Config) { c.Dialect = "oracle" }, "Dialect"},
		"no such directory":  {func(c *Config) { c.Dialect = MySQL }, "mysql"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config()
			tt.edit(&cfg)
			m, err := New(cfg)
			assert.False(t, m != nil || err == nil || !strings.Contains(err.Error(), tt.want),
				"New = %v, %v; want an error with %q", m, err, tt.want)
		})
	}
}

func TestFilesRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		extra []string
		want  string
	}{
		"no number": {[]string{"notes.up.sql", "x;"}, "is not NNNN"},
		"capitals":  {[]string{"0003_Notes.up.sql", "x;"}, "is not NNNN"},
		"no down":   {[]string{"0003_more.up.sql", "x;"}, "out of order"},
		"a gap": {[]string{"0004_more.up.sql", "x;", "0004_more.down.sql", "x;"},
			"out of order"},
		"zero": {[]string{"0000_more.up.sql", "x;", "0000_more.down.sql", "x;"},
			"out of order"},
		"two names": {[]string{"0003_more.up.sql", "x;", "0003_less.down.sql", "x;"},
			"other half"},
		"two of a version": {[]string{"0002_other.up.sql", "x;", "0002_other.down.sql", "x;"},
			"other half"},
		"empty": {[]string{"0003_more.up.sql", "", "0003_more.down.sql", "x;"},
			"no statement"},
		"only a comment": {[]string{"0003_more.up.sql", "-- x;", "0003_more.down.sql", "x;"},
			"no semicolon"},
		"no semicolon": {[]string{"0003_more.up.sql", "x", "0003_more.down.sql", "x;"},
			`"x" has no semicolon`},
		"text at the end": {[]string{"0003_more.up.sql", "x;\ny", "0003_more.down.sql", "x;"},
			`"y" has no semicolon`},
		"no placeholder": {[]string{"0003_more.up.sql", "DROP {{tabel}};", "0003_more.down.sql",
			"x;"}, "{{tabel}} is not a"},
		"open placeholder": {[]string{"0003_more.up.sql", "DROP {{table;", "0003_more.down.sql",
			"x;"}, "is not a placeholder"},
		"suffix in capital": {[]string{"0003_more.up.sql", "DROP {{table:X}};",
			"0003_more.down.sql", "x;"}, "is not a placeholder"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config()
			cfg.Files = notes(tt.extra...)
			m, err := New(cfg)
			assert.False(t, m != nil || err == nil || !strings.Contains(err.Error(), tt.want),
				"New = %v, %v; want an error with %q", m, err, tt.want)
		})
	}
}

func TestPlaceholders(t *testing.T) {
	long := strings.Repeat("n", 63)
	for _, tt := range []struct {
		dialect       Dialect
		schema, table string
		text, want    string
	}{
		{Postgres, "", "n", "{{table}} {{bare}} {{index:_i}} {{table:_r}} {{bare:_r}}",
			`"n" "n" "n_i" "n_r" "n_r"`},
		{Postgres, "S", "n", "{{table}} {{bare}} {{index:_i}} {{table:_r}} {{bare:_r}}",
			`"S"."n" "n" "n_i" "S"."n_r" "n_r"`},
		{SQLite, "S", "n", "{{table}} {{bare}} {{index:_i}} {{table:_r}} {{bare:_r}}",
			`"S"."n" "n" "S"."n_i" "S"."n_r" "n_r"`},
		{MySQL, "S", "n", "{{table}} {{bare}} {{index:_i}} {{table:_r}} {{bare:_r}}",
			"`S`.`n` `n` `n_i` `S`.`n_r` `n_r`"},
		{SQLServer, "S", "n", "{{table}} {{bare}} {{index:_i}} {{table:_r}} {{bare:_r}}",
			"[S].[n] [n] [n_i] [S].[n_r] [n_r]"},
		{Postgres, "", "n", "{{limit}} rows of {{table}}", `7 rows of "n"`},
		{Postgres, "", long, "{{table:_r}}", `"` + long[:52] + `_73dcf996_r"`},
	} {
		got, err := (names{dialect: tt.dialect, schema: tt.schema, table: tt.table,
			texts: map[string]string{"limit": "7"}}).fill(tt.text)
		assert.NoError(t, err, "%s %s.%s", tt.dialect, tt.schema, tt.table)
		assert.Equal(t, tt.want, got, "%s %s.%s", tt.dialect, tt.schema, tt.table)
	}
}

func TestExports(t *testing.T) {
	m := made(t)
	plain := m.Files()
	assert.NoError(t,
		fstest.TestFS(plain, "0001_notes.up.sql", "0001_notes.down.sql", "0002_author.up.sql",
			"0002_author.down.sql"))
	assert.NoError(t, fstest.TestFS(m.GooseFiles(), "0001_notes.sql", "0002_author.sql"))
	const create = `CREATE TABLE IF NOT EXISTS "Shop"."onceward_migrations" (component text COLLATE "C" NOT NULL,` +
		` table_name text COLLATE "C" NOT NULL, version integer NOT NULL, PRIMARY KEY (component, table_name));`
	const one = "-- One row per note;\n-- see below.\nCREATE TABLE \"Shop\".\"Notes\" (id int);\n\n" +
		"CREATE INDEX \"Notes_id\" ON \"Notes\" (id);"
	const two = "ALTER TABLE \"Shop\".\"Notes\"\n    ADD COLUMN author text; -- not an end\n;"
	const saved = `INSERT INTO "Shop"."onceward_migrations" (component, table_name, version) VALUES ('notes', 'Notes', %)` +
		` ON CONFLICT (component, table_name) DO UPDATE SET version = excluded.version;`
	const removed = `DELETE FROM "Shop"."onceward_migrations" WHERE component = 'notes' AND table_name = 'Notes';`
	save := func(version string) string { return strings.Replace(saved, "%", version, 1) }
	for name, want := range map[string]string{
		"0001_notes.up.sql":    create + "\n\n" + one + "\n\n" + save("1") + "\n",
		"0001_notes.down.sql":  "DROP TABLE \"Shop\".\"Notes\";\n\n" + removed + "\n",
		"0002_author.up.sql":   create + "\n\n" + two + "\n\n" + save("2") + "\n",
		"0002_author.down.sql": "DROP INDEX \"Shop\".\"Notes_id\";\n\nDROP TABLE \"Notes_author\";\n\n" + save("1") + "\n",
	} {
		got, err := fs.ReadFile(plain, name)
		assert.NoError(t, err, name)
		assert.Equal(t, want, string(got), name)
	}
	assert.Equal(t, one+"\n\n"+two+"\n\n"+create+"\n\n"+save("2")+"\n", m.SQL())
	begin, end := "-- +goose StatementBegin\n", "\n-- +goose StatementEnd\n"
	want := "-- +goose Up\n" + begin + create + end + begin + two + end + begin + save("2") + end +
		"\n-- +goose Down\n" + begin + "DROP INDEX \"Shop\".\"Notes_id\";" + end + begin +
		"DROP TABLE \"Notes_author\";" + end + begin + save("1") + end
	got, err := fs.ReadFile(m.GooseFiles(), "0002_author.sql")
	assert.NoError(t, err, "goose")
	assert.Equal(t, want, string(got), "goose")
	_, err = plain.Open("0003_none.up.sql")
	assert.ErrorIs(t, err, fs.ErrNotExist, "a file that is not there")
}

// TestSQLServer: the statements that no file has.
func TestSQLServer(t *testing.T) {
	e, err := newEngine(Config{Files: notes(), Component: "notes", Dialect: SQLServer,
		Schema: "Shop", Table: "Notes"})
	require.NoError(t, err)
	for i, tt := range []struct{ got, want string }{
		{e.exists, `SELECT 1 WHERE OBJECT_ID(N'[Shop].[onceward_migrations]', N'U') IS NOT NULL`},
		{e.create, `IF OBJECT_ID(N'[Shop].[onceward_migrations]', N'U') IS NULL CREATE TABLE [Shop].[onceward_migrations]` +
			` (component varchar(63) COLLATE Latin1_General_100_BIN2 NOT NULL, table_name varchar(63) COLLATE Latin1_General_100_BIN2 NOT NULL,` +
			` version int NOT NULL, PRIMARY KEY (component, table_name));`},
		{e.read, `SELECT version FROM [Shop].[onceward_migrations] WHERE component = 'notes' AND table_name = 'Notes'`},
		{e.record(2), `UPDATE [Shop].[onceward_migrations] SET version = 2 WHERE component = 'notes' AND table_name = 'Notes';` +
			` IF @@ROWCOUNT = 0 INSERT INTO [Shop].[onceward_migrations] (component, table_name, version) VALUES ('notes', 'Notes', 2);`},
		{e.record(0), `DELETE FROM [Shop].[onceward_migrations] WHERE component = 'notes' AND table_name = 'Notes';`},
		{e.before[0], `IF @@TRANCOUNT <> 1 THROW 50917, N'onceward migrate: IMPLICIT_TRANSACTIONS must be OFF', 1;` +
			` DECLARE @got int; EXEC @got = sp_getapplock @Resource = N'onceward migrate', @LockMode = 'Exclusive',` +
			` @LockOwner = 'Transaction', @LockTimeout = 60000;` +
			` IF @got < 0 THROW 50918, N'onceward migrate: another migration holds the lock', 1;`},
	} {
		assert.Equal(t, tt.want, tt.got, "%d", i)
	}
}

// TestBounds: a version that does not exist is refused before anything is asked.
func TestBounds(t *testing.T) {
	m := made(t)
	for name, err := range map[string]error{
		"up to 0":   m.Up(context.Background(), nil, 0),
		"up to 3":   m.Up(context.Background(), nil, 3),
		"down to 2": m.Down(context.Background(), nil, 2),
		"down -1":   m.Down(context.Background(), nil, -1),
	} {
		assert.ErrorContains(t, err, "there are versions", name)
	}
}

func TestLevelError(t *testing.T) {
	behind := &LevelError{Component: "notes", Table: "n", Has: 0, Needs: 2}
	ahead := &LevelError{Component: "notes", Table: "n", Has: 3, Needs: 2}
	assert.Equal(t, "table n needs a migration: notes has version 0, this program needs 2",
		behind.Error())
	assert.Equal(t, "table n is newer than this program: notes has version 3, this program knows 2",
		ahead.Error())
}

// FuzzSplit: nothing is lost but space at the ends of lines and between statements, and each
// statement ends where it should.
func FuzzSplit(f *testing.F) {
	for _, seed := range []string{"", ";", "a;\nb;", "-- c;\na\n ;", "a; -- b\n;\n\n\nc;",
		"a;\r\n\tb;  \n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		statements, err := split(text)
		if err != nil {
			return
		}
		var kept strings.Builder
		for _, s := range statements {
			assert.NotEmpty(t, s, "statement")
			assert.True(t, strings.HasSuffix(s, ";"), "statement %q", s)
			assert.False(t, strings.HasPrefix(s, "\n"), "statement %q", s)
			kept.WriteString(s)
		}
		assert.Equal(t, squeeze(text), squeeze(kept.String()), "%q became %q", text, statements)
	})
}

func squeeze(s string) string {
	return strings.NewReplacer(" ", "", "\t", "", "\r", "", "\n", "").Replace(s)
}

// FuzzFill: whatever the file says, a table's name is the only thing that is put in, and no
// braces are left.
func FuzzFill(f *testing.F) {
	f.Add("CREATE TABLE {{table}} (id int)")
	f.Add("{{{{table}}}}")
	f.Add("{{table:_a}}{{")
	f.Fuzz(func(t *testing.T, text string) {
		filled, err := names{dialect: Postgres, table: "n"}.fill(text)
		assert.False(t, err == nil && strings.Contains(filled, "{{"), "%q became %q", text, filled)
	})
}
