package kafkasarama

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
)

// owned runs f in fake time with a rig whose partitions are owned.
func owned(t *testing.T, partitions int32, handler kafkaadapter.Handler,
	change func(*fakeOwner, *kafkaadapter.Config), f func(*rig, *fakeOwner)) {
	t.Helper()
	var o *fakeOwner
	inBubble(t, partitions, handler, func(r *rig, c *kafkaadapter.Config) {
		o = owning(r, c)
		if change != nil {
			change(o, c)
		}
	}, func(r *rig) { f(r, o) })
}

// keyed is a message with an id, on a partition.
func keyed(p int32, id, key string) *sarama.ConsumerMessage { return at(p, 0, message(id, key)) }

// Nothing is claimed before the partition is owned, however often Acquire refuses it. Others do not
// wait for it. The brokers are asked for the number of partitions.
func TestOwnBeforeTheFirstClaim(t *testing.T) {
	refusals := slices.Repeat([]error{errFakeHeld}, 6)
	var log bytes.Buffer
	owned(t, 2, nil, func(o *fakeOwner, c *kafkaadapter.Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		o.refuse[1] = refusals
		o.r.coordinator.more = 3
		c.Own.Partitioner = func(key []byte, _ int32) int32 { return int32(key[0] - '0') }
	}, func(r *rig, o *fakeOwner) {
		r.group.add(keyed(0, "a", "0"), keyed(1, "b", "1"))
		r.after(10 * time.Millisecond)
		r.wantRuns("a", 1)
		r.wantRuns("b", 0)
		at := r.consumer.Progress()
		assert.True(t, at[1].NotOwned && !at[1].StoreDown && !at[0].NotOwned, "%+v", at)
		assert.True(t, r.group.isPaused(1) && !r.group.isPaused(0))
		r.after(6 * time.Second) // the backoff is a second at most
		r.wantRuns("b", 1)
		assert.False(t, r.consumer.Progress()[1].NotOwned || r.group.isPaused(1))
		assert.Equal(t, 1, strings.Count(log.String(), "not owned"), "the first is told: %s", &log)
		assert.NotContains(t, log.String(), "lost")
		require.Len(r.t, o.askedFor(1), 1+len(refusals))
		assert.Equal(t, kafkaadapter.Assigned{Group: "g", Topic: topic, Partition: 1, Count: 5,
			Generation: 1}, o.askedFor(1)[0])
		r.stop()
		r.wantStop()
		o.wantReleased(0, 1)
		o.wantReleased(1, 1)
	})
}

// Acquire is not called for a partition that the brokers do not know yet.
func TestOwnWaitsForTheCount(t *testing.T) {
	owned(t, 2, nil, func(o *fakeOwner, _ *kafkaadapter.Config) {
		o.r.coordinator.more = -1
	}, func(r *rig, o *fakeOwner) {
		r.group.add(keyed(0, "a", ""), keyed(1, "b", ""))
		r.after(5 * time.Second)
		assert.Empty(t, o.askedFor(1), "the brokers do not know it")
		r.wantRuns("a", 1)
		r.wantRuns("b", 0)
		r.group.change(func() { r.coordinator.more = 0 })
		r.after(2 * time.Second)
		r.wantRuns("b", 1)
	})
}

// When a partition is lost, its handlers are canceled at once. Nothing begins before it is owned
// again, and then all its messages are claimed again. The session and the other partition continue.
func TestOwnIsLostMidBatch(t *testing.T) {
	var ends toldErrors
	stuck := true
	handler := func(ctx context.Context, m *kafkaadapter.Message) error {
		if stuck && m.Partition == 0 {
			<-ctx.Done()
			ends.add(context.Cause(ctx))
			return nil // as if the effect had happened: the store decides
		}
		return nil
	}
	all := keysOf(0, 2, 3)
	owned(t, 2, handler, func(_ *fakeOwner, c *kafkaadapter.Config) {
		c.Tuning.Workers = 2
	}, func(r *rig, o *fakeOwner) {
		r.group.add(keyed(0, "x", all[0]), keyed(0, "y", all[1]), keyed(0, "waits", all[2]))
		r.after(time.Second)
		o.refuseNext(0, slices.Repeat([]error{errFakeHeld}, 20)...)
		stuck = false
		o.lose(0)
		r.after(time.Millisecond)
		require.Len(r.t, ends.all(), 2)
		require.ErrorIs(r.t, ends.all()[0], errFakeLost)
		require.ErrorIs(r.t, ends.all()[0], dedup.ErrLeaseLost)
		assert.True(t, r.group.isPaused(0) && r.consumer.Progress()[0].NotOwned)
		other := keysOf(1, 2, 1)[0]
		r.group.add(keyed(1, "other", other), keyed(0, "late", all[0]))
		claims := o.times(func() int { return o.claims[0] })
		r.after(2 * time.Second)
		r.wantRuns("other", 1)
		r.wantRuns("waits", 0)
		r.wantRuns("x", 1)
		assert.Equal(t, claims, o.times(func() int { return o.claims[0] }),
			"keys of what is not owned were claimed")
		r.after(time.Minute)
		for id, n := range map[string]int{"x": 2, "y": 2, "waits": 1, "late": 1} {
			r.wantRuns(id, n)
		}
		r.wantCommitted(4)
		assert.Equal(t, 1, r.group.joins, "sessions")
		o.wantReleasedSoFar(0, 1)
	})
}

// Partitions that are lost as soon as they are owned are not asked for all the time.
func TestOwnLostAgainAndAgain(t *testing.T) {
	owned(t, 1, nil, func(o *fakeOwner, c *kafkaadapter.Config) {
		c.Own.Acquire = func(ctx context.Context,
			at kafkaadapter.Assigned) (kafkaadapter.Ownership, error) {
			h, err := o.acquire(ctx, at)
			o.lose(0)
			return h, err
		}
	}, func(r *rig, o *fakeOwner) {
		r.group.add(message("x", ""))
		r.after(time.Minute)
		n := len(o.askedFor(0))
		assert.True(t, 20 <= n && n <= 400, "asked for %d times in a minute", n)
		r.wantRuns("x", 0)
	})
}

// A partition is released once, when all its messages are on record and committed.
func TestOwnIsReleasedLast(t *testing.T) {
	handler := func(ctx context.Context, m *kafkaadapter.Message) error {
		if m.ID == "deaf" {
			<-time.After(time.Minute)
		}
		<-time.After(3 * time.Second)
		return nil
	}
	var committed int64
	var pending []string
	owned(t, 1, handler, func(o *fakeOwner, c *kafkaadapter.Config) {
		c.Tuning.Workers, c.Tuning.CommitEvery, o.slow = 3, time.Hour, time.Second
		o.recorded = func(int32) {
			committed = o.r.group.committedTo(0)
			for _, m := range o.r.group.log[0] {
				if o.r.times(idIn(m)) > 0 && !o.r.group.finished(m) {
					pending = append(pending, idIn(m))
				}
			}
		}
	}, func(r *rig, o *fakeOwner) {
		r.group.add(message("a", ""), message("b", ""), message("deaf", ""),
			message("unstarted", ""))
		r.after(time.Second)
		r.stop()
		r.after(20 * time.Second)
		o.wantReleased(0, 1)
		assert.Equal(t, []string{"deaf"}, pending, "released before these were on record")
		assert.EqualValues(t, 2, committed, "what was committed at the release")
		r.wantRuns("unstarted", 0)
		r.after(time.Minute) // the deaf one
	})
}

// A drain ends when the partition is lost: another process may have it.
func TestOwnIsLostWhileDraining(t *testing.T) {
	handler := func(ctx context.Context, _ *kafkaadapter.Message) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	owned(t, 1, handler, nil, func(r *rig, o *fakeOwner) {
		r.group.add(message("x", ""))
		r.after(time.Second)
		r.stop()
		r.after(time.Second)
		o.lose(0)
		r.after(time.Second)
		r.wantStop()
		o.wantReleased(0, 1)
	})
}

// A consumer that is stopped while Acquire runs ends at once, and still releases a partition that
// Acquire has returned.
func TestOwnStopsWhileAcquiring(t *testing.T) {
	for late, released := range map[bool]int{true: 1, false: 0} {
		owned(t, 1, nil, func(o *fakeOwner, c *kafkaadapter.Config) {
			c.Own.Acquire = func(ctx context.Context,
				at kafkaadapter.Assigned) (kafkaadapter.Ownership, error) {
				if !late {
					<-ctx.Done()
					return nil, context.Cause(ctx)
				}
				h, err := o.acquire(ctx, at)
				<-ctx.Done()
				return h, err
			}
		}, func(r *rig, o *fakeOwner) {
			r.group.add(message("x", ""))
			r.after(time.Minute)
			r.wantRuns("x", 0)
			r.stop()
			r.wantStop()
			o.wantReleased(0, released)
			c := r.claimElsewhere(r.over(r.memory, nil), "x")
			assert.Equal(t, dedup.Acquired, c.Outcome, "the message that was waiting")
			assert.Equal(t, 1, c.Attempt)
		})
	}
}

// A refusal that is for good stops the consumer: otherwise it would be paused forever.
func TestOwnIsRefused(t *testing.T) {
	short := &dedup.InputError{Field: "Lease", Reason: "is too short"}
	for name, change := range map[string]func(*fakeOwner, *kafkaadapter.Config){
		"by Acquire": func(o *fakeOwner, _ *kafkaadapter.Config) {
			o.refuse[0] = []error{errFakeHeld, short}
		},
		"with nothing": func(_ *fakeOwner, c *kafkaadapter.Config) {
			c.Own.Acquire = func(context.Context,
				kafkaadapter.Assigned) (kafkaadapter.Ownership, error) {
				return nil, nil //nolint:nilnil // it is the test
			}
		},
		"by the store": func(o *fakeOwner, _ *kafkaadapter.Config) { o.refusal = short },
		"by the store, later": func(_ *fakeOwner, c *kafkaadapter.Config) {
			c.Tuning.ClaimAhead = 1
		},
	} {
		t.Run(name, func(t *testing.T) {
			var o *fakeOwner
			handler := func(ctx context.Context, _ *kafkaadapter.Message) error {
				o.mu.Lock()
				o.refusal = short
				o.mu.Unlock()
				return errors.New("again")
			}
			owned(t, 1, handler, func(owner *fakeOwner, c *kafkaadapter.Config) {
				o = owner
				change(owner, c)
			}, func(r *rig, _ *fakeOwner) {
				r.group.add(message("x", "k"))
				r.after(time.Minute)
				err := r.wantEnd()
				var input *dedup.InputError
				require.ErrorAs(r.t, err, &input)
				assert.ErrorContains(t, err, "not configured as their store wants it")
			})
		})
	}
}

// While its partition is not owned, a message does not use up its BusyTimeout.
func TestOwnLostIsNotBusy(t *testing.T) {
	var parked []error
	park := func(_ context.Context, _ *kafkaadapter.Message, reason error) error {
		parked = append(parked, reason)
		return nil
	}
	failing := true
	handler := func(context.Context, *kafkaadapter.Message) error {
		if failing {
			return errors.New("again")
		}
		return nil
	}
	owned(t, 1, handler, func(_ *fakeOwner, c *kafkaadapter.Config) {
		c.Park, c.Attempts.BusyTimeout = park, 10*time.Second
	}, func(r *rig, o *fakeOwner) {
		r.group.add(message("x", "k"))
		r.after(time.Second)
		o.refuseNext(0, slices.Repeat([]error{errFakeHeld}, 200)...)
		failing = false
		o.lose(0)
		r.after(10 * time.Minute)
		r.wantCommitted(1)
		assert.Empty(t, parked)
	})
}

// CheckConfig requires a rebalance timeout that has time for the release after the drain.
func TestOwnNeedsTimeForTheHandover(t *testing.T) {
	consumer := consumerOf(t, kafkaadapter.Config{Own: &kafkaadapter.Owning{
		Acquire: (&fakeOwner{}).acquire, Partitioner: kafkaadapter.FNV1a}})
	c := SafeConfig(nil)
	c.Consumer.Group.Rebalance.Timeout = 14 * time.Second
	require.NoError(t, consumer.CheckConfig(c), "4 s beyond the drain")
	c.Consumer.Group.Rebalance.Timeout--
	wantRefusal(t, consumer.CheckConfig(c), "sarama.Config.Consumer.Group.Rebalance.Timeout",
		"(10s) and 4s")
}
