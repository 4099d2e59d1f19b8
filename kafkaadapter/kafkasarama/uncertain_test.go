package kafkasarama

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
)

// dangerous calls MarkIrreversible in each attempt, and fails in the first n attempts of m.
func dangerous(t *testing.T, n int, with func(error) error) kafkaadapter.Handler {
	return func(ctx context.Context, m *kafkaadapter.Message) error {
		assert.NoError(t, dedup.MarkIrreversible(ctx))
		if m.Attempt <= n && m.ID == "m" {
			return with(errBroken)
		}
		return nil
	}
}

func plain(err error) error { return err }

// Without a resolver an uncertain message is parked, and the others continue.
func TestUncertainIsParked(t *testing.T) {
	var reason error
	inBubble(t, 1, dangerous(t, 1, plain), func(r *rig, c *kafkaadapter.Config) {
		c.Park = func(_ context.Context, _ *kafkaadapter.Message, err error) error {
			reason = err
			return nil
		}
		r.group.finished = nil // the uncertain one is not on record
	}, func(r *rig) {
		r.group.add(message("m", "k"), message("next", "k"))
		r.after(5 * time.Second)
		r.wantRuns("m", 1)
		r.wantRuns("next", 1)
		r.wantCommitted(2)
		require.ErrorIs(r.t, reason, dedup.ErrUncertain)
	})
}

// Without Park the consumer stops, and the offset stays.
func TestUncertainStopsTheConsumer(t *testing.T) {
	inBubble(t, 1, dangerous(t, 1, plain), nil, func(r *rig) {
		r.group.add(message("m", "k"))
		r.after(5 * time.Second)
		var stopped *kafkaadapter.UnprocessableError
		err := r.wantEnd()
		require.ErrorAs(r.t, err, &stopped)
		require.ErrorIs(r.t, err, dedup.ErrUncertain)
		r.wantCommitted(0)
	})
}

// An attempt that returns NotStarted is retried, as if MarkIrreversible had not been called.
func TestNotStartedIsRetried(t *testing.T) {
	inBubble(t, 1, dangerous(t, 2, dedup.NotStarted), nil, func(r *rig) {
		r.group.add(message("m", "k"))
		r.after(10 * time.Second)
		r.wantRuns("m", 3)
		r.wantCommitted(1)
	})
}

// With a resolver the worker asks about an uncertain message until there is an answer.
func TestUncertainIsAskedAbout(t *testing.T) {
	for name, test := range map[string]struct {
		found dedup.Resolution
		runs  int
	}{
		"happened":     {dedup.Happened(nil), 1},
		"failed":       {dedup.FailedForGood(""), 1},
		"not happened": {dedup.DidNotHappen(), 2},
	} {
		for _, when := range []string{"by its own member", "after a crash elsewhere"} {
			t.Run(name+", "+when, func(t *testing.T) {
				questions, parked := 0, 0
				fails := 1
				if when != "by its own member" {
					fails = 0
				}
				inBubble(t, 1, dangerous(t, fails, plain), func(r *rig, c *kafkaadapter.Config) {
					r.dedup = r.process(func(context.Context, string, dedup.Record) (
						dedup.Resolution, error) {
						if questions++; questions <= 2 {
							return dedup.Resolution{}, errBroken
						}
						return test.found, nil
					})
					c.Deduper = r.dedup
					c.Park = func(_ context.Context, m *kafkaadapter.Message, reason error) error {
						var failed *dedup.FailedError
						assert.Equal(t, "m", m.ID)
						assert.ErrorAs(t, reason, &failed)
						parked++
						return nil
					}
					if fails == 0 {
						crashAfterMark(t, r, "m")
					}
				}, func(r *rig) {
					r.group.add(message("m", "k"), message("next", "k"), message("other", "o"))
					r.after(5 * time.Second)
					r.wantRuns("m", test.runs-1+fails)
					r.wantRuns("next", 1)
					r.wantRuns("other", 1)
					r.wantCommitted(3)
					assert.Equal(t, 3, questions)
					assert.Equal(t, map[bool]int{true: 1}[name == "failed"], parked, "parked")
				})
			})
		}
	}
}

// crashAfterMark leaves the id to a process that has died after MarkIrreversible.
func crashAfterMark(t *testing.T, r *rig, id string) {
	t.Helper()
	c := r.claimElsewhere(r.otherProcess(), id)
	run, stop := c.KeepAlive(context.Background())
	assert.NoError(t, dedup.MarkIrreversible(run))
	stop()
	r.after(lease)
}

// When Resolve finds that a message has failed, that is recorded before the message is parked. If
// Park fails, the next consumer that gets the message parks it: with the record alone it would skip
// the message.
func TestFoundFailureIsParkedByTheNextOwner(t *testing.T) {
	var parked atomic.Int32
	var broken atomic.Bool
	broken.Store(true)
	inBubble(t, 1, nil, func(r *rig, c *kafkaadapter.Config) {
		r.dedup = r.process(func(context.Context, string, dedup.Record) (dedup.Resolution, error) {
			return dedup.FailedForGood("declined"), nil
		})
		c.Deduper = r.dedup
		c.Park = func(_ context.Context, m *kafkaadapter.Message, reason error) error {
			var failed *dedup.FailedError
			assert.Equal(t, "m", m.ID)
			if assert.ErrorAs(t, reason, &failed) {
				assert.Equal(t, "declined", failed.Message)
			}
			if broken.Load() {
				return errBroken
			}
			parked.Add(1)
			return nil
		}
		crashAfterMark(t, r, "m")
	}, func(r *rig) {
		r.group.add(message("m", "k"))
		r.after(5 * time.Second)
		r.wantCommitted(0)
		r.group.rebalance()
		r.after(time.Second)
		broken.Store(false)
		r.after(5 * time.Second)
		r.wantCommitted(1)
		assert.EqualValues(t, 1, parked.Load())
		r.group.add(message("m", "k")) // somebody sends it again
		r.after(time.Second)
		r.wantCommitted(2)
		assert.EqualValues(t, 1, parked.Load(), "with a duplicate elsewhere")
	})
}
