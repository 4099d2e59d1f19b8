package sql_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/sqladapter"
)

// victimTask is the environment variable that passes a victim to its process, as JSON.
const victimTask = "ONCEWARD_TEST_SQL_VICTIM"

// victim is a process that delivers one batch and kills itself at a statement.
type victim struct {
	Driver, DSN   string
	Dialect       sqladapter.Dialect
	Retention     sqladapter.Retention
	Table, Ledger string
	Way           string
	Batch         []string
	// Step counts what goes to the database, from zero; When is before, during or after.
	Step int
	When string
}

// killable is an engine that another process can open.
type killable struct {
	name, driver string
	dialect      sqladapter.Dialect
	dsn          func(t *testing.T) string
	retention    sqladapter.Retention
}

func killables() []killable {
	all := []killable{
		{name: "sqlite", driver: "sqlite", dialect: sqladapter.SQLite,
			dsn: func(t *testing.T) string {
				return sqliteDSN(filepath.Join(t.TempDir(), "marks.db"), "immediate")
			}},
		{name: "mariadb", driver: "mysql", dialect: sqladapter.MySQL,
			dsn: func(t *testing.T) string {
				return mariadbDSN(t, servertest.MariaDB(t), nil)
			}},
	}
	for _, mode := range someModes {
		all = append(all, killable{name: "postgres/" + mode, driver: "pgx",
			dialect: sqladapter.Postgres, dsn: func(t *testing.T) string {
				return postgresURL(t, servertest.Postgres(t), mode)
			}})
	}
	generations := all[len(all)-1]
	generations.name, generations.retention = generations.name+"+generations",
		sqladapter.Generations
	return append(all, generations)
}

// TestKilledAtEveryStatement: a process is killed with SIGKILL before the first statement of a
// delivery and after each. The effect is there if COMMIT was executed, and after a redelivery
// it is there once.
func TestKilledAtEveryStatement(t *testing.T) {
	if task := os.Getenv(victimTask); task != "" {
		beVictim(t, task)
		return
	}
	for _, e := range killables() {
		for _, w := range methods {
			t.Run(e.name+"/"+w.name, func(t *testing.T) {
				t.Parallel()
				v := victim{Driver: e.driver, DSN: e.dsn(t), Dialect: e.dialect,
					Retention: e.retention, Way: w.name}
				s := newShop(t, engine{
					name: e.name, dialect: e.dialect, retention: e.retention,
					open: func(t *testing.T) *sql.DB { return openDB(t, e.driver, v.DSN) },
				})
				v.Table, v.Ledger = s.table, s.ledger
				all := s.killEverywhere(t, v, w)
				s.wantEffects(t, all)
			})
		}
	}
}

// killEverywhere returns all the messages it has delivered.
func (s *shop) killEverywhere(t *testing.T, v victim, w method) (all []string) {
	t.Helper()
	next := func(name string) []string {
		batch := []string{name}
		if w.size > 1 {
			batch = around(t, "done", name)
		}
		all = append(all, batch...)
		return batch
	}
	first, err := w.do(s, t.Context(), []string{"done"})
	require.NoError(t, err)
	require.True(t, first, "the message before")
	all = append(all, "done")
	v.Batch = next("dry run")
	steps := v.rehearse(t)
	commit := slices.Index(steps, "commit")
	for i, step := range steps {
		for _, when := range killedWhen {
			if when == "before" && i > 0 && !killedBeforeEach {
				continue
			}
			v.Step, v.When, v.Batch = i, when, next(fmt.Sprintf("%d %s", i, when))
			assert.Equal(t, fmt.Sprintf("%s %s", when, step), v.run(t),
				"it was to be killed %s %q", when, step)
			committed := i > commit || i == commit && when == "after"
			open := i == commit && when == "during"
			first, err := s.again(t, w, v.Batch)
			require.NoError(t, err, "killed %s %q, redelivery: first = %v", when, step, first)
			assert.False(t, !open && first == committed, "killed %s %q, redelivery: first = %v",
				when, step, first)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// around is a batch with a duplicate between two new messages, also in the order of their ids,
// so that every batch takes the same statements. It is not sorted.
func around(t *testing.T, done, name string) []string {
	t.Helper()
	middle := idOf(t, done)
	var less, greater string
	for i := 0; less == "" || greater == ""; i++ {
		message := fmt.Sprintf("%s %d", name, i)
		if id := idOf(t, message); bytes.Compare(id[:], middle[:]) < 0 {
			less = message
		} else {
			greater = message
		}
	}
	return []string{greater, done, less}
}

func idOf(t *testing.T, message string) driver.ID {
	t.Helper()
	id, err := driver.NewID("shop", "", message)
	require.NoError(t, err)
	return id
}

// again redelivers a batch. In a batch of several, the message in the middle was done before.
func (s *shop) again(t *testing.T, w method, batch []string) (first bool, err error) {
	if w.size == 1 {
		return w.do(s, t.Context(), batch)
	}
	marks, err := s.doBatch(t.Context(), batch)
	if err != nil {
		return false, err
	}
	require.False(t, marks[1].First(), "%q are %v", batch, marks)
	assert.Equal(t, marks[2].Outcome, marks[0].Outcome, "%q are %v", batch, marks)
	return marks[0].First(), nil
}

// rehearse runs the victim in this process, where it survives, and returns the steps that it sends
// to the database.
func (v victim) rehearse(t *testing.T) (steps []string) {
	t.Helper()
	s := v.shop(t, func(what string, do func() error) error {
		steps = append(steps, what)
		return do()
	})
	require.NoError(t, s.once(t.Context(), v))
	t.Logf("%d statements: %s", len(steps), strings.Join(steps, ", "))
	named := func(table string) bool {
		return slices.ContainsFunc(steps, func(step string) bool {
			return strings.Contains(step, table)
		})
	}
	require.Contains(t, steps, "begin", "these are not begin, mark, effect and commit")
	require.Contains(t, steps, "commit", "these are not begin, mark, effect and commit")
	require.True(t, named(v.Table), "these are not begin, mark, effect and commit")
	require.True(t, named(v.Ledger), "these are not begin, mark, effect and commit")
	return steps
}

func (v victim) shop(t *testing.T, intercept interceptor) *shop {
	marks, err := sqladapter.New(sqladapter.Config{Dialect: v.Dialect, Namespace: "shop",
		Table: v.Table, Retention: v.Retention, Window: time.Hour})
	require.NoError(t, err)
	return &shop{db: openIntercepted(t, v.Driver, v.DSN, intercept), marks: marks,
		dialect: v.Dialect,
		table:   v.Table, ledger: v.Ledger}
}

// once is a single delivery.
func (s *shop) once(ctx context.Context, v victim) (err error) {
	switch v.Way {
	case "MarkTx":
		_, err = s.deliver(ctx, v.Batch[0], nil)
	case "Do":
		_, err = s.do(ctx, v.Batch[0])
	case "DoBatch":
		_, err = s.doBatch(ctx, v.Batch)
	default:
		err = fmt.Errorf("no way to deliver is called %q", v.Way)
	}
	return err
}

// run waits for the victim's death, and returns what the victim printed: when it died, and the
// step.
func (v victim) run(t *testing.T) (last string) {
	t.Helper()
	task, err := json.Marshal(v)
	require.NoError(t, err)
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilledAtEveryStatement$")
	child.Env = append(os.Environ(), victimTask+"="+string(task))
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	said, err := io.ReadAll(bufio.NewReader(out))
	assert.NoError(t, err)
	var exit *exec.ExitError
	assert.ErrorAs(t, child.Wait(), &exit, "the child ended")
	assert.Equal(t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal(), "the child ended")
	return strings.TrimSpace(string(said))
}

// beVictim is the child's side.
func beVictim(t *testing.T, task string) {
	var v victim
	require.NoError(t, json.Unmarshal([]byte(task), &v))
	var step int
	s := v.shop(t, func(what string, do func() error) error {
		now := step == v.Step
		step++
		if !now {
			return do()
		}
		fmt.Println(v.When, what)
		switch v.When {
		case "before":
			die()
		case "during":
			// A statement may take less; then the process dies after it.
			time.AfterFunc(rand.N(500*time.Microsecond), die)
			_ = do()
		case "after":
			_ = do()
		}
		die()
		return nil
	})
	err := s.once(t.Context(), v)
	t.Fatalf("the victim lives, and ended with %v", err)
}

// die does not return.
func die() {
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
	select {}
}
