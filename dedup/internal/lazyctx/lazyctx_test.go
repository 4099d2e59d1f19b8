package lazyctx

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestContextEndsWithParentDeadlineAndEnd(t *testing.T) {
	errBye := errors.New("bye")
	for name, row := range map[string]struct {
		end        func(*Timed, context.CancelCauseFunc)
		err, cause error
	}{
		"parent": {func(_ *Timed, cancel context.CancelCauseFunc) {
			cancel(errBye)
		}, context.Canceled, errBye},
		"deadline": {func(*Timed, context.CancelCauseFunc) {
			time.Sleep(time.Second)
		}, context.DeadlineExceeded, context.DeadlineExceeded},
		"end": {func(c *Timed, _ context.CancelCauseFunc) {
			c.End(context.Canceled)
		}, context.Canceled, context.Canceled},
	} {
		for _, waited := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				parent, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				c := WithTimeout(parent, time.Second)
				defer c.End(context.Canceled)
				require.NoError(t, c.Err(), name)
				assert.Nil(t, c.made, name)
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

func TestContextHasTheEarlierDeadlineAndItsParentsValues(t *testing.T) {
	type key struct{}
	now := time.Now()
	parent, cancel := context.WithDeadline(context.WithValue(t.Context(), key{}, "v"),
		now.Add(time.Hour))
	defer cancel()
	for _, d := range []time.Duration{time.Minute, time.Hour, 2 * time.Hour} {
		c := &Timed{Context{Parent: parent, Until: now.Add(d)}}
		want := now.Add(min(d, time.Hour))
		for range 2 { // before and after the real context is made
			got, ok := c.Deadline()
			assert.Equal(t, "v", c.Value(key{}), d)
			assert.True(t, ok && got.Equal(want), "%v: %v, %v", d, got, c.Value(key{}))
			c.Done()
		}
		c.End(context.Canceled)
	}
}

// The first end counts, even if nobody has looked at the context before the second one.
func TestFirstEndCounts(t *testing.T) {
	errParent, errOwn := errors.New("parent"), errors.New("own")
	for _, asked := range []string{"never", "before", "between"} {
		for first, want := range map[string]error{"parent": errParent, "own": errOwn} {
			parent, cancel := context.WithCancelCause(t.Context())
			c := &Context{Parent: parent}
			if asked == "before" {
				c.Done()
			}
			ends := []func(){func() { cancel(errParent) }, func() { c.End(errOwn) }}
			if first == "own" {
				ends[0], ends[1] = ends[1], ends[0]
			}
			ends[0]()
			if asked == "between" {
				require.Error(t, c.Err(), "%s first, asked %s", first, asked)
			}
			ends[1]()
			c.End(errors.New("third"))
			assert.ErrorIs(t, context.Cause(c), want, "%s first, asked %s", first, asked)
			assert.ErrorIs(t, c.Err(), context.Canceled)
			<-c.Done()
			child, stop := context.WithCancel(c)
			assert.ErrorIs(t, context.Cause(child), want, "a child of what has ended")
			stop()
		}
	}
}

// Once Err has returned an error, it returns it forever. Children end whenever they are made.
func TestContextIsSafeForConcurrentUse(t *testing.T) {
	for range 200 {
		parent, cancel := context.WithCancelCause(t.Context())
		contexts := []*Context{{Parent: parent}, &WithTimeout(parent, time.Hour).Context,
			{Parent: &Context{Parent: parent}}}
		var wg sync.WaitGroup
		for _, c := range contexts {
			for range 4 {
				wg.Go(func() {
					for range 10 {
						err := c.Err()
						child, stop := context.WithCancel(c)
						if err != nil {
							<-child.Done()
							assert.Equal(t, err, c.Err(), "the answer was taken back")
						}
						_ = c.Value("key")
						stop()
					}
					child, stop := context.WithTimeout(c, time.Hour)
					defer stop()
					<-child.Done()
				})
			}
			wg.Go(func() { c.End(context.Canceled) })
		}
		wg.Go(func() { cancel(errors.New("bye")) })
		wg.Wait()
	}
}

// A context that nobody waits for is one object.
func TestContextIsMadeWhenAskedFor(t *testing.T) {
	parent := t.Context()
	var kept *Timed
	assert.LessOrEqual(t, testing.AllocsPerRun(100, func() {
		kept = WithTimeout(parent, time.Hour)
		_, _ = kept.Deadline()
		_, _ = kept.Err(), kept.Value("key")
		kept.End(context.Canceled)
	}), 1.0)
	assert.Error(t, kept.Err())
}

// For nested timeouts, Caller returns the caller of the outermost one.
func TestCallerIsTheOutermost(t *testing.T) {
	parent := context.WithoutCancel(t.Context())
	c := WithTimeout(WithTimeout(parent, time.Minute), time.Hour)
	assert.Equal(t, parent, c.Caller())
	until, _ := c.Deadline()
	assert.WithinDuration(t, time.Now().Add(time.Minute), until, 30*time.Second)
	inner := WithTimeout(&Context{Parent: parent}, time.Hour)
	assert.NotNil(t, inner.Caller().Done(), "it can be canceled")
}

// A detached context has only the values of its parent. It does not matter whether Done was called
// before the parent ended.
func TestDetachedContextOutlivesItsParent(t *testing.T) {
	type key struct{}
	for _, asked := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			parent, cancel := context.WithTimeout(
				context.WithValue(t.Context(), key{}, 7), time.Second)
			defer cancel()
			c := &Timed{Context{Parent: parent, Detached: true, Until: time.Now().Add(time.Minute)}}
			assert.Nil(t, c.Caller().Done(), "nobody ends it early")
			if asked {
				assert.NotNil(t, c.Done())
			}
			time.Sleep(2 * time.Second)
			require.Error(t, parent.Err())
			assert.NoError(t, c.Err())
			assert.Equal(t, 7, c.Value(key{}))
			until, ok := c.Deadline()
			assert.True(t, ok)
			assert.Equal(t, 58*time.Second, time.Until(until))
			select {
			case <-c.Done():
				t.Error("it ended with its parent")
			default:
			}
			time.Sleep(time.Minute)
			assert.ErrorIs(t, c.Err(), context.DeadlineExceeded)
			ended := &Context{Parent: parent, Detached: true}
			ended.End(context.Canceled)
			assert.Equal(t, context.Canceled, context.Cause(ended), "its own end is the first")
		})
	}
}

// Ends makes no timer to find out when a context of this package ends.
func TestEndsMakesNothing(t *testing.T) {
	outer, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := WithTimeout(outer, time.Hour)
	gone, until := Ends(c)
	assert.Equal(t, outer.Done(), gone)
	assert.Equal(t, c.Until, until)
	assert.Nil(t, c.made)
	gone, until = Ends(outer)
	assert.Equal(t, outer.Done(), gone)
	assert.Zero(t, until)
	gone, until = Ends(context.Background())
	assert.Nil(t, gone)
	assert.Zero(t, until)
}
