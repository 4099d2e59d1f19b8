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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/internal/servertest"
)

// It migrates up, finds nothing to do, and migrates down. A look before each step changes nothing.
func TestUpAndDown(t *testing.T) {
	forEach(t, func(_ *testing.T, _ engine, r *rig) {
		for range 2 {
			r.want(cli.No, "version 0 to 1")
		}
		out := r.want(cli.Done, "version 0 to 1", r.up()...)
		assert.Contains(r.t, out, fmt.Sprintf("version  %d; this program knows %[1]d", r.newest),
			"after it is done: %s", out)
		assert.Contains(r.t, out, "done", "after it is done: %s", out)
		r.want(cli.Done, "nothing is to be done")
		r.want(cli.Done, "nothing is to be done", r.up()...)
		r.want(cli.Done, "nothing is to be done", "--to", fmt.Sprint(r.newest))

		out = r.want(cli.No, "version 1 to 0", "--to", "0")
		assert.Contains(r.t, out, "DROP", "what is dropped: %s", out)
		assert.Contains(r.t, out, r.table, "what is dropped: %s", out)
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
	assert.Equal(t, cli.Done, code)
	assert.Equal(t, 1, strings.Count(errOut, "\n"))
	assert.Contains(t, out, "Drop it? [y/N]")
	assert.Contains(t, out, "positions of all groups")
	assert.NotContains(t, out, "nothing was changed")
}

func TestJSON(t *testing.T) {
	forEach(t, func(t *testing.T, e engine, r *rig) {
		read := func(code int, args ...string) State {
			t.Helper()
			var s State
			require.NoError(t,
				json.Unmarshal([]byte(r.want(code, "{", append(args, "--json")...)),
					&s))
			assert.Equal(t, r.table, s.Table)
			assert.Equal(t, e.name, s.Dialect)
			assert.Equal(t, r.newest, s.Newest)
			assert.NotNil(t, s.Steps)
			return s
		}
		s := read(cli.No)
		assert.Equal(t, 0, s.Version, "before: %+v", s)
		assert.Equal(t, r.newest, s.Target, "before: %+v", s)
		assert.False(t, s.Applied, "before: %+v", s)
		require.Len(t, s.Steps, r.newest, "before: %+v", s)
		assert.NotEqual(t, "", s.Steps[0].Name, "before: %+v", s)
		assert.EqualValues(t, 0, s.Steps[0].Milliseconds, "before: %+v", s)
		s = read(cli.Done, r.up()...)
		assert.Equal(t, r.newest, s.Version, "up: %+v", s)
		assert.True(t, s.Applied, "up: %+v", s)
		require.Len(t, s.Steps, r.newest, "up: %+v", s)
		assert.NotEqual(t, "", s.Steps[0].Name, "up: %+v", s)
		assert.False(t, s.Steps[0].Milliseconds <= 0, "up: %+v", s)
		s = read(cli.Done)
		assert.Equal(t, r.newest, s.Version)
		assert.False(t, s.Applied)
		assert.Empty(t, s.Steps)
		s = read(cli.Done, "--to", "0", "--apply", "--drop", "--yes")
		assert.Equal(t, 0, s.Version, "down: %+v", s)
		assert.True(t, s.Applied, "down: %+v", s)
		require.Len(t, s.Steps, r.newest, "down: %+v", s)
		require.NotEmpty(t, s.Steps[r.newest-1].Drops, "down: %+v", s)
		assert.NotEqual(t, "", s.Drops, "down: %+v", s)
	})
}

// Several runs at once: one of them migrates, and all find it done.
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
			assert.Equal(t, cli.Done, codes[i], text)
			if strings.Contains(text, "version 0 to 1") {
				did++
				continue
			}
			// each run may do one of the versions
			assert.Regexp(t, "another run has done it|nothing is to be done|version 1 to 2|version 2 to 3",
				text)
		}
		assert.Equal(t, 1, did, "%d have done it, want one:\n%s", did,
			strings.Join(texts[:], "\n"))
		r.want(cli.Done, "nothing is to be done")
	})
}

// A migration that waits for another one's lock ends with its context, and leaves nothing.
func TestInterrupted(t *testing.T) {
	for _, e := range engines[1:] {
		t.Run(e.name, func(t *testing.T) {
			r := newRig(t, e, "store")
			conn, err := r.db.Conn(t.Context())
			require.NoError(t, err)
			defer func() { _ = conn.Close() }()
			lock, unlock := `SELECT pg_advisory_lock(hashtextextended('onceward migrate', 0))`,
				`SELECT pg_advisory_unlock(hashtextextended('onceward migrate', 0))`
			waits := `SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.locktype = 'advisory' AND NOT l.granted`
			if e.name == "mysql" {
				lock, unlock = `DO GET_LOCK('onceward migrate', 30)`,
					`DO RELEASE_LOCK('onceward migrate')`
				waits = `SELECT count(*) FROM information_schema.processlist WHERE state = 'User lock'`
			}
			_, err = conn.ExecContext(t.Context(), lock)
			require.NoError(t, err)
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
			assert.Equal(t, cli.Interrupted, code)
			assert.Equal(t, "", out)
			assert.Contains(t, errOut, "interrupted")
			_, err = conn.ExecContext(t.Context(), unlock)
			require.NoError(t, err)
			r.want(cli.No, "version 0 to 1")
			r.want(cli.Done, "done", r.up()...)
		})
	}
}

func TestInterruptedBefore(t *testing.T) {
	r := newRig(t, engines[0], "store")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	code, out, errOut := answered(ctx, "",
		slices.Concat(r.flags, r.up())...)
	assert.Equal(t, cli.Interrupted, code)
	assert.Equal(t, "", out)
	assert.Equal(t, "onceward migrate: interrupted\n", errOut)
	code, out, errOut = answered(ctx, "", r.flags...)
	assert.Equal(t, cli.Interrupted, code, "of a look: %d, %q, %q", code, out, errOut)
	assert.Equal(t, "", out, "of a look: %d, %q, %q", code, out, errOut)
	assert.Equal(t, "onceward migrate: interrupted\n", errOut, "of a look: %d, %q, %q", code, out,
		errOut)
}

func TestTook(t *testing.T) {
	assert.EqualValues(t, 2116613*time.Microsecond, (Step{Milliseconds: 2116.613}).took())
}

// A server that does not exist gives an error without a password.
func TestUnreachable(t *testing.T) {
	for _, dsn := range []string{"postgres://shop:geheim17@127.0.0.1:1/db",
		"mysql://shop:geheim17@127.0.0.1:1/db"} {
		code, out, errOut := command(t, "--sql", dsn, "--kind", "store")
		assert.Equal(t, cli.Usage, code)
		assert.Equal(t, "", out)
		assert.Contains(t, errOut, "connection refused")
		assert.NotContains(t, errOut, "geheim17")
	}
}

// A foreign table is refused and keeps its content, also on the way down.
func TestAnothersTable(t *testing.T) {
	for _, e := range engines {
		for _, kind := range kinds {
			t.Run(e.name+"/"+kind, func(t *testing.T) {
				r := newRig(t, e, kind)
				r.exec("CREATE TABLE TABLE_NAME (name VARCHAR(40))")
				r.exec("INSERT INTO TABLE_NAME VALUES ('somebody')")
				code, out, errOut := command(t, r.flags...)
				assert.Equal(t, cli.Usage, code, "look: %d, %s%s", code, out, errOut)
				assert.Contains(t, errOut, r.table+" is there, and is not a table of",
					"look: %d, %s%s", code, out, errOut)
				code, out, errOut = command(t, slices.Concat(r.flags, r.up())...)
				assert.Equal(t, cli.Usage, code, "apply: %d, %s%s", code, out, errOut)
				assert.Contains(t, errOut, "name another", "apply: %d, %s%s", code, out, errOut)
				r.want(cli.Done, "nothing is to be done", "--to", "0", "--apply", "--drop", "--yes")
				var name string
				err := r.db.QueryRowContext(t.Context(),
					"SELECT name FROM "+r.table).Scan(&name)
				require.NoError(t, err, "what is left of it: %q, %v", name, err)
				assert.Equal(t, "somebody", name, "what is left of it: %q, %v", name, err)
				r.exec("DROP TABLE TABLE_NAME")
				for _, suffix := range []string{"_parked", "_shards", "_results", "_meta",
					"_forgets"} {
					r.exec("DROP TABLE IF EXISTS TABLE_NAME" + suffix)
				}
			})
		}
	}
}

// Tables for ids with a time are made and checked for one kind of ids, and refuse others.
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

// Tables of a newer program are left alone. This program cannot undo them either.
func TestNewer(t *testing.T) {
	forEach(t, func(_ *testing.T, _ engine, r *rig) {
		r.want(cli.Done, "done", r.up()...)
		r.exec("UPDATE onceward_migrations SET version = version + 1" +
			" WHERE table_name = 'TABLE_NAME'")
		for _, args := range [][]string{nil, r.up(), {"--to", "0", "--apply", "--drop", "--yes"}} {
			r.want(cli.Usage, fmt.Sprintf("has version %d of", r.newest+1), args...)
		}
		r.exec("UPDATE onceward_migrations SET version = version - 1" +
			" WHERE table_name = 'TABLE_NAME'")
		r.want(cli.Done, "nothing is to be done")
	})
}

// A table that is on record but gone is not made again by itself. A restore may not have got to it
// yet.
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

// Tables may exist without a record, made by hand or by a run that was cut off. The command names
// them and uses them.
func TestUnrecorded(t *testing.T) {
	forEach(t, func(_ *testing.T, _ engine, r *rig) {
		r.want(cli.Done, "done", r.up()...)
		r.exec("DELETE FROM onceward_migrations WHERE table_name = 'TABLE_NAME'")
		r.want(cli.No, "are there and not on record")
		r.want(cli.Done, "version 0 to 1", r.up()...)
		r.want(cli.Done, "nothing is to be done")
	})
}

// A run on MySQL that was cut off between two tables has committed the first one.
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

// A run on MySQL is cut off, or another run sees it, before the form of the ids is on record.
func TestCutOffBeforeForm(t *testing.T) {
	for name, statement := range map[string]string{
		"no row":  "DELETE FROM TABLE_NAME_meta",
		"no form": "UPDATE TABLE_NAME_meta SET id_form = NULL",
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, engines[2], "marks")
			r.want(cli.Done, "done", r.up()...)
			r.exec("DELETE FROM onceward_migrations WHERE table_name = 'TABLE_NAME'")
			r.exec(statement)
			r.want(cli.No, "cut off or is under way")
			r.want(cli.Done, "version 0 to 1", r.up()...)
			r.want(cli.Done, "nothing is to be done")
		})
	}
}

// Another run commits the first version after this one has read that there is none. Its tables lack
// the later versions' changes.
func TestCutOffBeforeLaterVersions(t *testing.T) {
	for _, e := range engines[1:] {
		t.Run(e.name, func(t *testing.T) {
			r := newRig(t, e, "marks")
			r.want(cli.Done, "done", append(r.up(), "--to", "1")...)
			r.exec("DELETE FROM onceward_migrations WHERE table_name = 'TABLE_NAME'")
			r.want(cli.No, "cut off or is under way")
			r.want(cli.Done, "version 0 to 1", r.up()...)
			r.want(cli.Done, "nothing is to be done")
		})
	}
}

// The longest window ever used is on record. A longer one needs a change.
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
			assert.Contains(t, r.want(cli.No, "raise_window", "--window",
				"97h", "--json"), `"raise_window": true`)
		})
	}
}

func TestNewFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new.db")
	args := []string{"--sql", "sqlite:" + file, "--kind", "outbox", "--apply"}
	code, _, errOut := command(t, args...)
	assert.Equal(t, cli.Usage, code)
	assert.Contains(t, errOut, "there is no database")
	_, err := os.Stat(file)
	assert.Error(t, err, "the file was made")
	code, out, errOut := command(t, append(args, "--new-file")...)
	assert.Equal(t, cli.Done, code, errOut)
	assert.Contains(t, out, "version 0 to 1 (outbox)", errOut)
}

// In another schema the versions are recorded in that schema.
func TestSchema(t *testing.T) {
	e := engines[1]
	_, db := e.open(t)
	schema := servertest.Prefix(t)
	_, err := db.ExecContext(t.Context(), `CREATE SCHEMA "`+schema+`"`)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, _ = db.ExecContext(context.Background(), `DROP SCHEMA "`+schema+`" CASCADE`)
	})
	r := newRig(t, e, "store", "--schema", schema)
	r.want(cli.Done, schema+"."+r.table, r.up()...)
	var n int
	err = db.QueryRowContext(t.Context(),
		`SELECT version FROM "`+schema+`".onceward_migrations`).Scan(&n)
	require.NoError(t, err, "version %d, %v", n, err)
	assert.Equal(t, 1, n, "version %d, %v", n, err)
	bad := newRig(t, e, "store")
	code, out, errOut := command(t,
		slices.Concat(bad.flags, []string{"--schema", schema + "_none",
			"--apply"})...)
	assert.Equal(t, cli.Usage, code, "a schema that is not there: %d, %s%s", code, out, errOut)
	assert.Contains(t, errOut, "does not exist", "a schema that is not there: %d, %s%s", code,
		out, errOut)
}

// Without a terminal only long steps are reported. The audit has every step.
func TestQuiet(t *testing.T) {
	r := newRig(t, engines[0], "store")
	code, _, errOut := command(t, slices.Concat(r.flags, r.up())...)
	assert.Equal(t, cli.Done, code)
	assert.Equal(t, 1, strings.Count(errOut, "\n"))
	assert.Contains(t, errOut, "msg=audit who=")
	assert.Contains(t, errOut, "change=migrate")
	assert.Contains(t, errOut, "was=0 is=1")
	assert.GreaterOrEqual(t, longStep, time.Second, "every step is long")
}
