package relays

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/outbox"
)

// wakeUp commits single messages, with pauses, and looks how long the relay takes to begin to
// publish each.
func (e *Env) wakeUp(ctx context.Context, signalled bool, goal harness.Goal) ([]harness.Row, error) {
	h, err := e.house(ctx)
	if err != nil {
		return nil, err
	}
	defer h.close()
	s := arrivals(make(chan time.Time, 1))
	r, err := outbox.NewRelay(outbox.RelayConfig{Outbox: h.box, DB: h.db, Publisher: s, OnPark: func(context.Context, outbox.Parked) {}})
	if err != nil {
		return nil, err
	}
	running, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(running) }()
	var took []float64
	for range e.WakeUps {
		one, err := h.wake(ctx, s, signalled)
		if err != nil {
			cancel()
			return nil, err
		}
		took = append(took, float64(one)/float64(time.Millisecond))
	}
	cancel()
	if err := <-ended; err != nil {
		return nil, err
	}
	name := map[bool]string{true: "wake-up by a signal, median", false: "wake-up by polling, median"}[signalled]
	value := harness.Median(took)
	return []harness.Row{{
		Name: name, Value: value, Unit: "ms", Spread: [2]float64{slices.Min(took), slices.Max(took)}, Rounds: 1,
		Goal: goal.String(), OK: goal.Reached(value, 0), Workload: "wake-up", Side: name,
	}}, nil
}

// arrivals tells when a message has come.
type arrivals chan time.Time

func (a arrivals) Publish(context.Context, []outbox.Message) []error {
	a <- time.Now()
	return nil
}

// wake is one message after a pause in which nothing came.
func (h *house) wake(ctx context.Context, s arrivals, signalled bool) (time.Duration, error) {
	pause := time.NewTimer(time.Duration(20+rand.IntN(130)) * time.Millisecond)
	defer pause.Stop()
	<-pause.C
	tx, err := h.db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }()
	if err := h.box.InsertTx(ctx, tx, outbox.Message{Topic: "bookings", Key: []byte("key"), Payload: body()}); err != nil {
		return 0, err
	}
	if err := tx.Commit(); err != nil {
		return 0, err
	}
	committed := time.Now()
	if signalled {
		h.box.Notify()
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
