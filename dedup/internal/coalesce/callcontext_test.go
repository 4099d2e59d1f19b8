package coalesce

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCallContextEndsWithParentDeadlineAndEnd(t *testing.T) {
	errBye := errors.New("bye")
	for name, row := range map[string]struct {
		end        func(*callContext, context.CancelCauseFunc)
		err, cause error
	}{
		"parent": {func(_ *callContext, cancel context.CancelCauseFunc) {
			cancel(errBye)
		}, context.Canceled, errBye},
		"deadline": {func(*callContext, context.CancelCauseFunc) {
			time.Sleep(time.Second)
		}, context.DeadlineExceeded, context.DeadlineExceeded},
		"end": {func(c *callContext, _ context.CancelCauseFunc) {
			c.end()
		}, context.Canceled, context.Canceled},
	} {
		for _, waited := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				parent, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				c := &callContext{Context: parent, deadline: time.Now().Add(time.Second)}
				defer c.end()
				require.NoError(t, c.Err(), name)
				assert.Nil(t, c.timed, name)
				if waited {
					child, stop := context.WithCancel(c)
					defer stop()
					defer func() {
						synctest.Wait()
						assert.Error(t, child.Err(), "%s: its child goes on", name)
					}()
					select {
					case <-c.Done():
						t.Errorf("%s: done before the end", name)
					default:
					}
				}
				row.end(c, cancel)
				synctest.Wait()
				assert.ErrorIs(t, c.Err(), row.err, name)
				<-c.Done()
				assert.ErrorIs(t, context.Cause(c), row.cause, name)
			})
		}
	}
}

func TestCallContextHasTheEarlierDeadlineAndItsParentsValues(t *testing.T) {
	type key struct{}
	now := time.Now()
	parent, cancel := context.WithDeadline(context.WithValue(t.Context(), key{}, "v"),
		now.Add(time.Hour))
	defer cancel()
	for _, d := range []time.Duration{time.Minute, time.Hour, 2 * time.Hour} {
		c := &callContext{Context: parent, deadline: now.Add(d)}
		want := now.Add(min(d, time.Hour))
		for range 2 { // before and after the real context is made
			got, ok := c.Deadline()
			assert.Equal(t, "v", c.Value(key{}), d)
			assert.True(t, ok && got.Equal(want), "%v: %v, %v", d, got, c.Value(key{}))
			c.Done()
		}
		c.end()
	}
}
