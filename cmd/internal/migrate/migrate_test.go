package migrate

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/internal/servertest"
)

// Up, the second time nothing, and down, with a look before each that changes nothing.
func TestUpAndDown(t *testing.T) {
	forEach(t, func(_ *testing.T, _ engine, r *rig) {
		for range 2 {
			r.want(cli.No, "version 0 to 1")
		}
		out := r.want(cli.Done, "version 0 to 1", r.up()...)
		if !strings.Contains(out, fmt.Sprintf("version  %d; this program knows %[1]d", r.newest)) ||
			!strings.Contains(out, "done") {
			r.t.Errorf("after it is done: %s", out)
		}
		r.want(cli.Done, "nothing is to be done")
		r.want(cli.Done, "nothing is to be done", r.up()...)
		r.want(cli.Done, "nothing is to be done", "--to", fmt.Sprint(r.newest))

		if out = r.want(cli.No, "version 1 to 0", "--to", "0"); !strings.Contains(out, "DROP") ||
			!strings.Contains(out, r.table) {
			r.t.Errorf("what is dropped: %s", out)
		}
		r.want(cli.No, fmt.Sprintf("--drop is missing: version %d to 0", r.newest),
			"--to", "0", "--apply")
		r.want(cli.No, "not confirmed", "--to", "0", "--apply", "--drop")
		r.want(cli.Done, "nothing is to be done")
		r.want(cli.Done, "dropped", "--to", "0", "--apply", "--drop", "--yes")
		r.want(cli.Done, "nothing is to be done", "--to", "0", "--apply", "--drop")
		r.want(cli.No, "version 0 to 1")
		r.want(cli.Usage, fmt.Sprintf("--to is 7; there are 0 to %d", r.newest), "--to", "7")
	})
}

func TestConfirmed(t *testing.T) {
	r := newRig(t, engines[0], "fence")
	r.want(cli.Done, "done", r.up()...)
	code, out, errOut := answered(t.Context(), "y\n",
		slices.Concat(r.flags, []string{"--to", "0", "--apply", "--drop"})...)
	if code != cli.Done || strings.Count(errOut, "\n") != 1 || !strings.Contains(out, "Drop it? [y/N]") ||
		!strings.Contains(out, "positions of all groups") ||
		strings.Contains(out, "nothing was changed") {
		t.Errorf("%d, %s, %s", code, out, errOut)
	}
}

func TestJSON(t *testing.T) {
	forEach(t, func(t *testing.T, e engine, r *rig) {
		read := func(code int, args ...string) State {
			t.Helper()
			var s State
			if err := json.Unmarshal([]byte(r.want(code, "{", append(args, "--json")...)),
				&s); err != nil {
				t.Fatal(err)
			}
			if s.Table != r.table || s.Dialect != e.name || s.Newest != r.newest || s.Steps == nil {
				t.Errorf("%+v", s)
			}
			return s
		}
		if s := read(cli.No); s.Version != 0 || s.Target != r.newest || s.Applied ||
			len(s.Steps) != r.newest ||
			s.Steps[0].Name == "" || s.Steps[0].Milliseconds != 0 {
			t.Errorf("before: %+v", s)
		}
		if s := read(cli.Done, r.up()...); s.Version != r.newest || !s.Applied ||
			len(s.Steps) != r.newest ||
			s.Steps[0].Name == "" || s.Steps[0].Milliseconds <= 0 {
			t.Errorf("up: %+v", s)
		}
		if s := read(cli.Done); s.Version != r.newest || s.Applied || len(s.Steps) != 0 {
			t.Errorf("after: %+v", s)
		}
		if s := read(cli.Done, "--to", "0", "--apply", "--drop", "--yes"); s.Version != 0 ||
			!s.Applied || len(s.Steps) != r.newest || len(s.Steps[r.newest-1].Drops) == 0 ||
			s.Drops == "" {
			t.Errorf("down: %+v", s)
		}
	})
}

// Several at once: one does it, and all find it done.
func TestTogether(t *testing.T) {
	forEach(t, func(t *testing.T, _ engine, r *rig) {
		const many = 4
		var all sync.WaitGroup
		var codes [many]int
		var texts [many]string
		for i := range many {
			all.Go(func() {
				var out, errOut string
				codes[i], out, errOut = answered(t.Context(), "", slices.Concat(r.flags, r.up())...)
				texts[i] = out + errOut
			})
		}
		all.Wait()
		did := 0
		for i, text := range texts {
			if codes[i] != cli.Done {
				t.Errorf("exit code %d: %s", codes[i], text)
			}
			if strings.Contains(text, "version 0 to 1") {
				did++
			} else if !strings.Contains(text, "another run has done it") &&
				!strings.Contains(text, "nothing is to be done") &&
				!strings.Contains(text, "version 1 to 2") && // each may do one version
				!strings.Contains(text, "version 2 to 3") {
				t.Errorf("of one that came late: %s", text)
			}
		}
		if did != 1 {
			t.Errorf("%d have done it, want one:\n%s", did, strings.Join(texts[:], "\n"))
		}
		r.want(cli.Done, "nothing is to be done")
	})
}

// A migration that waits for another's lock ends with its context, and leaves nothing.
func TestInterrupted(t *testing.T) {
	for _, e := range engines[1:] {
		t.Run(e.name, func(t *testing.T) {
			r := newRig(t, e, "store")
			conn, err := r.db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			lock, unlock := `SELECT pg_advisory_lock(hashtextextended('onceward migrate', 0))`,
				`SELECT pg_advisory_unlock(hashtextextended('onceward migrate', 0))`
			waits := `SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.locktype = 'advisory' AND NOT l.granted`
			if e.name == "mysql" {
				lock, unlock = `DO GET_LOCK('onceward migrate', 30)`,
					`DO RELEASE_LOCK('onceward migrate')`
				waits = `SELECT count(*) FROM information_schema.processlist WHERE state = 'User lock'`
			}
			if _, err := conn.ExecContext(t.Context(), lock); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				for ctx.Err() == nil {
					var n int
					if r.db.QueryRowContext(ctx, waits).Scan(&n) == nil && n > 0 {
						cancel()
					}
				}
			}()
			code, out, errOut := answered(ctx, "", slices.Concat(r.flags, r.up())...)
			if code != cli.Interrupted || out != "" || !strings.Contains(errOut, "interrupted") {
				t.Errorf("%d, %q, %q", code, out, errOut)
			}
			if _, err := conn.ExecContext(t.Context(), unlock); err != nil {
				t.Fatal(err)
			}
			r.want(cli.No, "version 0 to 1")
			r.want(cli.Done, "done", r.up()...)
		})
	}
}

func TestInterruptedBefore(t *testing.T) {
	r := newRig(t, engines[0], "store")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if code, out, errOut := answered(ctx, "",
		slices.Concat(r.flags, r.up())...); code != cli.Interrupted || out != "" ||
		errOut != "onceward migrate: interrupted\n" {
		t.Errorf("%d, %q, %q", code, out, errOut)
	}
	if code, out, errOut := answered(ctx, "", r.flags...); code != cli.Interrupted || out != "" ||
		errOut != "onceward migrate: interrupted\n" {
		t.Errorf("of a look: %d, %q, %q", code, out, errOut)
	}
}

func TestTook(t *testing.T) {
	if got := (Step{Milliseconds: 2116.613}).took(); got != 2116613*time.Microsecond {
		t.Error(got)
	}
}

// A server that is not there is told, and no password.
func TestUnreachable(t *testing.T) {
	for _, dsn := range []string{"postgres://shop:geheim17@127.0.0.1:1/db",
		"mysql://shop:geheim17@127.0.0.1:1/db"} {
		code, out, errOut := command(t, "--sql", dsn, "--kind", "store")
		if code != cli.Usage || out != "" || !strings.Contains(errOut, "connection refused") ||
			strings.Contains(errOut, "geheim17") {
			t.Errorf("%d, %q, %q", code, out, errOut)
		}
	}
}

// Somebody's table is refused, and keeps what it has, also on the way down.
func TestAnothersTable(t *testing.T) {
	for _, e := range engines {
		for _, kind := range kinds {
			t.Run(e.name+"/"+kind, func(t *testing.T) {
				r := newRig(t, e, kind)
				r.exec("CREATE TABLE TABLE_NAME (name VARCHAR(40))")
				r.exec("INSERT INTO TABLE_NAME VALUES ('somebody')")
				code, out, errOut := command(t, r.flags...)
				if code != cli.Usage || !strings.Contains(errOut,
					r.table+" is there, and is not a table of") {
					t.Errorf("look: %d, %s%s", code, out, errOut)
				}
				code, out, errOut = command(t, slices.Concat(r.flags, r.up())...)
				if code != cli.Usage || !strings.Contains(errOut, "name another") {
					t.Errorf("apply: %d, %s%s", code, out, errOut)
				}
				r.want(cli.Done, "nothing is to be done", "--to", "0", "--apply", "--drop", "--yes")
				var name string
				if err := r.db.QueryRowContext(t.Context(),
					"SELECT name FROM "+r.table).Scan(&name); err != nil || name != "somebody" {
					t.Errorf("what is left of it: %q, %v", name, err)
				}
				r.exec("DROP TABLE TABLE_NAME")
				for _, suffix := range []string{"_parked", "_shards", "_results", "_meta",
					"_forgets"} {
					r.exec("DROP TABLE IF EXISTS TABLE_NAME" + suffix)
				}
			})
		}
	}
}

// Tables for ids that carry their time are made and checked for those, and for no others.
func TestIDTime(t *testing.T) {
	for _, e := range engines {
		if e.name == "sqlite" {
			continue
		}
		t.Run(e.name, func(t *testing.T) {
			r := newRig(t, e, "marks", "--idtime", "uuidv7")
			r.want(cli.Done, "done", r.up()...)
			r.want(cli.Done, "nothing is to be done", r.up()...)
			other := *r
			other.flags = slices.DeleteFunc(slices.Clone(r.flags), func(flag string) bool {
				return flag == "--idtime" || flag == "uuidv7"
			})
			other.want(cli.Usage, "made for \"uuidv7\"", r.up()...)
		})
	}
}

// Tables of a newer program are left alone: this one does not know how to undo them either.
func TestNewer(t *testing.T) {
	forEach(t, func(_ *testing.T, _ engine, r *rig) {
		r.want(cli.Done, "done", r.up()...)
		r.exec("UPDATE onceward_migrations SET version = version + 7" +
			" WHERE table_name = 'TABLE_NAME'")
		for _, args := range [][]string{nil, r.up(), {"--to", "0", "--apply", "--drop", "--yes"}} {
			r.want(cli.Usage, fmt.Sprintf("has version %d of", r.newest+7), args...)
		}
		r.exec("UPDATE onceward_migrations SET version = version - 7" +
			" WHERE table_name = 'TABLE_NAME'")
		r.want(cli.Done, "nothing is to be done")
	})
}

// A table that is on record and gone is not made anew by itself: it may be a restore that has not
// come to it yet.
func TestGone(t *testing.T) {
	forEach(t, func(t *testing.T, _ engine, r *rig) {
		r.want(cli.Done, "done", r.up()...)
		what := "TABLE"
		if strings.HasSuffix(t.Name(), "generations") {
			what = "VIEW"
		}
		r.exec("DROP " + what + " TABLE_NAME")
		r.want(cli.Usage, fmt.Sprintf("has version %d on record: somebody has dropped", r.newest))
		r.want(cli.Usage, "is gone", r.up()...)
		r.want(cli.Done, "dropped", "--to", "0", "--apply", "--drop", "--yes")
		r.want(cli.Done, "version 0 to 1", r.up()...)
	})
}

// Tables that were made by hand, or by a run that was cut off before it was put on record, are
// named and taken.
func TestUnrecorded(t *testing.T) {
	forEach(t, func(_ *testing.T, _ engine, r *rig) {
		r.want(cli.Done, "done", r.up()...)
		r.exec("DELETE FROM onceward_migrations WHERE table_name = 'TABLE_NAME'")
		r.want(cli.No, "are there and not on record")
		r.want(cli.Done, "version 0 to 1", r.up()...)
		r.want(cli.Done, "nothing is to be done")
	})
}

// A run of MySQL that was cut off between two tables has committed the first.
func TestCutOff(t *testing.T) {
	for _, kind := range []string{"marks", "store", "outbox"} {
		t.Run(kind, func(t *testing.T) {
			r := newRig(t, engines[2], kind)
			r.want(cli.Done, "done", r.up()...)
			r.exec("DELETE FROM onceward_migrations WHERE table_name = 'TABLE_NAME'")
			second := map[string]string{"marks": "_results", "store": "_forgets",
				"outbox": "_parked"}[kind]
			r.exec("DROP TABLE TABLE_NAME" + second)
			r.want(cli.No, "not on record")
			r.want(cli.Done, "version 0 to 1", r.up()...)
			r.want(cli.Done, "nothing is to be done")
		})
	}
}

// The longest window that anybody has asked for is on record; one that is longer is to be raised.
func TestWindow(t *testing.T) {
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			r := newRig(t, e, "marks")
			r.want(cli.Done, "done", r.up()...)
			r.want(cli.Done, "nothing is to be done", "--window", "24h")
			r.want(cli.No, "raise the window", "--window", "96h")
			r.want(cli.No, "raise the window", "--window", "0")
			r.want(cli.Done, "raise the window", "--window", "96h", "--apply")
			r.want(cli.Done, "nothing is to be done", "--window", "96h")
			r.want(cli.Done, "nothing is to be done")
			if out := r.want(cli.No, "raise_window", "--window",
				"97h", "--json"); !strings.Contains(out, `"raise_window": true`) {
				t.Error(out)
			}
		})
	}
}

func TestNewFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new.db")
	args := []string{"--sql", "sqlite:" + file, "--kind", "outbox", "--apply"}
	if code, _, errOut := command(t, args...); code != cli.Usage ||
		!strings.Contains(errOut, "there is no database") {
		t.Errorf("%d, %s", code, errOut)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("the file was made")
	}
	if code, out, errOut := command(t, append(args, "--new-file")...); code != cli.Done ||
		!strings.Contains(out, "version 0 to 1 (outbox)") {
		t.Errorf("%d, %s%s", code, out, errOut)
	}
}

// A schema of its own: versions are on record there.
func TestSchema(t *testing.T) {
	e := engines[1]
	_, db := e.open(t)
	schema := servertest.Prefix(t)
	if _, err := db.ExecContext(t.Context(), `CREATE SCHEMA "`+schema+`"`); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = db.ExecContext(context.Background(), `DROP SCHEMA "`+schema+`" CASCADE`)
	})
	r := newRig(t, e, "store", "--schema", schema)
	r.want(cli.Done, schema+"."+r.table, r.up()...)
	var n int
	if err := db.QueryRowContext(t.Context(),
		`SELECT version FROM "`+schema+`".onceward_migrations`).Scan(&n); err != nil || n != 1 {
		t.Errorf("version %d, %v", n, err)
	}
	bad := newRig(t, e, "store")
	if code, out, errOut := command(t,
		slices.Concat(bad.flags, []string{"--schema", schema + "_none",
			"--apply"})...); code != cli.Usage || !strings.Contains(errOut, "does not exist") {
		t.Errorf("a schema that is not there: %d, %s%s", code, out, errOut)
	}
}

// Where there is no terminal, only long steps are reported; the audit has each.
func TestQuiet(t *testing.T) {
	r := newRig(t, engines[0], "store")
	code, _, errOut := command(t, slices.Concat(r.flags, r.up())...)
	if code != cli.Done || strings.Count(errOut, "\n") != 1 ||
		!strings.Contains(errOut, "msg=audit who=") || !strings.Contains(errOut, "change=migrate") ||
		!strings.Contains(errOut, "was=0 is=1") {
		t.Errorf("%d, %q", code, errOut)
	}
	if longStep < time.Second {
		t.Error("every step is long")
	}
}
