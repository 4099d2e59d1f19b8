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
	if err := json.Unmarshal([]byte(task), &j); err != nil {
		t.Fatal(err)
	}
	db := openDB(t, j.Driver, j.DSN)
	d, err := dedup.New(newStore(t, db, j.Dialect, j.Table),
		dedup.Config{Namespace: "orders", Window: time.Hour, LeaseTTL: doLease})
	if err != nil {
		t.Fatal(err)
	}
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
		if err != nil || res.Value != "shipped "+key {
			t.Errorf("%s: %q, %v", key, res.Value, err)
		}
	}
}

// start runs the job in a process.
func (j *doJob) start(t *testing.T) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	task, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDoChild$")
	child.Env = append(os.Environ(), doChild+"="+string(task))
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
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
			if line, err := out.ReadString('\n'); err != nil || line != "ready\n" {
				t.Fatalf("the child said %q, %v", line, err)
			}
			var others sync.WaitGroup
			for range 3 {
				child, out := j.start(t)
				others.Go(func() {
					_, _ = out.WriteTo(os.Stderr)
					if err := child.Wait(); err != nil {
						t.Errorf("a process has failed: %v", err)
					}
				})
			}
			if err := victim.Process.Kill(); err != nil {
				t.Error(err)
			}
			_ = victim.Wait() // always an error: it was killed
			first := mustID(t, "orders", "order 0")
			lapse(t, db, e.dialect, table, first, doLease)
			others.Wait()
			var all []string
			for n := range j.Keys {
				all = append(all, fmt.Sprintf("order %d", n))
			}
			s.wantEffects(t, all)
			if rec := lookupOne(t, newStore(t, db, e.dialect, table), first); rec.Attempt != 2 ||
				rec.State != driver.StateSucceeded {
				t.Errorf("the message of the process that was killed: %+v", rec)
			}
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
	if err != nil {
		t.Fatal(err)
	}
}

func mustID(t *testing.T, namespace, key string) driver.ID {
	t.Helper()
	id, err := driver.NewID(namespace, "", key)
	if err != nil {
		t.Fatal(err)
	}
	return id
}
