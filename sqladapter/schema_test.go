package sqladapter

import (
	sqldriver "database/sql/driver"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/sqladapter/internal/dialect"
)

var update = flag.Bool("update", false, "write the golden files")

// TestGoldenSQL pins every statement: a change of one is a change of what runs in other
// people's databases, and should be seen in review.
func TestGoldenSQL(t *testing.T) {
	for _, d := range []Dialect{Postgres, SQLite, MySQL, dialect.SQLServer} {
		t.Run(d.String(), func(t *testing.T) {
			m, err := New(Config{Dialect: d, Namespace: "n", Schema: "Shop", Table: "marks"})
			require.NoError(t, err)
			sql := m.dialect
			parts := []string{m.Migrations().SQL(), sql.raise}
			parts = append(parts, insertText(m), loadText(m), insertManyText(m), loadManyText(m),
				peek(m), sql.window, sql.setWindow, sql.expire,
				sql.save(entry{}, []byte("result")).text)
			if text := withFingerprintText(m); text != insertManyText(m) {
				parts = append(parts, text)
			}
			if sql.forget != nil {
				parts = append(parts, sql.forget(make([]entry, 2))...)
			}
			switch w := sql.walker.(type) {
			case *postgresWalk:
				parts = append(parts, w.state, w.text, w.write)
			case *mysqlWalk:
				parts = append(parts, w.state)
				parts = append(parts, w.forget(make([]entry, 2))...)
			}
			if two := make([]entry, 2); sql.apart != nil {
				parts = append(parts, sql.apart(two).text, sql.results(two, true).text,
					sql.results(two, false).text)
			}
			wantGolden(t, d.String(), parts)
		})
	}
}

// wantGolden compares statements with a golden file.
func wantGolden(t *testing.T, name string, parts []string) {
	t.Helper()
	got := strings.Join(parts, "\n\n") + "\n"
	file := filepath.Join("testdata", name+".golden.sql")
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), got, "statements differ from %s (run with -update to accept):",
		file)
}

func TestNew(t *testing.T) {
	good := Config{Dialect: Postgres, Namespace: "payments"}
	tests := map[string]struct {
		field string
		edit  func(*Config)
	}{
		"no dialect":        {"Dialect", func(c *Config) { c.Dialect = 0 }},
		"unknown dialect":   {"Dialect", func(c *Config) { c.Dialect = 9 }},
		"no such retention": {"Retention", func(c *Config) { c.Retention = 2 }},
		"generations, SQLite": {"Retention", func(c *Config) {
			c.Dialect, c.Retention, c.Window = SQLite, Generations, time.Hour
		}},
		"generations, SQL Server": {"Retention", func(c *Config) {
			c.Dialect, c.Retention, c.Window = dialect.SQLServer, Generations, time.Hour
		}},
		"generations forever": {"Window", func(c *Config) { c.Retention = Generations }},
		"no namespace":        {"Namespace", func(c *Config) { c.Namespace = "" }},
		"odd namespace":       {"Namespace", func(c *Config) { c.Namespace = "pay ments" }},
		"negative window":     {"Window", func(c *Config) { c.Window = -time.Hour }},
		"window of 1ns":       {"Window", func(c *Config) { c.Window = 1 }},
		"unknown level":       {"Isolation", func(c *Config) { c.Isolation = 99 }},
		"negative limit":      {"ResultLimit", func(c *Config) { c.ResultLimit = -1 }},
		"negative level":      {"Isolation", func(c *Config) { c.Isolation = -1 }},
		"level in SQLite": {"Isolation", func(c *Config) {
			c.Dialect, c.Isolation = SQLite, 1
		}},
		"quote in table":      {"Table", func(c *Config) { c.Table = `m"; DROP TABLE x; --` }},
		"dot in table":        {"Table", func(c *Config) { c.Table = "public.marks" }},
		"newline after table": {"Table", func(c *Config) { c.Table = "marks\n" }},
		"digit first":         {"Table", func(c *Config) { c.Table = "1marks" }},
		"64 bytes":            {"Table", func(c *Config) { c.Table = strings.Repeat("t", 64) }},
		"quote in schema":     {"Schema", func(c *Config) { c.Schema = `"` }},
		"bracket in table": {"Table", func(c *Config) {
			c.Dialect, c.Table = dialect.SQLServer, "m]; DROP TABLE x; --"
		}},
		"temporary table": {"Table", func(c *Config) {
			c.Dialect, c.Table = dialect.SQLServer, "#marks"
		}},
		"SQLite's own": {"Table", func(c *Config) {
			c.Dialect, c.Table = SQLite, "SQLite_marks"
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cfg := good
			tt.edit(&cfg)
			m, err := New(cfg)
			var input *dedup.InputError
			require.Nil(t, m)
			require.ErrorAs(t, err, &input)
			require.Equal(t, tt.field, input.Field)
		})
	}
	for _, edit := range []func(*Config){
		func(*Config) {},
		func(c *Config) { c.Table = strings.Repeat("t", 63) },
		func(c *Config) { c.Schema, c.Table, c.Window = "_s", "T_9", time.Millisecond },
		func(c *Config) { c.Dialect, c.Retention, c.Window = MySQL, Generations, time.Hour },
	} {
		cfg := good
		edit(&cfg)
		_, err := New(cfg)
		assert.NoError(t, err)
	}
}

func TestMigrate(t *testing.T) {
	m := newMarks(t, Postgres)
	one := func([]any) [][]sqldriver.Value { return [][]sqldriver.Value{{int64(1)}} }
	hour := func([]any) [][]sqldriver.Value { return [][]sqldriver.Value{{int64(3_600_000)}} }
	kind := Step{Query: m.dialect.kind, Rows: func([]any) [][]sqldriver.Value {
		return [][]sqldriver.Value{{int64(0)}}
	}}
	check, window := Step{Query: loadText(m)}, Step{Query: m.dialect.window, Rows: hour}
	none, there, level := Step{Like: "to_regclass"}, Step{Like: "to_regclass", Rows: one},
		Step{Like: "SELECT version", Rows: one}
	second, newest := Step{Like: "SELECT version", Rows: number(2)},
		Step{Like: "SELECT version", Rows: number(3)}
	begun := []Step{{Like: "pg_advisory_xact_lock"},
		{Like: `IF NOT EXISTS "onceward_migrations"`}, there}
	third := slices.Concat(begun, []Step{second, {Like: "ADD COLUMN IF NOT EXISTS id_form"},
		{Like: "ELSE 'digest' END"}, check, {Like: "VALUES ('marks', 'onceward_marks', 3)"}})
	fresh := slices.Concat([]Step{kind, none}, begun, []Step{
		{Like: "SELECT version"}, {Like: `"onceward_marks" (`},
		{Like: `"onceward_marks_results" (`}, {Like: "CREATE INDEX"},
		{Like: `"onceward_marks_meta" (`}, {Query: m.dialect.raise},
		check, {Like: "VALUES ('marks', 'onceward_marks', 1)"},
	}, begun, []Step{level, {Like: "server_version_num", Rows: number(140000)},
		{Like: "ALTER TABLE"}, {Like: "DROP INDEX CONCURRENTLY"}},
		begun, []Step{level, check, {Like: "VALUES ('marks', 'onceward_marks', 2)"}},
		third, begun, []Step{newest, check, window})
	db, s := openScript(t, fresh...)
	require.NoError(t, m.Migrate(t.Context(), db))
	assert.Equal(t, 5, s.Committed)
	// An older server keeps its index.
	old := slices.Concat([]Step{kind, there, level}, begun, []Step{level,
		{Like: "server_version_num", Rows: number(130023)}, {Like: "ALTER TABLE"}},
		begun, []Step{level, check, {Like: "VALUES ('marks', 'onceward_marks', 2)"}},
		third, begun, []Step{newest, check, window})
	db, _ = openScript(t, old...)
	require.NoError(t, m.Migrate(t.Context(), db))
	done := []Step{kind, there, newest, check}
	longer := Step{Query: m.dialect.window, Rows: func([]any) [][]sqldriver.Value {
		return [][]sqldriver.Value{{int64(1)}}
	}}
	db, s = openScript(t, append(done, longer, Step{Query: m.dialect.raise})...)
	require.NoError(t, m.Migrate(t.Context(), db))
	assert.Equal(t, 1, s.Committed, "a longer window than before")
	foreign, s := openScript(t,
		append(slices.Concat([]Step{kind, none}, begun), Step{Like: "SELECT version"},
			Step{Like: `"onceward_marks" (`}, Step{Like: `"onceward_marks_results" (`},
			Step{Like: "CREATE INDEX", Err: codeError("42703")},
			Step{Query: m.dialect.form, Err: codeError("42703")})...)
	err := m.Migrate(t.Context(), foreign)
	assert.ErrorContains(t, err, `"onceward_marks" is not a table of marks`,
		"a table with other columns")
	assert.Zero(t, s.Committed, "a table with other columns")
	refused, _ := openScript(t, kind, Step{Like: "to_regclass", Err: codeError("42501")},
		Step{Query: m.dialect.form, Err: codeError("42P01")})
	err = m.Migrate(t.Context(), refused)
	require.Error(t, err, "no right")
	assert.NotContains(t, err.Error(), "form", "no right")
	require.Nil(t, new(Ledger).Migrations(), "Migrations().SQL() is not what Migrate runs")
	assert.Nil(t, (*Ledger)(nil).Migrations(), "Migrations().SQL() is not what Migrate runs")
	assert.Contains(t, m.Migrations().SQL(), m.dialect.raise,
		"Migrations().SQL() is not what Migrate runs")
}

// recorded answers with the recorded window.
func recorded(m *Ledger, ms int64) Step {
	return Step{Query: m.dialect.window, Rows: func([]any) [][]sqldriver.Value {
		return [][]sqldriver.Value{{ms}}
	}}
}

// expired finds two marks. The statements that delete their other rows must name both.
func expired(m *Ledger) []Step {
	es := []entry{{id: driver.ID{1}}, {id: driver.ID{2}}}
	steps := []Step{{Query: m.dialect.expire, Rows: func([]any) [][]sqldriver.Value {
		return [][]sqldriver.Value{{es[0].id[:]}, {es[1].id[:]}}
	}}}
	for _, text := range m.dialect.forget(es) {
		steps = append(steps, Step{Query: text})
	}
	return steps
}

// TestDeleteExpired uses the index by age, as on SQLite and on PostgreSQL before version 14.
func TestDeleteExpired(t *testing.T) {
	for _, d := range []Dialect{Postgres, SQLite} {
		m := newMarks(t, d) // with a window of an hour
		var first []Step
		if w, ok := m.dialect.walker.(*postgresWalk); ok {
			first = []Step{stateOf(w, 130000)}
		}
		with := func(steps ...Step) []Step { return slices.Concat(steps[:1], first, steps[1:]) }
		tests := map[string]struct {
			steps   []Step
			window  time.Duration
			deleted int64
			fails   string
		}{
			"the recorded one": {with(append([]Step{recorded(m, 7_200_000)}, expired(m)...)...),
				2 * time.Hour, 2, ""},
			"a shorter one": {with(append([]Step{recorded(m, 1)}, expired(m)...)...),
				time.Hour, 2, ""},
			"nothing expired": {with(recorded(m, 1), Step{Query: m.dialect.expire}),
				time.Hour, 0, ""},
			"for ever": {[]Step{recorded(m, forever)}, 0, 0, "SetWindow"},
			"none":     {[]Step{{Query: m.dialect.window}}, 0, 0, "call Migrate"},
			"no answer": {[]Step{{Query: m.dialect.window, Err: codeError("57P01")}},
				0, 0, "57P01"},
			"no answer in the end": {with(recorded(m, 1),
				Step{Query: m.dialect.expire, Err: codeError("57P01")}), time.Hour, 0, "57P01"},
		}
		for name, tt := range tests {
			t.Run(d.String()+"/"+name, func(t *testing.T) {
				db, s := openScript(t, tt.steps...)
				deleted, err := m.DeleteExpired(t.Context(), db, 1000)
				assert.Equal(t, tt.deleted, deleted)
				if tt.fails != "" {
					require.ErrorContains(t, err, tt.fails)
					assert.Zero(t, s.Committed)
				} else {
					require.NoError(t, err)
					assert.Equal(t, 1, s.Committed)
				}
				if tt.window > 0 {
					assert.Equal(t, []any{ceil(tt.window, m.dialect.tick), int64(1000)},
						s.Args[1+len(first)])
				}
			})
		}
	}
	forever, err := New(Config{Dialect: SQLite, Namespace: "n"})
	require.NoError(t, err)
	db, _ := openScript(t) // any statement fails the test
	var input *dedup.InputError
	_, err = forever.DeleteExpired(t.Context(), db, 1)
	require.ErrorAs(t, err, &input)
	assert.Equal(t, "Window", input.Field)
}

func TestSetWindow(t *testing.T) {
	m := newMarks(t, Postgres)
	db, s := openScript(t, Step{Query: m.dialect.setWindow},
		Step{Query: m.dialect.setWindow, Err: codeError("42P01")})
	require.NoError(t, m.SetWindow(t.Context(), db))
	assert.Equal(t, int64(3_600_000), s.Args[0][0])
	assert.ErrorIs(t, m.SetWindow(t.Context(), db), codeError("42P01"), "without a table")
}

func TestLookup(t *testing.T) {
	m := newMarks(t, SQLite)
	body := driver.FingerprintOf([]byte("body"))
	db, _ := openScript(t,
		Step{Query: loadText(m)},
		Step{Query: loadText(m), Rows: stored(body)},
		Step{Query: loadText(m), Rows: stored(body)},
		Step{Query: loadText(m), Err: codeError("57P01")},
	)
	_, found, err := m.Lookup(t.Context(), db, testKey)
	require.NoError(t, err)
	assert.False(t, found, "absent")
	mark, found, err := m.Lookup(t.Context(), db, testKey)
	require.NoError(t, err)
	assert.True(t, found, "present")
	assert.Equal(t, dedup.Duplicate, mark.Outcome, "present")
	assert.Equal(t, 3*time.Second, mark.Age, "present")
	mark, found, err = m.Lookup(t.Context(), db, testKey,
		dedup.WithFingerprint([]byte("x")))
	require.NoError(t, err)
	assert.True(t, found, "other payload")
	assert.Equal(t, dedup.Mismatch, mark.Outcome, "other payload")
	_, found, err = m.Lookup(t.Context(), db, testKey)
	assert.False(t, found, "server stopping")
	assert.True(t, Retryable(err), "server stopping")
}
