package dedup

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestCallContextEndsWithParentDeadlineAndEnd(t *testing.T) {
	errBye := errors.New("bye")
	for name, row := range map[string]struct {
		end        func(*callContext, context.CancelCauseFunc)
		err, cause error
	}{
		"parent":   {func(_ *callContext, cancel context.CancelCauseFunc) { cancel(errBye) }, context.Canceled, errBye},
		"deadline": {func(*callContext, context.CancelCauseFunc) { time.Sleep(time.Second) }, context.DeadlineExceeded, context.DeadlineExceeded},
		"end":      {func(c *callContext, _ context.CancelCauseFunc) { c.end() }, context.Canceled, context.Canceled},
	} {
		for _, waited := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				parent, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				c := &callContext{Context: parent, deadline: time.Now().Add(time.Second)}
				defer c.end()
				if c.Err() != nil || c.timed != nil {
					t.Errorf("%s: %v before the end, made %v", name, c.Err(), c.timed)
				}
				if waited {
					child, stop := context.WithCancel(c)
					defer stop()
					defer func() {
						synctest.Wait()
						if child.Err() == nil {
							t.Errorf("%s: its child goes on", name)
						}
					}()
					select {
					case <-c.Done():
						t.Errorf("%s: done before the end", name)
					default:
					}
				}
				row.end(c, cancel)
				synctest.Wait()
				if !errors.Is(c.Err(), row.err) {
					t.Errorf("%s: %v", name, c.Err())
				}
				<-c.Done()
				if cause := context.Cause(c); !errors.Is(cause, row.cause) {
					t.Errorf("%s: cause %v", name, cause)
				}
			})
		}
	}
}

func TestCallContextHasTheEarlierDeadlineAndItsParentsValues(t *testing.T) {
	type key struct{}
	now := time.Now()
	parent, cancel := context.WithDeadline(context.WithValue(t.Context(), key{}, "v"), now.Add(time.Hour))
	defer cancel()
	for _, d := range []time.Duration{time.Minute, time.Hour, 2 * time.Hour} {
		c := &callContext{Context: parent, deadline: now.Add(d)}
		want := now.Add(min(d, time.Hour))
		for range 2 { // before and after the real context is made
			if got, ok := c.Deadline(); !ok || !got.Equal(want) || c.Value(key{}) != "v" {
				t.Errorf("%v: %v, %v", d, got, c.Value(key{}))
			}
			c.Done()
		}
		c.end()
	}
}
