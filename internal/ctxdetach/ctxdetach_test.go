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

// A context ends with its client, and with the client's cause, unless leave was called before.
func TestFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("gone")
		client, leaves := context.WithCancelCause(context.WithValue(t.Context(), name{}, "acme"))
		defer leaves(nil)
		waits, leave, end := ctxdetach.From(client)
		defer end()
		runs, leaveEarly, endRun := ctxdetach.From(client)
		assert.True(t, leaveEarly(), "the client was there")
		leaves(gone)
		synctest.Wait()
		assert.ErrorIs(t, context.Cause(waits), gone, "it waits without its client")
		assert.False(t, leave(), "it waits without its client: %v", context.Cause(waits))
		assert.False(t, leave(), "it waits without its client: %v", context.Cause(waits))
		assert.NoError(t, runs.Err(), "it ended with its client")
		assert.True(t, leaveEarly(), "it ended with its client: %v", runs.Err())
		assert.Equal(t, "acme", runs.Value(name{}), "it ended with its client")
		endRun()
		assert.Error(t, runs.Err(), "it has no end")
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
			deadline, ok := ctx.Deadline()
			assert.True(t, ok, "%+v: %v left", row, time.Until(deadline))
			assert.Equal(t, row.want, time.Until(deadline), "%+v: left", row)
			defer cancel()
			defer func() {
				<-ctx.Done()
				assert.Equal(t, row.timedOut, ctxdetach.TimedOut(ctx), "%+v", row)
				assert.ErrorIs(t, context.Cause(ctx), context.DeadlineExceeded, "%+v", row)
			}()
		}
		goes, leave := context.WithCancel(t.Context())
		late, cancelLate := ctxdetach.Bound(context.WithoutCancel(t.Context()),
			goes, time.Second, true)
		defer cancelLate()
		<-late.Done()
		assert.True(t, ctxdetach.TimedOut(late), "ended by %v", context.Cause(late))
		ctx, cancel := ctxdetach.Bound(context.WithoutCancel(t.Context()), goes, time.Hour, true)
		defer cancel()
		deadline, _ := ctx.Deadline()
		assert.Equal(t, time.Hour, time.Until(deadline), "left of an hour")
		leave()
		<-ctx.Done()
		assert.False(t, ctxdetach.TimedOut(ctx), "ended by %v", context.Cause(ctx))
		assert.ErrorIs(t, ctx.Err(), context.Canceled)
	})
}
