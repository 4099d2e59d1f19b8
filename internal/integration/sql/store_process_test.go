package sql_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/sqladapter"
)

// doJob is what one of several processes is to do.
type doJob struct {
	Driver, DSN, Table, Ledger string
	Dialect                    sqladapter.Dialect
	Keys                       int
	Stuck                      bool // it gets no further than its first handler
}

const doChild = "ONCEWARD_TEST_DO_CHILD"

// doLease does not lapse while its owner lives, on whichever machine.
const doLease = time.Minute

// TestDoChild is one of the processes. It does nothing by itself.
func TestDoChild(t *testing.T) {
	task := os.Getenv(doChild)
	if task == "" {
		return
	}
	var j doJob
	require.NoError(t, json.Unmarshal([]byte(task), &j))
	db := openDB(t, j.Driver, j.DSN)
	d, err := dedup.New(newStore(t, db, j.Dialect, j.Table),
		dedup.Config{Namespace: "orders", Window: time.Hour, LeaseTTL: doLease})
	require.NoError(t, err)
	for _, n := range rand.Perm(j.Keys) {
		if j.Stuck {
			n = 0
		}
		key := fmt.Sprintf("order %d", n)
		effect := func(ctx context.Context) (string, error) {
			if j.Stuck {
				fmt.Println("ready")
				<-context.Background().Done() // the parent's SIGKILL ends it
			}
			_, err := db.ExecContext(ctx, `INSERT INTO `+j.Ledger+` (message) VALUES ('`+key+`')`)
			return "shipped " + key, err
		}
		res, err := dedup.DoResult(t.Context(), d, key, effect)
		for errors.Is(err, dedup.ErrInFlight) {
			res, err = dedup.DoResult(t.Context(), d, key, effect)
		}
		require.NoError(t, err, key)
		assert.Equal(t, "shipped "+key, res.Value, key)
	}
}

// start runs the job in a process.
func (j *doJob) start(t *testing.T) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	task, err := json.Marshal(j)
	require.NoError(t, err)
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDoChild$")
	child.Env = append(os.Environ(), doChild+"="+string(task))
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	return child, bufio.NewReader(out)
}

// TestStoreDo: several processes are given the same messages, each in an order of its own.
// One of them has a message in its hands and is killed; each effect happens once, and every
// process gets the result.
func TestStoreDo(t *testing.T) {
	for _, e := range storeEngines()[1:] {
		t.Run(e.name, func(t *testing.T) {
			_, db, table := openStore(t, e)
			s := &shop{db: db, ledger: table + "_ledger"}
			s.exec(t, `CREATE TABLE `+s.ledger+` (message varchar(100) NOT NULL)`)
			t.Cleanup(func() { s.exec(t, `DROP TABLE `+s.ledger) })

			j := doJob{Driver: e.driver, DSN: e.dsn(t), Dialect: e.dialect, Table: table,
				Ledger: s.ledger, Keys: 30}
			stuck := j
			stuck.Stuck = true
			victim, out := stuck.start(t)
			line, err := out.ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, "ready\n", line, "the child")
			var others sync.WaitGroup
			for range 3 {
				child, out := j.start(t)
				others.Go(func() {
					_, _ = out.WriteTo(os.Stderr)
					assert.NoError(t, child.Wait(), "a process has failed")
				})
			}
			assert.NoError(t, victim.Process.Kill())
			_ = victim.Wait() // always an error: it was killed
			first := mustID(t, "orders", "order 0")
			lapse(t, db, e.dialect, table, first, doLease)
			others.Wait()
			var all []string
			for n := range j.Keys {
				all = append(all, fmt.Sprintf("order %d", n))
			}
			s.wantEffects(t, all)
			rec := lookupOne(t, newStore(t, db, e.dialect, table), first)
			assert.Equal(t, 2, rec.Attempt, "the message of the process that was killed")
			assert.Equal(t, driver.StateSucceeded, rec.State,
				"the message of the process that was killed")
		})
	}
}

// lapse ends the lease of a worker that was killed.
func lapse(t *testing.T, db *sql.DB, dialect sqladapter.Dialect, table string, id driver.ID,
	lease time.Duration) {
	t.Helper()
	_, err := db.ExecContext(t.Context(),
		fmt.Sprintf("UPDATE %s SET lease_end = lease_end - %d WHERE id = %s AND state = 1",
			quotedTable(dialect, table), lease.Microseconds(), idLiteral(dialect, id)))
	require.NoError(t, err)
}

func mustID(t *testing.T, namespace, key string) driver.ID {
	t.Helper()
	id, err := driver.NewID(namespace, "", key)
	require.NoError(t, err)
	return id
}
