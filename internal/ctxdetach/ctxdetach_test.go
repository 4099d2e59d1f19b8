package ctxdetach_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/internal/ctxdetach"
)

type name struct{}

// A context goes with its client until it has left it, and says with what cause.
func TestFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("gone")
		client, leaves := context.WithCancelCause(context.WithValue(t.Context(), name{}, "acme"))
		defer leaves(nil)
		waits, leave, end := ctxdetach.From(client)
		defer end()
		runs, leaveEarly, endRun := ctxdetach.From(client)
		if !leaveEarly() {
			t.Error("the client was there")
		}
		leaves(gone)
		synctest.Wait()
		if !errors.Is(context.Cause(waits), gone) || leave() || leave() {
			t.Errorf("it waits without its client: %v", context.Cause(waits))
		}
		if runs.Err() != nil || !leaveEarly() || runs.Value(name{}) != "acme" {
			t.Errorf("it ended with its client: %v", runs.Err())
		}
		endRun()
		if runs.Err() == nil {
			t.Error("it has no end")
		}
	})
}

// counting is a context of another package.
type counting struct {
	context.Context
	asked *atomic.Int64
	done  chan struct{}
}

func (c counting) Done() <-chan struct{} {
	c.asked.Add(1)
	return c.done
}

func (c counting) Err() error {
	select {
	case <-c.done:
		return context.Canceled
	default:
		return nil
	}
}

// A goroutine that asks the client's context for Done may do so after the request is over. The
// context of a net/http handler in a fiber app belongs to the next request by then.
func TestTheClientIsAskedOnlyAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := counting{context.Background(), &atomic.Int64{}, make(chan struct{})}
		ctx, _, end := ctxdetach.From(client)
		bound, cancel := ctxdetach.Bound(context.Background(), client, time.Hour, true)
		synctest.Wait()
		assert.Equal(t, int64(2), client.asked.Load())
		close(client.done)
		<-ctx.Done()
		<-bound.Done()
		end()
		cancel()
	})
}

func TestBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, leaves := context.WithTimeout(t.Context(), time.Second)
		defer leaves()
		for _, row := range []struct {
			limit, want          time.Duration
			withClient, timedOut bool
		}{
			{time.Minute, time.Minute, false, true},
			{time.Minute, time.Second, true, false},
			{time.Millisecond, time.Millisecond, true, true},
		} {
			ctx, cancel := ctxdetach.Bound(context.WithoutCancel(t.Context()), client, row.limit,
				row.withClient)
			if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) != row.want {
				t.Errorf("%+v: %v left", row, time.Until(deadline))
			}
			defer cancel()
			defer func() {
				if <-ctx.Done(); ctxdetach.TimedOut(ctx) != row.timedOut ||
					!errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
					t.Errorf("%+v: ended by %v", row, context.Cause(ctx))
				}
			}()
		}
		goes, leave := context.WithCancel(t.Context())
		late, cancelLate := ctxdetach.Bound(context.WithoutCancel(t.Context()),
			goes, time.Second, true)
		defer cancelLate()
		if <-late.Done(); !ctxdetach.TimedOut(late) {
			t.Errorf("ended by %v", context.Cause(late))
		}
		ctx, cancel := ctxdetach.Bound(context.WithoutCancel(t.Context()), goes, time.Hour, true)
		defer cancel()
		if deadline, _ := ctx.Deadline(); time.Until(deadline) != time.Hour {
			t.Errorf("%v left of an hour", time.Until(deadline))
		}
		leave()
		if <-ctx.Done(); ctxdetach.TimedOut(ctx) || !errors.Is(ctx.Err(), context.Canceled) {
			t.Errorf("ended by %v", context.Cause(ctx))
		}
	})
}
