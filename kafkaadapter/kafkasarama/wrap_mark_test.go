package kafkasarama

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/deduptest"
	"github.com/onceward/onceward/kafkaadapter"
)

func TestWrapMarkEach(t *testing.T) {
	wrapInBubble(t, markEach, nil, func(r *wrapRig) {
		r.group.add(message("a", ""), message("b", ""), message("a", ""), message("c", ""))
		r.after(time.Second)
		for _, id := range []string{"a", "b", "c"} {
			r.wantRuns(id, 1)
		}
		r.wantCommitted(4)
		assert.Empty(r.t, r.passed.offsets())
		r.group.replay()
		r.after(5 * time.Second)
		assert.Equal(r.t, 3, r.totalRuns(), "effects after all was delivered again")
		r.wantCommitted(4)
	})
}

// The handler gets the whole batch before it marks the last message. The batch is recorded in one
// exchange, and the messages that the handler did not mark are reported.
func TestWrapMarkLastOfBatch(t *testing.T) {
	last := func(_ *wrapRig, s sarama.ConsumerGroupSession, batch []*sarama.ConsumerMessage) {
		s.MarkMessage(batch[len(batch)-1], "")
	}
	wrapInBubble(t, inBatches(3, last), nil, func(r *wrapRig) {
		r.group.add(ids(7)...)
		r.after(time.Second)
		r.wantCommitted(6)
		assert.Equal(r.t, 6, r.totalRuns())
		assert.Equal(r.t, []int64{0, 1, 3, 4}, r.passed.offsets())
		assert.Equal(r.t, 2, r.store.Stats().Calls[deduptest.OpFinish], "exchanges")
		r.wantHeld("id6")
	})
}

func TestWrapMarkOutOfOrder(t *testing.T) {
	mark := func(r *wrapRig, s sarama.ConsumerGroupSession, batch []*sarama.ConsumerMessage) {
		s.MarkMessage(batch[1], "")
		r.wantCommitted(2)
		r.wantHeld("id2")
		s.MarkMessage(batch[0], "")
		r.wantCommitted(2)
		s.MarkOffset(topic, 0, batch[2].Offset+1, "")
		r.wantCommitted(3)
		s.Commit()
	}
	wrapInBubble(t, inBatches(3, mark), nil, func(r *wrapRig) {
		r.group.add(ids(3)...)
		r.after(time.Second)
		r.wantCommitted(3)
		assert.Equal(r.t, []int64{0}, r.passed.offsets())
		assert.Contains(r.t, r.noted(), "commit", "the handler's own commit")
	})
}

func TestWrapMarkFromGoroutines(t *testing.T) {
	const n = 50
	all := func(r *wrapRig, s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
		var workers sync.WaitGroup
		defer workers.Wait()
		for m := range c.Messages() {
			workers.Go(func() {
				time.Sleep(time.Duration(m.Offset*7%13) * time.Millisecond)
				r.effect(m)
				s.MarkMessage(m, "")
			})
		}
		return nil
	}
	wrapInBubble(t, all, nil, func(r *wrapRig) {
		r.group.finished = nil // a mark also ends the messages before it, as in sarama
		r.group.add(ids(n)...)
		r.after(time.Second)
		r.wantCommitted(n)
		assert.Equal(r.t, n, r.totalRuns())
	})
}

// A handler that marks nothing is stopped, and the error has the offset. Then all claims are free.
func TestWrapUnmarked(t *testing.T) {
	wrapInBubble(t, func(_ *wrapRig, _ sarama.ConsumerGroupSession,
		c sarama.ConsumerGroupClaim) error {
		for range c.Messages() {
		}
		return errHandler
	}, func(_ *wrapRig, cfg *kafkaadapter.Config) { cfg.Attempts.BusyTimeout = time.Minute },
		func(r *wrapRig) {
			r.group.add(ids(2)...)
			r.after(58 * time.Second)
			assert.Empty(r.t, r.told.all())
			r.after(8 * time.Second)
			r.stop()
			r.after(time.Second)
			r.wantTold(0, ErrUnmarked)
			r.wantCommitted(0)
			r.wantFree("id0")
			r.wantFree("id1")
		})
}

// The time begins when the handler receives the message, not when it could have received it.
func TestWrapUnmarkedSinceItWasYielded(t *testing.T) {
	wrapInBubble(t, func(r *wrapRig, s sarama.ConsumerGroupSession,
		c sarama.ConsumerGroupClaim) error {
		for m := range c.Messages() {
			time.Sleep(50 * time.Second)
			r.effect(m)
			s.MarkMessage(m, "")
		}
		return nil
	}, func(_ *wrapRig, cfg *kafkaadapter.Config) { cfg.Attempts.BusyTimeout = time.Minute },
		func(r *wrapRig) {
			r.group.add(ids(4)...)
			r.after(5 * time.Minute)
			assert.Empty(r.t, r.told.all())
			r.wantCommitted(4)
		})
}

// A mark beyond the messages that the handler has received does not end the next message.
func TestWrapMarkBeyond(t *testing.T) {
	wrapInBubble(t, func(r *wrapRig, s sarama.ConsumerGroupSession,
		c sarama.ConsumerGroupClaim) error {
		r.effect(<-c.Messages())
		time.Sleep(time.Second) // the next one is on its way
		s.MarkOffset(topic, 0, 100, "")
		<-s.Context().Done()
		return nil
	}, nil, func(r *wrapRig) {
		r.group.add(ids(3)...)
		r.after(5 * time.Second)
		r.wantCommitted(1)
		r.wantHeld("id1")
		r.stop()
		r.after(time.Second)
		r.wantFree("id1")
	})
}

// A handler may mark a message before the feed notices that the handler has received it.
func TestWrapMarkAtOnce(t *testing.T) {
	last := &heldMessage{msg: kafkaadapter.Message{Offset: 3}}
	c := &wrappedClaim{held: []*heldMessage{last}}
	c.note(5, "")
	assert.False(t, last.done, "it may be on its way")
	c.note(4, "")
	assert.True(t, last.done, "it was marked, so the handler has it")
	wrapInBubble(t, markEach, nil, func(r *wrapRig) {
		r.group.add(ids(2000)...)
		r.after(time.Second)
		r.wantCommitted(2000)
	})
}

// ResetOffset goes back, and never beyond what is recorded. Only later progress undoes it.
func TestWrapReset(t *testing.T) {
	wrapInBubble(t, func(r *wrapRig, s sarama.ConsumerGroupSession,
		c sarama.ConsumerGroupClaim) error {
		s.ResetOffset(topic, 0, 3, "") // before there is anything
		for m := range c.Messages() {
			if idIn(m) == "stop" {
				s.ResetOffset(topic, 0, 100, "")
				r.wantCommitted(3)
				s.ResetOffset(topic, 0, 1, "back")
				continue
			}
			r.effect(m)
			s.MarkMessage(m, "")
		}
		return nil
	}, nil, func(r *wrapRig) {
		r.group.add(message("a", ""), message("b", ""), message("c", ""), message("stop", ""),
			message("a", ""))
		r.after(time.Second)
		r.wantCommitted(1)
		assert.Equal(r.t, "back", r.metadata)
		assert.NotContains(r.t, r.noted(), "a reset was passed on that goes up")
		r.stop()
	})
}

// Setup may go back, as with sarama.
func TestWrapResetInSetup(t *testing.T) {
	wrapInBubble(t, markEach, func(r *wrapRig, _ *kafkaadapter.Config) {
		r.setup = func(s sarama.ConsumerGroupSession) {
			s.MarkOffset(topic, 0, 100, "")
			s.ResetOffset(topic, 0, 1, "again")
		}
	}, func(r *wrapRig) {
		r.group.add(ids(4)...)
		r.after(time.Second)
		r.wantCommitted(4)
		r.group.rebalance()
		time.Sleep(time.Second) // the next session begins
		synctest.Wait()
		r.wantCommitted(4) // this session has found them done
		assert.Equal(r.t, 4, r.totalRuns())
		_, s := r.group.joined()
		assert.EqualValues(r.t, 1, s.claims[0].InitialOffset())
	})
}

// The metadata of a mark is kept when duplicates after it are committed.
func TestWrapMetadata(t *testing.T) {
	wrapInBubble(t, func(r *wrapRig, s sarama.ConsumerGroupSession,
		c sarama.ConsumerGroupClaim) error {
		for m := range c.Messages() {
			r.effect(m)
			s.MarkMessage(m, "mine")
		}
		return nil
	}, nil, func(r *wrapRig) {
		r.group.add(message("a", ""), message("a", ""))
		r.after(time.Second)
		r.group.add(message("a", ""))
		r.after(time.Second)
		r.wantCommitted(3)
		assert.Equal(r.t, "mine", r.metadata)
	})
}

// While the store is down a mark waits, and is passed on when it is back.
func TestWrapMarkInOutage(t *testing.T) {
	wrapInBubble(t, func(r *wrapRig, s sarama.ConsumerGroupSession,
		c sarama.ConsumerGroupClaim) error {
		for m := range c.Messages() {
			r.effect(m)
			r.outage()
			s.MarkMessage(m, "")
			r.note("marked")
		}
		return nil
	}, nil, func(r *wrapRig) {
		r.group.add(ids(1)...)
		r.after(3 * lease) // longer than the lease
		r.wantCommitted(0)
		assert.NotContains(r.t, r.noted(), "marked")
		r.heal()
		r.after(5 * time.Second)
		r.wantCommitted(1)
		r.wantRuns("id0", 1)
		assert.Contains(r.t, r.noted(), "marked")
	})
}

// Neither the end of a session nor that of a claim alone waits for a store that is down.
func TestWrapMarkEndsWithTheClaim(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(*wrapRig)
	}{
		{"session", func(r *wrapRig) { r.group.rebalance() }},
		{"claim", func(r *wrapRig) {
			_, s := r.group.joined()
			s.claims[0].revoke(errFakeRevoked)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			wrapInBubble(t, func(r *wrapRig, s sarama.ConsumerGroupSession,
				c sarama.ConsumerGroupClaim) error {
				for m := range c.Messages() {
					r.effect(m)
					r.outage()
					s.MarkMessage(m, "")
					s.MarkMessage(m, "") // does not wait any more
					r.note("given up")
				}
				return nil
			}, nil, func(r *wrapRig) {
				r.group.add(ids(1)...)
				r.after(time.Second)
				_, s := r.group.joined()
				claim := s.claims[0]
				c.end(r)
				r.after(1900 * time.Millisecond)
				assert.NotContains(r.t, r.noted(), "given up")
				r.after(200 * time.Millisecond)
				assert.Contains(r.t, r.noted(), "given up")
				assert.Equal(r.t, []int64{0}, r.unrecorded.offsets())
				r.after(2 * time.Second)
				assert.True(r.t, claim.returned(), "the claim waits for the store")
				r.wantCommitted(0)
				r.stop()
			})
		})
	}
}

// A mark that was not recorded is tried a last time when the handler has returned. The session is
// over, so nothing is marked in it. The next session finds the message done.
func TestWrapMarkedIsRecordedAtTheEnd(t *testing.T) {
	wrapInBubble(t, func(r *wrapRig, s sarama.ConsumerGroupSession,
		c sarama.ConsumerGroupClaim) error {
		for m := range c.Messages() {
			r.effect(m)
			if r.times("id0") == 1 && m.Offset == 0 {
				r.outage()
			}
			s.MarkMessage(m, "")
		}
		return nil
	}, nil, func(r *wrapRig) {
		r.group.add(ids(1)...)
		r.after(time.Second)
		r.group.rebalance()
		r.after(2500 * time.Millisecond)
		r.wantCommitted(0)
		r.heal()
		r.after(5 * time.Second)
		r.wantRuns("id0", 1)
		r.wantCommitted(1)
	})
}

// A mark after the end of the session still counts: sarama commits it on release.
func TestWrapMarkAfterTheSession(t *testing.T) {
	wrapInBubble(t, func(r *wrapRig, s sarama.ConsumerGroupSession,
		c sarama.ConsumerGroupClaim) error {
		m, open := <-c.Messages()
		if !open {
			return nil
		}
		r.effect(m)
		<-s.Context().Done()
		time.Sleep(5 * time.Second)
		s.MarkMessage(m, "")
		return nil
	}, nil, func(r *wrapRig) {
		r.group.add(ids(1)...)
		r.after(time.Second)
		r.group.rebalance()
		r.after(5 * time.Second)
		r.wantCommitted(1)
	})
}

// A goroutine that outlives its handler marks nothing, and its message is free.
func TestWrapMarkAfterTheHandler(t *testing.T) {
	var mu sync.Mutex
	var late []func()
	wrapInBubble(t, func(r *wrapRig, s sarama.ConsumerGroupSession,
		c sarama.ConsumerGroupClaim) error {
		if m, open := <-c.Messages(); open {
			mu.Lock()
			late = append(late, func() { s.MarkMessage(m, "") })
			mu.Unlock()
		}
		return errHandler
	}, nil, func(r *wrapRig) {
		r.group.add(ids(1)...)
		r.after(500 * time.Millisecond)
		r.wantFree("id0")
		mu.Lock()
		defer mu.Unlock()
		late[0]()
		r.wantCommitted(0)
		r.wantFree("id0")
	})
}

// The lease was lost between yield and mark, and another owner has the message. The effect has
// happened, so it is recorded, and the other owner gets ErrLeaseLost.
func TestWrapLeaseLost(t *testing.T) {
	wrapInBubble(t, markLate, nil, func(r *wrapRig) {
		other := r.loseLease()
		r.after(time.Minute)
		r.wantCommitted(1)
		assert.Equal(r.t, []int64{0}, r.unrecorded.offsets())
		assert.ErrorIs(r.t, other.Complete(r.t.Context(), nil), dedup.ErrLeaseLost)
	})
}

// The other owner has recorded the message first.
func TestWrapLeaseLostAndRecordedElsewhere(t *testing.T) {
	wrapInBubble(t, markLate, nil, func(r *wrapRig) {
		assert.NoError(r.t, r.loseLease().Complete(r.t.Context(), nil))
		r.after(time.Minute)
		r.wantCommitted(1)
		assert.Equal(r.t, []string{"marked"}, r.noted())
	})
}

// The store has no record of the claim. The message is claimed again when it is free, and then
// recorded. Nothing is marked before that.
func TestWrapLeaseLostAndForgotten(t *testing.T) {
	wrapInBubble(t, markLate, nil, func(r *wrapRig) {
		other := r.loseLease()
		assert.NoError(r.t, other.Release(r.t.Context()))
		elsewhere := r.over(r.memory, nil)
		assert.NoError(r.t, elsewhere.Forget(r.t.Context(), "id0", scoped))
		other = r.claimElsewhere(elsewhere, "id0")
		_, stop := other.KeepAlive(r.t.Context())
		defer stop()
		r.after(2 * time.Minute)
		assert.Empty(r.t, r.noted(), "it is in flight elsewhere")
		r.wantCommitted(0)
		assert.NoError(r.t, other.Release(r.t.Context()))
		r.after(5 * time.Second)
		assert.Equal(r.t, []string{"recorded id0", "marked"}, r.noted())
		r.wantCommitted(1)
		r.wantElsewhere("id0", dedup.Duplicate)
	})
}

func markLate(r *wrapRig, s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	for m := range c.Messages() {
		r.effect(m)
		time.Sleep(time.Minute)
		s.MarkMessage(m, "")
		r.note("marked")
	}
	return nil
}

// loseLease makes the handler lose the lease of its message to another process.
func (r *wrapRig) loseLease() *dedup.Claim {
	r.t.Helper()
	r.group.add(ids(1)...)
	r.after(time.Second)
	r.outage()
	r.after(2 * lease)
	other := r.claimElsewhere(r.over(r.memory, nil), "id0")
	assert.Equal(r.t, dedup.Acquired, other.Outcome)
	_, stop := other.KeepAlive(r.t.Context())
	r.t.Cleanup(stop)
	r.heal()
	return other
}
