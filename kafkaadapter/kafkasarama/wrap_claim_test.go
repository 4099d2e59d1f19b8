package kafkasarama

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// A copy of a message that the handler has collected does not hold up the batch. It is done when
// that message is done, and not before.
func TestWrapRepetitionInABatch(t *testing.T) {
	wrapInBubble(t, inBatches(3, func(r *wrapRig, s sarama.ConsumerGroupSession,
		batch []*sarama.ConsumerMessage) {
		assert.Empty(r.t, r.skipped.offsets(), "done before it is recorded")
		s.MarkMessage(batch[0], "")
		r.wantCommitted(2)
		assert.Equal(r.t, []int64{1, 3}, r.skipped.offsets())
		s.MarkMessage(batch[2], "")
	}), skips, func(r *wrapRig) {
		r.group.add(message("a", ""), message("a", ""), message("b", ""), message("a", ""),
			message("c", ""))
		r.after(time.Second)
		assert.Equal(r.t, 3, r.totalRuns())
		r.wantCommitted(5)
	})
}

func skips(r *wrapRig, cfg *kafkaadapter.Config) {
	cfg.Observer.Skipped = func(m *kafkaadapter.Message, _ driver.Cause, _ time.Duration) {
		_ = r.skipped.park(context.Background(), m, nil)
	}
}

// When a message is given back, its copy is also delivered again.
func TestWrapRepetitionOfWhatIsNotMarked(t *testing.T) {
	wrapInBubble(t, func(r *wrapRig, s sarama.ConsumerGroupSession,
		c sarama.ConsumerGroupClaim) error {
		m, open := <-c.Messages()
		if _, last := r.group.joined(); open && last.GenerationID() > 1 {
			r.effect(m)
			s.MarkMessage(m, "")
		}
		<-s.Context().Done()
		return nil
	}, skips, func(r *wrapRig) {
		r.group.add(message("a", ""), message("a", ""))
		r.after(time.Second)
		r.wantCommitted(0)
		r.group.rebalance()
		r.after(5 * time.Second)
		r.wantRuns("a", 1)
		r.wantCommitted(2)
	})
}

// A message with the id of another one and another payload is not a copy.
func TestWrapMismatch(t *testing.T) {
	other := func() *sarama.ConsumerMessage {
		m := message("a", "")
		m.Value = nil // a tombstone differs from an empty value, too
		return m
	}
	first := message("a", "")
	first.Value = []byte{}
	wrapInBubble(t, inBatches(2, func(_ *wrapRig, s sarama.ConsumerGroupSession,
		batch []*sarama.ConsumerMessage) {
		s.MarkMessage(batch[1], "")
	}), func(r *wrapRig, cfg *kafkaadapter.Config) {
		cfg.Fingerprint = true
		parks(r, cfg, dedup.ErrMismatch)
	}, func(r *wrapRig) {
		r.group.add(first, other(), message("b", ""), other())
		r.after(time.Second)
		r.wantCommitted(4)
		assert.Equal(r.t, []int64{1, 3}, r.parked.offsets())
	})
	wrapInBubble(t, markEach, func(_ *wrapRig, cfg *kafkaadapter.Config) { cfg.Fingerprint = true },
		func(r *wrapRig) {
			again := *first
			r.group.add(&again, other())
			r.after(500 * time.Millisecond)
			r.wantTold(1, dedup.ErrMismatch)
			assert.ErrorContains(r.t, r.told.all()[0], "Config.Park")
			r.wantCommitted(1)
		})
}

// parks sets a Park that keeps messages, and requires the reason want.
func parks(r *wrapRig, cfg *kafkaadapter.Config, want error) {
	r.group.finished = nil
	cfg.Park = func(_ context.Context, _ *kafkaadapter.Message, reason error) error {
		assert.ErrorIs(r.t, reason, want)
		return nil
	}
}

// Park is called until it has kept the message. Meanwhile the offset is not committed, and the end
// of the session does not wait for Park.
func TestWrapParkFails(t *testing.T) {
	calls := 0
	wrapInBubble(t, markEach, func(r *wrapRig, cfg *kafkaadapter.Config) {
		r.group.finished = nil
		cfg.Park = func(context.Context, *kafkaadapter.Message, error) error {
			switch calls++; calls {
			case 1:
				return errors.New("the topic is away")
			case 2:
				panic("the topic is away")
			case 3:
				r.wantCommitted(1)
				r.group.rebalance()
				return errors.New("the topic is away")
			}
			return nil
		}
	}, func(r *wrapRig) {
		r.group.add(message("a", ""), withoutID(), message("b", ""))
		r.after(time.Minute)
		r.wantCommitted(3)
		assert.Equal(r.t, []int64{1}, r.parked.offsets())
		assert.Equal(r.t, 2, r.totalRuns())
		assert.Empty(r.t, r.told.all())
	})
}

// A partition whose first messages have no id is not emptied into Park.
func TestWrapFirstWithoutIDs(t *testing.T) {
	wrapInBubble(t, markEach, func(r *wrapRig, cfg *kafkaadapter.Config) {
		parks(r, cfg, kafkaadapter.ErrNoID)
	}, func(r *wrapRig) {
		r.group.add(withoutID(), withoutID())
		r.after(time.Minute)
		assert.Empty(r.t, r.told.all())
		r.group.add(withoutID())
		r.after(500 * time.Millisecond)
		r.wantTold(0, kafkadriver.ErrFirstNoIDs)
		assert.Empty(r.t, r.parked.offsets())
		r.wantCommitted(0)
	})
	wrapInBubble(t, markEach, nil, func(r *wrapRig) {
		r.group.add(withoutID())
		r.after(500 * time.Millisecond)
		r.wantTold(0, kafkaadapter.ErrNoID)
	})
}

// A message without an id at the start waits for a message with an id.
func TestWrapOddMessageIsParked(t *testing.T) {
	wrapInBubble(t, markEach, func(r *wrapRig, cfg *kafkaadapter.Config) {
		parks(r, cfg, kafkaadapter.ErrNoID)
	}, func(r *wrapRig) {
		r.group.add(withoutID(), withoutID(), message("a", ""), withoutID())
		r.after(time.Second)
		r.wantCommitted(4)
		assert.Equal(r.t, []int64{0, 1, 3}, r.parked.offsets())
	})
	wrapInBubble(t, markEach, func(r *wrapRig, cfg *kafkaadapter.Config) {
		parks(r, cfg, kafkaadapter.ErrNoID)
		cfg.Allow.NoID = true
	}, func(r *wrapRig) {
		r.group.add(withoutID(), withoutID(), withoutID())
		r.after(time.Second)
		r.wantCommitted(3)
	})
}

// An id that no store takes is the message's fault: asking again does not help.
func TestWrapIDThatCannotBeClaimed(t *testing.T) {
	wrapInBubble(t, markEach, func(r *wrapRig, cfg *kafkaadapter.Config) {
		r.group.finished = nil
		cfg.Park = func(context.Context, *kafkaadapter.Message, error) error { return nil }
	}, func(r *wrapRig) {
		r.group.add(message("a", ""), message(strings.Repeat("x", 1<<20), ""), message("b", ""))
		r.after(time.Second)
		r.wantCommitted(3)
		assert.Equal(r.t, []int64{1}, r.parked.offsets())
	})
}

// A message in flight elsewhere holds up its partition, until it is free or goes to Park.
func TestWrapInFlightElsewhere(t *testing.T) {
	var waited atomic.Int64
	hold := func(_ *wrapRig, cfg *kafkaadapter.Config) {
		cfg.Observer.Waiting = func(*kafkaadapter.Message) { waited.Add(1) }
	}
	wrapInBubble(t, markEach, hold, func(r *wrapRig) {
		r.claimElsewhere(r.otherProcess(), "id1")
		r.group.add(ids(3)...)
		r.after(lease / 2)
		r.wantCommitted(1)
		assert.Positive(r.t, waited.Load())
		r.after(lease/2 + 10*time.Millisecond) // when the lease has lapsed, and not a backoff later
		r.wantCommitted(3)
		assert.Equal(r.t, 3, r.totalRuns())
	})
	wrapInBubble(t, markEach, func(r *wrapRig, cfg *kafkaadapter.Config) {
		parks(r, cfg, kafkaadapter.ErrBusy)
		cfg.Attempts.BusyTimeout = time.Minute
	}, func(r *wrapRig) {
		_, stop := r.claimElsewhere(r.otherProcess(), "id1").KeepAlive(r.t.Context())
		defer stop()
		r.group.add(ids(3)...)
		r.after(58 * time.Second)
		r.wantCommitted(1)
		r.after(10 * time.Second)
		r.wantCommitted(3)
		assert.Equal(r.t, []int64{1}, r.parked.offsets())
	})
}

// Nothing runs while the store cannot be asked.
func TestWrapStoreIsDown(t *testing.T) {
	wrapInBubble(t, markEach, nil, func(r *wrapRig) {
		r.outage()
		r.group.add(ids(3)...)
		r.after(time.Minute)
		assert.Zero(r.t, r.totalRuns(), "fail closed")
		r.heal()
		r.after(5 * time.Second)
		r.wantCommitted(3)
		assert.Empty(r.t, r.told.all())
	})
}

func TestWrapClosedDeduper(t *testing.T) {
	wrapInBubble(t, markEach, nil, func(r *wrapRig) {
		r.group.add(ids(1)...)
		r.after(time.Second)
		require.NoError(r.t, r.dedup.Close(r.t.Context()))
		r.group.add(message("late", ""))
		r.after(500 * time.Millisecond)
		require.NotEmpty(r.t, r.told.all())
		assert.ErrorIs(r.t, r.told.all()[0], dedup.ErrClosed)
		r.wantCommitted(1)
	})
}

// A handler that returns early, or does not read, loses nothing. A message that it never got does
// not count as an attempt.
func TestWrapHandlerReturnsEarly(t *testing.T) {
	for _, read := range []bool{true, false} {
		wrapInBubble(t, func(_ *wrapRig, s sarama.ConsumerGroupSession,
			c sarama.ConsumerGroupClaim) error {
			if read {
				<-c.Messages()
				return errHandler
			}
			<-s.Context().Done()
			return nil
		}, nil, func(r *wrapRig) {
			r.group.add(ids(2)...)
			r.after(500 * time.Millisecond)
			if !read {
				r.wantHeld("id0")
				r.group.rebalance()
			}
			r.stop()
			r.after(time.Second)
			r.wantCommitted(0)
			for _, id := range []string{"id0", "id1"} {
				c := r.wantElsewhere(id, dedup.Acquired)
				want := 1
				if read && id == "id0" {
					want = 2
				}
				assert.Equal(r.t, want, c.Attempt, id)
				assert.NoError(r.t, c.Release(r.t.Context()))
			}
		})
	}
}

// A claim that is won while the session ends is given back.
func TestWrapWonWhileTheSessionEnds(t *testing.T) {
	wrapInBubble(t, func(_ *wrapRig, s sarama.ConsumerGroupSession,
		_ sarama.ConsumerGroupClaim) error {
		<-s.Context().Done()
		return nil
	}, func(r *wrapRig, cfg *kafkaadapter.Config) {
		d, err := dedup.New(r.store, dedup.Config{Namespace: "t", Window: time.Hour,
			LeaseTTL: lease, Hold: time.Hour, Observer: dedup.Observer{Claimed: func(dedup.Event) {
				_, s := r.group.joined()
				s.cancel(errors.New("rebalance"))
			}}})
		require.NoError(r.t, err)
		r.dedup, cfg.Deduper = d, d
	}, func(r *wrapRig) {
		r.group.add(ids(1)...)
		r.after(500 * time.Millisecond)
		r.stop()
		r.wantFree("id0")
		r.wantCommitted(0)
	})
}

// The handler gets another session than sarama's, and the values of sarama's claim.
func TestWrapSessionAndClaim(t *testing.T) {
	wrapInBubble(t, func(r *wrapRig, s sarama.ConsumerGroupSession,
		c sarama.ConsumerGroupClaim) error {
		<-time.After(time.Second) // of fake time: there are messages by then
		_, within := s.(*marked)
		assert.False(r.t, within, "the real session is within reach")
		assert.Equal(r.t, "member", s.MemberID())
		assert.EqualValues(r.t, 1, s.GenerationID())
		assert.Equal(r.t, map[string][]int32{topic: {0}}, s.Claims())
		assert.Equal(r.t, topic, c.Topic())
		assert.Zero(r.t, c.Partition())
		assert.Equal(r.t, sarama.OffsetOldest, c.InitialOffset())
		assert.EqualValues(r.t, 2, c.HighWaterMarkOffset())
		return markEach(r, s, c)
	}, nil, func(r *wrapRig) {
		r.group.add(ids(2)...)
		r.after(2 * time.Second)
		r.wantCommitted(2)
	})
}

func TestWrapRefuses(t *testing.T) {
	d, err := dedup.New(dedup.Memory(10), dedup.Config{Namespace: "t", Window: time.Hour,
		LeaseTTL: lease, Hold: time.Hour})
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close(context.Background()) })
	handler := &wrapRig{}
	refused := func(group string, h sarama.ConsumerGroupHandler, c kafkaadapter.Config) string {
		_, err := Wrap(group, h, c)
		var input *dedup.InputError
		require.ErrorAs(t, err, &input)
		return strings.TrimPrefix(input.Field, "kafkaadapter.Config.")
	}
	assert.Equal(t, "handler", refused("g", nil, kafkaadapter.Config{Deduper: d}))
	assert.Equal(t, "group", refused("", handler, kafkaadapter.Config{Deduper: d}))
	assert.Equal(t, "Deduper", refused("g", handler, kafkaadapter.Config{}))
	for field, set := range map[string]func(*kafkaadapter.Config){
		"Unclaimed": func(c *kafkaadapter.Config) { c.Deduper, c.Unclaimed = nil, true },
		"Handler": func(c *kafkaadapter.Config) {
			c.Handler = func(context.Context, *kafkaadapter.Message) error { return nil }
		},
		"BatchHandler": func(c *kafkaadapter.Config) {
			c.BatchHandler = func(context.Context, []*kafkaadapter.Message) []error { return nil }
		},
		"RangeHandler": func(c *kafkaadapter.Config) {
			c.RangeHandler = func(context.Context, *kafkaadapter.Range) error { return nil }
		},
		"Positions":        func(c *kafkaadapter.Config) { c.Positions = true },
		"Attempts.Max":     func(c *kafkaadapter.Config) { c.Attempts.Max = 3 },
		"Attempts.Timeout": func(c *kafkaadapter.Config) { c.Attempts.Timeout = time.Second },
		"Order":            func(c *kafkaadapter.Config) { c.Order = kafkaadapter.Unordered },
		"Own":              func(c *kafkaadapter.Config) { c.Own = new(kafkaadapter.Owning) },
		"Allow.Skip":       func(c *kafkaadapter.Config) { c.Allow.Skip = true },
		"Allow.TakeOver":   func(c *kafkaadapter.Config) { c.Allow.TakeOver = true },
		"Tuning":           func(c *kafkaadapter.Config) { c.Tuning.Workers = 1 },
		"Attempts.BusyTimeout": func(c *kafkaadapter.Config) {
			c.Attempts.BusyTimeout = -time.Second
		},
	} {
		cfg := kafkaadapter.Config{Deduper: d}
		set(&cfg)
		assert.Equal(t, field, refused("g", handler, cfg))
	}
	_, err = Wrap("g", handler, kafkaadapter.Config{Deduper: d})
	assert.NoError(t, err)
}

// An uncertain message goes to Park. One whose id is on record as failed is a duplicate.
func TestWrapUncertain(t *testing.T) {
	wrapInBubble(t, markEach, func(r *wrapRig, cfg *kafkaadapter.Config) {
		parks(r, cfg, dedup.ErrUncertain)
	}, func(r *wrapRig) {
		run, stop := r.claimElsewhere(r.otherProcess(), "id0").KeepAlive(r.t.Context())
		require.NoError(r.t, dedup.MarkIrreversible(run))
		stop()
		failed := r.claimElsewhere(r.otherProcess(), "id1")
		require.NoError(r.t, failed.Fail(r.t.Context(), errHandler))
		r.after(2 * lease)
		r.group.add(ids(3)...)
		r.after(5 * time.Second)
		assert.Equal(r.t, []int64{0}, r.parked.offsets())
		assert.Equal(r.t, 1, r.totalRuns())
		r.wantCommitted(3)
	})
}

// Config.Label is asked once for a message.
func TestWrapLabel(t *testing.T) {
	asked := 0
	wrapInBubble(t, markEach, func(_ *wrapRig, cfg *kafkaadapter.Config) {
		cfg.Label = func(*kafkaadapter.Message) string {
			asked++
			return "label"
		}
	}, func(r *wrapRig) {
		r.claimElsewhere(r.otherProcess(), "id0")
		r.group.add(ids(1)...)
		r.after(2 * lease)
		r.wantCommitted(1)
		assert.Equal(r.t, 1, asked)
	})
}
