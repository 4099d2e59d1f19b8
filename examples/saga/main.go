// Saga books trips in Temporal workflows. Temporal runs their activities at least once, but each
// effect happens once:
//
//	go run ./examples/saga
//
// A seat is reserved, money is charged, a ticket is issued. If the airline refuses, the money and
// the seat go back, also once. The engine runs in this process (go.temporal.io/sdk/testsuite). It
// loses the first answers of every activity, as if the worker died before it reported. A worker of
// your own registers the same workflow and the same Steps:
//
//	w := worker.New(client, "trips", worker.Options{})
//	w.RegisterWorkflow(BookTrip)
//	w.RegisterActivity(steps)
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	_ "modernc.org/sqlite" // driver "sqlite"

	"github.com/onceward/onceward/sqladapter"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) error {
	a, err := newAgency(ctx, 10)
	if err != nil {
		return err
	}
	defer a.close()
	for _, id := range []string{"trip-1", "trip-2"} {
		ticket, err := a.book(id)
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(out, "%s: ticket %s\n", id, ticket)
	}
	a.airline.refuse = true
	if _, err := a.book("trip-3"); err == nil {
		return errors.New("trip-3 was to be refused")
	}
	_, _ = fmt.Fprintln(out, "trip-3: refused, and undone")
	free, err := a.free(ctx)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out,
		"activities ran %d times: %d seats taken, %d charges, %d refunds, %d tickets\n",
		a.runs.count(), 10-free, a.bank.charges, a.bank.refunds, len(a.airline.tickets))
	return nil
}

// agency holds the outside services, the steps, and an engine that loses answers.
type agency struct {
	*Steps
	runs *answers
	dir  string
}

func newAgency(ctx context.Context, seats int) (a *agency, err error) {
	a = &agency{runs: &answers{lost: func(_ string, attempt int32) bool { return attempt <= 2 }}}
	if a.dir, err = os.MkdirTemp("", "saga"); err != nil {
		return nil, err
	}
	db, err := sqladapter.OpenSQLite("sqlite",
		"file:"+filepath.Join(a.dir, "trips.db")+
			"?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)")
	if err == nil {
		a.Steps, err = a.open(ctx, db, seats)
	}
	if err != nil {
		_ = os.RemoveAll(a.dir)
		return nil, err
	}
	return a, nil
}

func (a *agency) open(ctx context.Context, db *sql.DB, seats int) (*Steps, error) {
	for _, ddl := range []string{`CREATE TABLE flight (id text PRIMARY KEY, free integer NOT NULL)`,
		fmt.Sprintf(`INSERT INTO flight VALUES ('LH1', %d)`, seats)} {
		if _, err := db.ExecContext(ctx, ddl); err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	s, err := newSteps(ctx, db, &bank{byKey: map[string]string{}},
		&airline{tickets: map[string]string{}})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

func (a *agency) close() {
	_ = a.once.Close(context.Background())
	_ = a.db.Close()
	_ = os.RemoveAll(a.dir)
}

func (a *agency) free(ctx context.Context) (n int, err error) {
	err = a.db.QueryRowContext(ctx, `SELECT free FROM flight`).Scan(&n)
	return n, err
}

// book runs a workflow to its end.
func (a *agency) book(id string) (ticket string, err error) {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: id, TaskQueue: "trips"})
	env.SetWorkerOptions(worker.Options{Interceptors: []interceptor.WorkerInterceptor{a.runs}})
	env.RegisterWorkflow(BookTrip)
	env.RegisterActivity(a.Steps)
	env.ExecuteWorkflow(BookTrip, Trip{Flight: "LH1", Amount: 300})
	if err := env.GetWorkflowError(); err != nil {
		return "", err
	}
	return ticket, env.GetWorkflowResult(&ticket)
}

// answers loses the answers of activities, after the activities have ended.
type answers struct {
	interceptor.WorkerInterceptorBase
	lost  func(name string, attempt int32) bool
	begun func(name string) // set by tests, otherwise nil

	mu   sync.Mutex
	runs map[string]int // by the name of the activity
}

// InterceptActivity implements interceptor.WorkerInterceptor.
func (a *answers) InterceptActivity(_ context.Context,
	next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	i := &lossy{answers: a}
	i.Next = next
	return i
}

func (a *answers) count() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, runs := range a.runs {
		n += runs
	}
	return n
}

type lossy struct {
	interceptor.ActivityInboundInterceptorBase
	*answers
}

// ExecuteActivity implements interceptor.ActivityInboundInterceptor.
func (l *lossy) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any,
	error) {
	info := activity.GetInfo(ctx)
	l.mu.Lock()
	if l.runs == nil {
		l.runs = map[string]int{}
	}
	l.runs[info.ActivityType.Name]++
	l.mu.Unlock()
	if l.begun != nil {
		l.begun(info.ActivityType.Name)
	}
	result, err := l.Next.ExecuteActivity(ctx, in)
	if l.lost(info.ActivityType.Name, info.Attempt) {
		return nil, errNoAnswer
	}
	return result, err
}
