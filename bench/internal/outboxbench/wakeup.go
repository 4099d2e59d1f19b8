package outboxbench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/outbox"
	"github.com/onceward/onceward/outbox/pgxlisten"
)

// Ways in which a relay learns that there is something.
const (
	byPolling    = "polling"
	bySignal     = "a signal"
	byNotifyAway = "a signal across processes"
)

// wakeUp commits single messages, with pauses, and looks how long the relay takes to begin to
// publish each.
func (e *env) wakeUp(ctx context.Context, setup *harness.Setup, t *tables, way string,
	goal harness.Goal) {
	s := arrivals(make(chan time.Time, 1))
	g, running := errgroup.WithContext(ctx)
	running, cancel := context.WithCancel(running)
	defer cancel()
	box := t.box
	if way == byNotifyAway {
		box = e.notified(running, g, t)
	}
	r := must.Get(outbox.NewRelay(outbox.RelayConfig{Outbox: box, DB: t.db, Publisher: s,
		OnPark: func(context.Context, outbox.Parked) {}}))
	g.Go(func() error { return r.Run(running) })
	var took []float64
	for range e.wakeUps {
		one := t.wake(ctx, s, way != byPolling)
		took = append(took, float64(one)/float64(time.Millisecond))
	}
	cancel()
	name := "wake-up by " + way + ", median"
	row := harness.Figure(name, name, harness.Median(took), "ms", goal)
	row.Spread = harness.Spread(took)
	setup.Row(row)
	must.Do(g.Wait())
}

// notified is the same outbox as another process has it: only the database knows that Notify of t's
// was called.
func (e *env) notified(ctx context.Context, g *errgroup.Group, t *tables) *outbox.Outbox {
	away := must.Get(outbox.New(outbox.Config{Dialect: outbox.Postgres, Table: t.table}))
	n := must.Get(outbox.NewNotifier(outbox.NotifierConfig{Outbox: t.box, DB: t.db}))
	l := must.Get(pgxlisten.New(pgxlisten.Config{
		Outbox: away, Connect: func(ctx context.Context) (*pgx.Conn, error) {
			return pgx.Connect(ctx, e.url)
		},
	}))
	g.Go(func() error { return n.Run(ctx) })
	g.Go(func() error { return l.Run(ctx) })
	return away
}

// arrivals has the times at which messages came.
type arrivals chan time.Time

func (a arrivals) Publish(context.Context, []outbox.Message) []error {
	a <- time.Now()
	return nil
}

// wake is one message after a pause in which nothing came.
func (t *tables) wake(ctx context.Context, s arrivals, signalled bool) time.Duration {
	pause := time.NewTimer(time.Duration(20+rand.IntN(130)) * time.Millisecond)
	defer pause.Stop()
	<-pause.C
	tx := must.Get(t.db.BeginTx(ctx, nil))
	defer func() { _ = tx.Rollback() }()
	must.Do(t.box.InsertTx(ctx, tx,
		outbox.Message{Topic: "bookings", Key: []byte("key"), Payload: body}))
	must.Do(tx.Commit())
	committed := time.Now()
	if signalled {
		t.box.Notify()
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	select {
	case at := <-s:
		return max(0, at.Sub(committed))
	case <-ctx.Done():
		must.Do(fmt.Errorf("a message did not come: %w", context.Cause(ctx)))
		return 0
	}
}
