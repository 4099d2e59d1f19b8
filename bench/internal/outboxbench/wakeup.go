package outboxbench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/onceward/onceward/bench/internal/harness"
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
	goal harness.Goal) error {
	s := arrivals(make(chan time.Time, 1))
	g, running := errgroup.WithContext(ctx)
	running, cancel := context.WithCancel(running)
	defer cancel()
	box := t.box
	if way == byNotifyAway {
		var err error
		if box, err = e.notified(running, g, t); err != nil {
			return err
		}
	}
	r, err := outbox.NewRelay(outbox.RelayConfig{Outbox: box, DB: t.db, Publisher: s,
		OnPark: func(context.Context, outbox.Parked) {}})
	if err != nil {
		return err
	}
	g.Go(func() error { return r.Run(running) })
	var took []float64
	for range e.wakeUps {
		one, err := t.wake(ctx, s, way != byPolling)
		if err != nil {
			return err
		}
		took = append(took, float64(one)/float64(time.Millisecond))
	}
	cancel()
	name := "wake-up by " + way + ", median"
	row := harness.Figure(name, name, harness.Median(took), "ms", goal)
	row.Spread = harness.Spread(took)
	setup.Rows = []harness.Row{row}
	return g.Wait()
}

// notified is the same outbox as another process has it: nothing but the database tells it of what
// Notify of t's says.
func (e *env) notified(ctx context.Context, g *errgroup.Group, t *tables) (*outbox.Outbox, error) {
	away, err := outbox.New(outbox.Config{Dialect: outbox.Postgres, Table: t.table})
	if err != nil {
		return nil, err
	}
	n, err := outbox.NewNotifier(outbox.NotifierConfig{Outbox: t.box, DB: t.db})
	if err != nil {
		return nil, err
	}
	l, err := pgxlisten.New(pgxlisten.Config{
		Outbox: away, Connect: func(ctx context.Context) (*pgx.Conn, error) {
			return pgx.Connect(ctx, e.url)
		},
	})
	if err != nil {
		return nil, err
	}
	g.Go(func() error { return n.Run(ctx) })
	g.Go(func() error { return l.Run(ctx) })
	return away, nil
}

// arrivals tells when a message has come.
type arrivals chan time.Time

func (a arrivals) Publish(context.Context, []outbox.Message) []error {
	a <- time.Now()
	return nil
}

// wake is one message after a pause in which nothing came.
func (t *tables) wake(ctx context.Context, s arrivals, signalled bool) (time.Duration, error) {
	pause := time.NewTimer(time.Duration(20+rand.IntN(130)) * time.Millisecond)
	defer pause.Stop()
	<-pause.C
	tx, err := t.db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }()
	if err := t.box.InsertTx(ctx, tx,
		outbox.Message{Topic: "bookings", Key: []byte("key"), Payload: body()}); err != nil {
		return 0, err
	}
	if err := tx.Commit(); err != nil {
		return 0, err
	}
	committed := time.Now()
	if signalled {
		t.box.Notify()
	}
	select {
	case at := <-s:
		return max(0, at.Sub(committed)), nil
	case <-time.After(10 * time.Second):
		return 0, fmt.Errorf("a message did not come")
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}
