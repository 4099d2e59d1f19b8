package kafkasarama

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/deduptest"
	"github.com/onceward/onceward/kafkaadapter"
)

// batches is a batch handler that notes what it was given.
type batches struct {
	mu   sync.Mutex
	seen []string // the ids of each batch
	runs map[string]int
	fail func(ctx context.Context, ms []*kafkaadapter.Message) []error
}

func (b *batches) handle(ctx context.Context, ms []*kafkaadapter.Message) []error {
	b.mu.Lock()
	var ids []string
	for _, m := range ms {
		ids = append(ids, m.ID)
		b.runs[m.ID]++
	}
	b.seen = append(b.seen, strings.Join(ids, " "))
	b.mu.Unlock()
	if b.fail == nil {
		return nil
	}
	return b.fail(ctx, ms)
}

// withBatches makes b the handler of a consumer.
func withBatches(b *batches) func(*rig, *kafkaadapter.Config) {
	return func(_ *rig, c *kafkaadapter.Config) {
		b.runs = map[string]int{}
		c.Handler, c.BatchHandler = nil, b.handle
	}
}

func (b *batches) wantRuns(t *testing.T, want map[string]int) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, n := range want {
		assert.Equal(t, n, b.runs[id], "runs of %s in batches %q", id, b.seen)
	}
}

func TestBatchHandlerGetsWhatMayRun(t *testing.T) {
	b := &batches{}
	inBubble(t, 1, nil, withBatches(b), func(r *rig) {
		r.group.add(message("a0", "a"), message("b0", "b"), message("a1", "a"), message("c0", ""))
		r.after(time.Second)
		r.wantCommitted(4)
		b.wantRuns(t, map[string]int{"a0": 1, "a1": 1, "b0": 1, "c0": 1})
		all := strings.Fields(strings.Join(b.seen, " "))
		assert.Less(t, slices.Index(all, "a0"), slices.Index(all, "a1"), "in order: %q", b.seen)
		assert.LessOrEqual(t, len(b.seen), 2, "batches: %q", b.seen)
	})
}

// One bad message fails its batch once. After that it is alone, and the others are done.
func TestBatchHandlerIsolatesPoison(t *testing.T) {
	t.Run("by key", func(t *testing.T) { isolatesPoison(t, kafkaadapter.ByKey) })
	// they come back together for sure
	t.Run("by partition", func(t *testing.T) { isolatesPoison(t, kafkaadapter.ByPartition) })
}

func isolatesPoison(t *testing.T, order kafkaadapter.Order) {
	parked := parking{}
	b := &batches{fail: func(_ context.Context, ms []*kafkaadapter.Message) []error {
		errs := make([]error, len(ms))
		if len(ms) > 1 || ms[0].ID == "id3" {
			for i := range errs { // as a transaction does
				// they come back together, if they can
				errs[i] = kafkaadapter.RetryAfter(time.Second, errBroken)
			}
		}
		return errs
	}}
	inBubble(t, 1, nil, func(r *rig, c *kafkaadapter.Config) {
		capped(parked, 3)(r, c)
		withBatches(b)(r, c)
		c.Order = order
	}, func(r *rig) {
		r.group.add(ids(8)...)
		r.after(time.Minute)
		r.wantCommitted(8)
		parked.want(t, "id3", kafkaadapter.ErrAttempts)
		shared := map[string]int{}
		for _, batch := range b.seen {
			if ids := strings.Fields(batch); len(ids) > 1 {
				for _, id := range ids {
					shared[id]++
				}
			}
		}
		for id, n := range shared {
			assert.Equal(t, 1, n, "batches that failed with %s and others: %q", id, b.seen)
		}
		assert.Equal(t, 3, b.runs["id3"]-shared["id3"], "batches of the poison alone: %q", b.seen)
	})
}

// Each message of a batch has an error of its own.
func TestBatchHandlerAnswersPerMessage(t *testing.T) {
	parked := parking{}
	b := &batches{}
	b.fail = func(_ context.Context, ms []*kafkaadapter.Message) []error {
		errs := make([]error, len(ms))
		for i, m := range ms {
			switch {
			case m.ID == "id1":
				errs[i] = dedup.Permanent(errBroken)
			case m.ID == "id2" && b.runs["id2"] == 1:
				errs[i] = errBroken
			}
		}
		return errs
	}
	inBubble(t, 1, nil, func(r *rig, c *kafkaadapter.Config) {
		c.Park = parked.park
		withBatches(b)(r, c)
	}, func(r *rig) {
		r.group.add(ids(4)...)
		r.after(10 * time.Second)
		r.wantCommitted(4)
		b.wantRuns(t, map[string]int{"id0": 1, "id1": 1, "id2": 2, "id3": 1})
		parked.want(t, "id1", errBroken)
	})
}

// After a mistake of a batch handler all messages of the batch have failed, and none is done.
func TestBatchHandlerMistakes(t *testing.T) {
	for name, mistake := range map[string]func(ms []*kafkaadapter.Message) []error{
		"panic":    func([]*kafkaadapter.Message) []error { panic("batch") },
		"too few":  func(ms []*kafkaadapter.Message) []error { return make([]error, len(ms)-1) },
		"too many": func(ms []*kafkaadapter.Message) []error { return make([]error, len(ms)+1) },
		"all fails": func(ms []*kafkaadapter.Message) []error {
			return slices.Repeat([]error{errBroken}, len(ms))
		},
	} {
		t.Run(name, func(t *testing.T) {
			var failing atomic.Bool
			failing.Store(true)
			b := &batches{fail: func(_ context.Context, ms []*kafkaadapter.Message) []error {
				if failing.Load() {
					return mistake(ms)
				}
				return nil
			}}
			inBubble(t, 1, nil, withBatches(b), func(r *rig) {
				r.group.add(ids(4)...)
				r.after(10 * time.Second)
				r.wantCommitted(0)
				failing.Store(false)
				r.after(10 * time.Second)
				r.wantCommitted(4)
			})
		})
	}
}

// When one claim of a batch is lost, the context of the batch ends: a transaction for all its
// messages must not be committed then.
func TestBatchContextEndsWithAnyClaim(t *testing.T) {
	var cause error
	b := &batches{fail: func(ctx context.Context, ms []*kafkaadapter.Message) []error {
		if len(ms) == 1 {
			return nil
		}
		<-ctx.Done()
		cause = context.Cause(ctx)
		return slices.Repeat([]error{cause}, len(ms))
	}}
	inBubble(t, 1, nil, withBatches(b), func(r *rig) {
		r.group.add(ids(3)...)
		r.after(time.Second)
		// an operator marks one message as done
		_, err := r.otherProcess().Mark(context.Background(), "id1", scoped)
		require.NoError(r.t, err)
		r.after(3 * lease)
		require.ErrorIs(r.t, cause, dedup.ErrLeaseLost)
		r.wantCommitted(3)
		b.wantRuns(t, map[string]int{"id0": 2, "id1": 1, "id2": 2})
	})
}

// With SQL nothing is claimed, and a batch is one transaction.
func TestBatchHandlerUnclaimed(t *testing.T) {
	b := &batches{}
	b.fail = func(_ context.Context, ms []*kafkaadapter.Message) []error {
		if len(ms) > 1 {
			return slices.Repeat([]error{errBroken}, len(ms))
		}
		for _, m := range ms {
			if m.Attempt != 1 {
				return slices.Repeat([]error{fmt.Errorf("attempt %d", m.Attempt)}, len(ms))
			}
		}
		return nil
	}
	inBubble(t, 1, nil, func(r *rig, c *kafkaadapter.Config) {
		withBatches(b)(r, c)
		c.Unclaimed, r.group.finished = true, nil
	}, func(r *rig) {
		r.group.add(ids(5)...)
		r.after(10 * time.Second)
		r.wantCommitted(5)
	})
}

// A message that waits for another process, or for the store's answer, holds up the messages of
// its key in a batch, too.
func TestBatchHandlerKeepsOrderBehindWhatWaits(t *testing.T) {
	for name, order := range map[string]kafkaadapter.Order{"by key": kafkaadapter.ByKey,
		"by partition": kafkaadapter.ByPartition} {
		t.Run(name, func(t *testing.T) {
			b := &batches{}
			inBubble(t, 1, nil, func(r *rig, c *kafkaadapter.Config) {
				withBatches(b)(r, c)
				c.Order = order
			}, func(r *rig) {
				elsewhere := r.claimElsewhere(r.otherProcess(), "a0")
				r.group.add(message("a0", "a"), message("a1", "a"), message("a2", "a"))
				r.after(5 * time.Second) // the claims behind it are given back
				b.wantRuns(t, map[string]int{"a1": 0, "a2": 0})
				require.NoError(t, elsewhere.Release(context.Background()))
				r.group.add(message("a3", "a")) // and this one is claimed ahead of its turn
				r.after(10 * time.Second)
				r.wantCommitted(4)
				all := strings.Fields(strings.Join(b.seen, " "))
				assert.Equal(t, []string{"a0", "a1", "a2", "a3"}, all)
				assert.LessOrEqual(t, len(b.seen), 2,
					"what was asked about together was not handled together: %q", b.seen)
			})
		})
	}
}

// A batch handler ends its goroutine while the store is asked about another message of the batch.
// Only the goroutine that asks settles that message.
func TestBatchHandlerGoexitBesideAQuestion(t *testing.T) {
	b := &batches{fail: func(context.Context, []*kafkaadapter.Message) []error {
		runtime.Goexit()
		return nil
	}}
	inBubble(t, 1, nil, withBatches(b), func(r *rig) {
		r.claimElsewhere(r.otherProcess(), "elsewhere")
		r.store.SetPlan(func(call deduptest.Call) deduptest.Fault {
			if call.Op == deduptest.OpClaim && call.Number > 2 {
				return deduptest.Fault{Kind: deduptest.Hang}
			}
			return deduptest.Fault{}
		})
		r.group.add(message("a", "a"), message("b", "b"), message("elsewhere", "e"))
		r.after(time.Second)
		r.heal()
		r.after(time.Minute)
		require.Error(r.t, r.wantEnd())
		r.wantFree("a")
		r.wantFree("b")
	})
}

// A batch that outlasts its partition begins no message. The dead-letter topic is down, so the
// letter at the head of the batch gives back the claim behind it. The store takes longer for that
// than the drain of the partition lasts.
func TestBatchBeginsNothingAfterTheEnd(t *testing.T) {
	b := &batches{}
	var giving atomic.Bool
	inBubble(t, 1, nil, func(r *rig, c *kafkaadapter.Config) {
		withBatches(b)(r, c)
		c.Tuning.Drain = 100 * time.Millisecond
		c.Park = func(context.Context, *kafkaadapter.Message, error) error { return errBroken }
	}, func(r *rig) {
		withoutID := func(key string) *sarama.ConsumerMessage {
			m := message("bad", key)
			m.Headers = nil
			return m
		}
		r.group.add(message("first", "f"), withoutID("p"))
		r.after(time.Second) // calls of Park fail
		r.store.SetPlan(func(call deduptest.Call) deduptest.Fault {
			if call.Op == deduptest.OpFinish && giving.CompareAndSwap(false, true) {
				return deduptest.Fault{Kind: deduptest.Hang}
			}
			return deduptest.Fault{}
		})
		r.group.add(withoutID("a"), message("behind", "a"), message("x", "b"))
		r.after(100 * time.Millisecond)
		require.True(r.t, giving.Load(), "the claim behind the letter is being given back")
		r.stop()
		r.after(10 * time.Second)
		b.wantRuns(t, map[string]int{"first": 1, "behind": 0, "x": 0})
		r.wantFree("x")
		r.wantFree("behind")
	})
}

// One message that fails for good is parked, and its neighbors are not.
func TestAllOrNothingParksThePoisonAlone(t *testing.T) {
	parked := parking{}
	done := map[string]int{}
	inBubble(t, 1, nil, func(r *rig, c *kafkaadapter.Config) {
		unclaimed(r, c)
		c.Park, c.Handler = parked.park, nil
		c.BatchHandler = kafkaadapter.AllOrNothing(func(_ context.Context,
			ms []*kafkaadapter.Message) error {
			if slices.Contains(kafkaadapter.IDs(ms), "id3") {
				return dedup.Permanent(errBroken)
			}
			for _, id := range kafkaadapter.IDs(ms) {
				done[id]++
			}
			return nil
		})
	}, func(r *rig) {
		r.group.add(append(ids(8), message("", "no id"))...)
		r.after(time.Minute)
		r.wantCommitted(9)
		assert.Len(t, parked, 2)
		require.ErrorIs(r.t, parked["id3"], errBroken)
		require.ErrorIs(r.t, parked[""], kafkaadapter.ErrNoID)
		assert.Len(t, done, 7)
		for id, n := range done {
			assert.Equal(t, 1, n, id)
		}
	})
}
