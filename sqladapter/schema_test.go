package sqladapter

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onceward/onceward/dedup"
)

var update = flag.Bool("update", false, "write the golden files")

// TestGoldenSQL pins every statement: a change of one is a change of what runs in other
// people's databases, and should be seen in review.
func TestGoldenSQL(t *testing.T) {
	for _, d := range []Dialect{Postgres, SQLite} {
		t.Run(d.String(), func(t *testing.T) {
			m, err := New(Config{Dialect: d, Namespace: "n", Schema: "Shop", Table: "marks"})
			if err != nil {
				t.Fatal(err)
			}
			parts := append(m.migration(), m.dialect.insert, m.dialect.load, m.dialect.insertMany, m.dialect.loadMany, m.dialect.expire)
			got := strings.Join(parts, "\n\n") + "\n"
			file := filepath.Join("testdata", d.String()+".golden.sql")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("statements differ from %s (run with -update to accept):\n%s", file, got)
			}
		})
	}
}

func TestNew(t *testing.T) {
	good := Config{Dialect: Postgres, Namespace: "payments"}
	tests := map[string]struct {
		field string
		edit  func(*Config)
	}{
		"no dialect":          {"Dialect", func(c *Config) { c.Dialect = 0 }},
		"unknown dialect":     {"Dialect", func(c *Config) { c.Dialect = 9 }},
		"no namespace":        {"Namespace", func(c *Config) { c.Namespace = "" }},
		"odd namespace":       {"Namespace", func(c *Config) { c.Namespace = "pay ments" }},
		"negative window":     {"Window", func(c *Config) { c.Window = -time.Hour }},
		"window of 1ns":       {"Window", func(c *Config) { c.Window = 1 }},
		"unknown level":       {"Isolation", func(c *Config) { c.Isolation = 99 }},
		"negative level":      {"Isolation", func(c *Config) { c.Isolation = -1 }},
		"level in SQLite":     {"Isolation", func(c *Config) { c.Dialect, c.Isolation = SQLite, 1 }},
		"quote in table":      {"Table", func(c *Config) { c.Table = `m"; DROP TABLE x; --` }},
		"dot in table":        {"Table", func(c *Config) { c.Table = "public.marks" }},
		"newline after table": {"Table", func(c *Config) { c.Table = "marks\n" }},
		"digit first":         {"Table", func(c *Config) { c.Table = "1marks" }},
		"64 bytes":            {"Table", func(c *Config) { c.Table = strings.Repeat("t", 64) }},
		"quote in schema":     {"Schema", func(c *Config) { c.Schema = `"` }},
		"SQLite's own":        {"Table", func(c *Config) { c.Dialect, c.Table = SQLite, "SQLite_marks" }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cfg := good
			tt.edit(&cfg)
			m, err := New(cfg)
			var input *dedup.InputError
			if m != nil || !errors.As(err, &input) || input.Field != tt.field {
				t.Fatalf("New = %v, %v; want an InputError on %q", m, err, tt.field)
			}
		})
	}
	for _, edit := range []func(*Config){
		func(*Config) {},
		func(c *Config) { c.Table = strings.Repeat("t", 63) },
		func(c *Config) { c.Schema, c.Table, c.Window = "_s", "T_9", time.Millisecond },
	} {
		cfg := good
		edit(&cfg)
		if _, err := New(cfg); err != nil {
			t.Errorf("New(%+v): %v", cfg, err)
		}
	}
}

func TestMigrate(t *testing.T) {
	m := newMarks(t, Postgres)
	var steps []step
	for _, statement := range m.migration() {
		steps = append(steps, step{query: statement})
	}
	if len(steps) != 3 || steps[0].query != m.dialect.lock {
		t.Fatalf("want the lock, the table and the index, got %d statements", len(steps))
	}
	db, _ := openScript(t, append(steps, step{query: m.dialect.load})...)
	if err := m.Migrate(t.Context(), db); err != nil {
		t.Error(err)
	}
	foreign, _ := openScript(t, append(steps, step{query: m.dialect.load, err: codeError("42703")})...)
	if err := m.Migrate(t.Context(), foreign); err == nil || !strings.Contains(err.Error(), `"onceward_marks" is not a table of marks`) {
		t.Errorf("a table with other columns: %v", err)
	}
	if new(Marks).Schema() != "" || m.Schema() != m.dialect.ddl {
		t.Error("Schema is not what Migrate runs")
	}
}

func TestDeleteExpired(t *testing.T) {
	m := newMarks(t, SQLite)
	db, s := openScript(t, step{query: m.dialect.expire})
	deleted, err := m.DeleteExpired(t.Context(), db, 1000)
	if err != nil || deleted != 7 {
		t.Errorf("DeleteExpired = %d, %v", deleted, err)
	}
	if got := s.args[0]; got[0] != "payments" || got[1] != int64(3_600_000) || got[2] != int64(1000) {
		t.Errorf("args = %v", got)
	}
	forever, err := New(Config{Dialect: SQLite, Namespace: "n"})
	if err != nil {
		t.Fatal(err)
	}
	var input *dedup.InputError
	if _, err := forever.DeleteExpired(t.Context(), db, 1); !errors.As(err, &input) || input.Field != "Window" {
		t.Errorf("without a window: %v", err)
	}
}

func TestLookup(t *testing.T) {
	m := newMarks(t, SQLite)
	body := dedup.FingerprintOf([]byte("body"))
	db, _ := openScript(t,
		step{query: m.dialect.load},
		step{query: m.dialect.load, rows: stored(body)},
		step{query: m.dialect.load, rows: stored(body)},
		step{query: m.dialect.load, err: codeError("57P01")},
	)
	if _, found, err := m.Lookup(t.Context(), db, testKey); found || err != nil {
		t.Errorf("absent: %v, %v", found, err)
	}
	if mark, found, err := m.Lookup(t.Context(), db, testKey); !found || err != nil || mark.Outcome != dedup.Duplicate || mark.Age != 3*time.Second {
		t.Errorf("present: %+v, %v, %v", mark, found, err)
	}
	if mark, found, err := m.Lookup(t.Context(), db, testKey, dedup.WithFingerprint([]byte("x"))); !found || err != nil || mark.Outcome != dedup.Mismatch {
		t.Errorf("other payload: %+v, %v, %v", mark, found, err)
	}
	if _, found, err := m.Lookup(t.Context(), db, testKey); found || !Retryable(err) {
		t.Errorf("server stopping: %v, %v", found, err)
	}
}
