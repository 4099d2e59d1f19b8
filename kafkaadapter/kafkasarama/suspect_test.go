package kafkasarama

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/deduptest"
	"github.com/onceward/onceward/kafkaadapter"
)

// diedElsewhere claims the ids in another process that dies, deaths times.
func (r *rig) diedElsewhere(deaths int, ids ...string) {
	r.t.Helper()
	for range deaths {
		for _, id := range ids {
			r.wantElsewhere(id, dedup.Acquired)
		}
		<-time.After(lease + time.Millisecond)
	}
}

// A message that others have claimed before is not claimed ahead of its turn, and costs no writes.
func TestClaimingAheadLeavesWhatWasTried(t *testing.T) {
	var free chan struct{}
	handler := func(_ context.Context, m *kafkaadapter.Message) error {
		if m.ID == "slow" {
			<-free
		}
		return nil
	}
	finishes := 0
	inBubble(t, 1, handler, func(r *rig, c *kafkaadapter.Config) {
		c.Attempts.Max, c.Park, free = 5, parking{}.park, make(chan struct{})
		r.diedElsewhere(1, "once")
		r.diedElsewhere(2, "twice")
		r.store.SetPlan(func(call deduptest.Call) deduptest.Fault {
			if call.Op == deduptest.OpFinish {
				finishes++
			}
			return deduptest.Fault{}
		})
	}, func(r *rig) {
		r.group.add(message("slow", "k"), message("once", "k"), message("twice", "k"))
		r.after(lease / 2)
		for id, n := range map[string]int{"once": 1, "twice": 2} {
			assert.Equal(t, n, r.attempts(id), "attempts of %s before its turn", id)
			r.wantRuns(id, 0)
		}
		assert.Zero(t, finishes, "claims were ended")
		close(free)
		r.after(time.Second)
		r.wantCommitted(3)
		assert.Equal(t, 3, r.attempts("twice"))
	})
}

// crowded counts the handlers that run at once.
type crowded struct {
	mu        sync.Mutex
	now, most int
}

func (c *crowded) enter() (leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now++
	c.most = max(c.most, c.now)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.now--
	}
}

// count returns how many run, and how many did at most.
func (c *crowded) count() (now, most int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now, c.most
}

func suspectIDs(n int) (ids []string, all []*sarama.ConsumerMessage) {
	for i := range n {
		id := fmt.Sprint("suspect", i)
		ids = append(ids, id)
		all = append(all, at(int32(i%2), 0, message(id, id)))
	}
	return ids, all
}

// install makes a handler that of a configuration.
type install func(*kafkaadapter.Config, kafkaadapter.Handler)

// eachHandler runs f with the handler as one of messages and as one of batches.
func eachHandler(t *testing.T, f func(t *testing.T, install install)) {
	t.Run("messages", func(t *testing.T) {
		f(t, func(c *kafkaadapter.Config, h kafkaadapter.Handler) { c.Handler = h })
	})
	t.Run("batches", func(t *testing.T) {
		f(t, func(c *kafkaadapter.Config, h kafkaadapter.Handler) {
			c.Handler = nil
			c.BatchHandler = func(ctx context.Context, ms []*kafkaadapter.Message) []error {
				if len(ms) == 1 {
					return []error{h(ctx, ms[0])} // which may panic
				}
				errs := make([]error, len(ms))
				var all sync.WaitGroup
				for i, m := range ms {
					all.Go(func() { errs[i] = h(ctx, m) })
				}
				all.Wait()
				return errs
			}
		})
	})
}

// Messages that two attempts elsewhere have not brought to an end run one at a time, over
// all partitions; others run next to them.
func TestSuspectsRunOneAtATime(t *testing.T) {
	eachHandler(t, func(t *testing.T, install install) {
		const n = 20
		var suspects, others crowded
		inBubble(t, 2, nil, func(r *rig, c *kafkaadapter.Config) {
			install(c, func(_ context.Context, m *kafkaadapter.Message) error {
				r.ran(m)
				crowd := &others
				if m.Attempt > 2 {
					crowd = &suspects
				}
				defer crowd.enter()()
				<-time.After(50 * time.Millisecond)
				return nil
			})
			c.Attempts.Max, c.Park = 5, parking{}.park
			ids, _ := suspectIDs(n)
			r.diedElsewhere(2, ids...)
		}, func(r *rig) {
			ids, all := suspectIDs(n)
			r.group.add(all...)
			for i := range n {
				r.group.add(message(fmt.Sprint("new", i), fmt.Sprint(i)))
			}
			r.after(2 * time.Second)
			_, alone := suspects.count()
			_, together := others.count()
			assert.Equal(t, 1, alone, "suspects at once")
			assert.GreaterOrEqual(t, together, 5, "others at once")
			r.after(8 * time.Second)
			for _, id := range ids {
				r.wantRuns(id, 1)
			}
			r.wantCommitted(n/2 + n)
		})
	})
}

// A suspect that has failed in this process has not killed it, and holds up no other message.
func TestSuspectThatFailedHereHoldsUpNobody(t *testing.T) {
	eachHandler(t, func(t *testing.T, install install) {
		const n = 6
		var second crowded
		inBubble(t, 2, nil, func(r *rig, c *kafkaadapter.Config) {
			install(c, func(ctx context.Context, m *kafkaadapter.Message) error {
				r.ran(m)
				if m.Attempt < 4 {
					return errBroken
				}
				defer second.enter()()
				select {
				case <-time.After(30 * time.Second):
				case <-ctx.Done():
				}
				return nil
			})
			c.Attempts.Max, c.Park = 10, parking{}.park
			ids, _ := suspectIDs(n)
			r.diedElsewhere(2, ids...)
		}, func(r *rig) {
			_, all := suspectIDs(n)
			r.group.add(all...)
			r.after(10 * time.Second)
			running, _ := second.count()
			assert.Equal(t, n, running, "that run again after they have failed here")
			r.after(time.Minute)
			r.wantCommitted(n / 2)
		})
	})
}

// However a running suspect ends, the next one gets its turn.
func TestSuspectsPassOn(t *testing.T) {
	const first = "suspect0"
	stuck := func(free chan struct{}, ctx context.Context) error { <-free; return ctx.Err() }
	obeys := func(_ chan struct{}, ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for name, row := range map[string]struct {
		runs func(free chan struct{}, ctx context.Context) error // the first
		then func(r *rig)
		wait time.Duration
	}{
		"revoked, and does not stop": {stuck, func(r *rig) {
			r.group.rebalance()
		}, 30 * time.Second},
		"revoked, and stops": {obeys, func(r *rig) {
			r.group.rebalance()
		}, 30 * time.Second},
		"loses its lease": {obeys, func(r *rig) {
			r.outage()
			r.after(2 * lease)
			r.heal()
		}, 30 * time.Second},
		"panics": {func(chan struct{}, context.Context) error {
			panic("no")
		}, nil, 10 * time.Second},
		"fails": {func(chan struct{}, context.Context) error {
			return errBroken
		}, nil, 10 * time.Second},
		"fails for good": {func(chan struct{}, context.Context) error {
			return dedup.Permanent(errBroken)
		}, nil, 10 * time.Second},
		"takes longer than it may": {obeys, func(r *rig) {
			r.after(time.Minute)
		}, 30 * time.Second},
		"is done": {func(chan struct{}, context.Context) error {
			return nil
		}, nil, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			eachHandler(t, func(t *testing.T, install install) {
				parked := parking{}
				var free chan struct{}
				inBubble(t, 2, nil, func(r *rig, c *kafkaadapter.Config) {
					capped(parked, 50)(r, c)
					c.Tuning.Drain, c.Attempts.Timeout = time.Second, 45*time.Second
					free = make(chan struct{})
					seen := map[string]bool{}
					install(c, func(ctx context.Context, m *kafkaadapter.Message) error {
						r.ran(m)
						r.mu.Lock()
						again := seen[m.ID]
						seen[m.ID] = true
						r.mu.Unlock()
						if m.ID == first && !again {
							return row.runs(free, ctx)
						}
						return nil
					})
					r.diedElsewhere(2, first, "suspect1")
				}, func(r *rig) {
					r.group.add(at(0, 0, message(first, "k")))
					r.after(time.Second)
					require.Positive(r.t, r.times(first), "the first does not run")
					r.group.add(at(1, 0, message("suspect1", "k")))
					r.after(time.Second)
					if row.then != nil {
						r.wantRuns("suspect1", 0) // the first still runs
						row.then(r)
					}
					r.after(row.wait)
					r.wantRuns("suspect1", 1)
					assert.EqualValues(t, 1, r.group.committedTo(1), "the second")
					close(free)
					r.after(time.Minute)
					r.wantCommitted(1)
				})
			})
		})
	}
}

// A suspect that is in flight in another process, or done or failed there, also gives up its turn.
func TestSuspectsOfOthersPassOn(t *testing.T) {
	for name, becomes := range map[string]func(c *dedup.Claim) error{
		"in flight": func(*dedup.Claim) error { return nil },
		"done":      func(c *dedup.Claim) error { return c.Complete(context.Background(), nil) },
		"failed":    func(c *dedup.Claim) error { return c.Fail(context.Background(), errBroken) },
	} {
		t.Run(name, func(t *testing.T) {
			var last *dedup.Claim
			inBubble(t, 2, nil, func(r *rig, c *kafkaadapter.Config) {
				c.Attempts.Max, c.Park = 5, parking{}.park
				r.diedElsewhere(2, "suspect0", "suspect1", "suspect2")
				last = r.claimElsewhere(r.otherProcess(), "suspect0")
			}, func(r *rig) {
				_, stop := last.KeepAlive(context.Background())
				defer stop()
				r.group.add(at(0, 0, message("suspect0", "k")))
				r.after(lease / 2) // it is known, and in flight
				require.NoError(t, becomes(last))
				r.group.add(at(1, 0, message("suspect1", "k")))
				r.after(lease)
				r.wantRuns("suspect0", 0)
				r.wantRuns("suspect1", 1)
				r.outage()
				r.group.add(at(1, 0, message("suspect2", "k")))
				r.after(lease)
				r.heal()
				r.after(lease)
				r.wantRuns("suspect2", 1)
				r.stop()
				r.after(time.Minute)
			})
		})
	}
}

// Without a resolver uncertain suspects are parked, so that none of them keeps the turn.
func TestUncertainSuspectsPassOn(t *testing.T) {
	parked := parking{}
	inBubble(t, 2, nil, func(r *rig, c *kafkaadapter.Config) {
		capped(parked, 5)(r, c)
		c.Park = func(ctx context.Context, m *kafkaadapter.Message, reason error) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			return parked.park(ctx, m, reason)
		}
		ids, _ := suspectIDs(4)
		r.diedElsewhere(1, ids...)
		for _, id := range ids {
			claim := r.claimElsewhere(r.otherProcess(), id)
			ctx, stop := claim.KeepAlive(context.Background())
			require.NoError(t, dedup.MarkIrreversible(ctx))
			stop()
		}
		<-time.After(2 * lease)
	}, func(r *rig) {
		_, all := suspectIDs(4)
		r.group.add(all...)
		r.after(10 * time.Second)
		assert.Len(t, parked, 4)
		assert.ErrorIs(t, parked["suspect3"], dedup.ErrUncertain)
		r.wantCommitted(2)
	})
}

// mortal runs one process after another over one store, and has what they leave behind.
type mortal struct {
	memory dedup.Store
	parked parking
	free   chan struct{} // closed at the end, so that handlers of dead processes return

	mu     sync.Mutex
	done   map[string]int
	deaths int
}

// live starts a process; dead is closed when the poison has killed it.
func (w *mortal) live(t *testing.T) (r *rig, dead chan struct{}) {
	dead = make(chan struct{})
	var kill sync.Once
	gone := func() bool {
		select {
		case <-dead:
			return true
		default:
			return false
		}
	}
	handler := func(_ context.Context, m *kafkaadapter.Message) error {
		if m.ID == "poison" {
			kill.Do(func() {
				r.outage() // so nothing is renewed
				w.deaths++
				close(dead)
			})
		} else {
			<-time.After(20 * time.Millisecond)
		}
		if gone() {
			<-w.free
			return errBroken
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.done[m.ID]++
		return nil
	}
	r = newRig(t, 1, handler, func(made *rig, c *kafkaadapter.Config) {
		r = made
		capped(w.parked, 5)(made, c)
		made.store = deduptest.NewFaulty(w.memory, nil)
		made.dedup = made.otherProcess()
		c.Deduper = made.dedup
	})
	return r, dead
}

// A message that kills its process at once takes its neighbors with it twice, and is put
// aside alone.
func TestPoisonIsParkedAlone(t *testing.T) {
	const neighbours, limit = 40, 5
	for name, restart := range map[string]time.Duration{"restarted at once": time.Second,
		"restarted later": 2 * lease} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &mortal{memory: dedup.Memory(1 << 16), parked: parking{},
					free: make(chan struct{}), done: map[string]int{}}
				var all []*rig
				defer func() {
					close(w.free)
					for _, r := range all {
						r.stop()
					}
					<-time.After(2 * time.Minute)
				}()
				alive := false
				for !alive && len(all) < 2*limit {
					r, dead := w.live(t)
					all = append(all, r)
					messages := ids(neighbours)
					messages = append(messages[:neighbours/2:neighbours/2],
						append([]*sarama.ConsumerMessage{message("poison", "p")},
							messages[neighbours/2:]...)...)
					r.group.add(messages...)
					select {
					case <-dead:
					case <-time.After(3 * time.Minute):
						alive = true
						r.wantCommitted(neighbours + 1)
					}
					<-time.After(restart)
				}
				assert.True(t, alive)
				assert.Equal(t, limit, w.deaths)
				w.parked.want(t, "poison", kafkaadapter.ErrAttempts)
				for _, m := range ids(neighbours) {
					// twice, if its record was cut off
					assert.Positive(t, w.done[idIn(m)], idIn(m)+" was not done")
					assert.LessOrEqual(t, all[len(all)-1].attempts(idIn(m)), 3, idIn(m))
				}
			})
		})
	}
}
