package kafkasarama

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/deduptest"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
)

// randomRun has the state of a run with random faults.
type randomRun struct {
	t   *testing.T
	r   *rig
	rng *rand.Rand // under mu

	mu        sync.Mutex
	offsets   map[string][]string // the ids of a key, in order
	parked    map[string]bool
	unordered bool
	calm      bool // no more trouble
}

// n is a random number below n.
func (x *randomRun) n(n int) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.rng.IntN(n)
}

// handle succeeds, fails, panics or takes long, at random.
func (x *randomRun) handle(ctx context.Context, m *kafkaadapter.Message) error {
	if x.isCalm() {
		return nil
	}
	if x.n(6) == 0 {
		if err := dedup.MarkIrreversible(ctx); err != nil && x.n(2) == 0 {
			return err
		}
	}
	switch x.n(12) {
	case 0:
		return errBroken
	case 1:
		return dedup.Permanent(errBroken)
	case 2:
		return kafkaadapter.RetryAfter(time.Duration(x.n(3000))*time.Millisecond, errBroken)
	case 3:
		panic("handler")
	case 4:
		<-time.After(time.Duration(x.n(20)) * time.Second)
		return nil
	case 5:
		select {
		case <-time.After(time.Duration(x.n(20)) * time.Second):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	<-time.After(time.Duration(x.n(200)) * time.Millisecond)
	return nil
}

// ordered requires that all messages before m in its key are done.
func (x *randomRun) ordered(m *kafkaadapter.Message, beside map[string]bool) {
	if x.unordered {
		return
	}
	x.mu.Lock()
	before := x.offsets[string(m.Key)]
	x.mu.Unlock()
	for _, id := range before {
		if id == m.ID {
			return
		}
		assert.True(x.t, beside[id] || x.finished(message(id, "")),
			"%s began before %s was done", m.ID, id)
	}
}

// handleBatch has the effects of all messages or of none.
func (x *randomRun) handleBatch(ctx context.Context, ms []*kafkaadapter.Message) []error {
	beside := map[string]bool{}
	errs := make([]error, len(ms))
	for _, m := range ms {
		x.ordered(m, beside)
		beside[m.ID] = true
	}
	for i, m := range ms {
		if i > 0 && x.n(3) > 0 {
			continue
		}
		errs[i] = x.handle(ctx, m)
	}
	for i := range errs { // as a transaction does
		if errs[i] != nil {
			for j := range errs {
				errs[j] = errs[i]
				if dedup.IsPermanent(errs[i]) && len(ms) > 1 {
					errs[j] = errBroken
				}
			}
			break
		}
	}
	return errs
}

// park keeps the message, but sometimes fails or takes long.
func (x *randomRun) park(ctx context.Context, m *kafkaadapter.Message, _ error) error {
	if !x.isCalm() {
		switch x.n(4) {
		case 0:
			return errBroken
		case 1:
			select {
			case <-time.After(time.Duration(x.n(10)) * time.Second):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.parked[m.ID] = true
	return nil
}

// resolve returns a random resolution.
func (x *randomRun) resolve(ctx context.Context, _ string, _ dedup.Record) (dedup.Resolution,
	error) {
	if x.isCalm() {
		return dedup.DidNotHappen(), nil
	}
	if x.n(3) == 0 {
		<-time.After(time.Duration(x.n(8)) * time.Second)
	}
	found := []dedup.Resolution{dedup.DidNotHappen(), dedup.Happened(nil), dedup.FailedForGood(""),
		{}}
	return found[x.n(len(found))], nil
}

// fault returns a random fault for a call of the store, or none.
func (x *randomRun) fault(call deduptest.Call) deduptest.Fault {
	kinds := []deduptest.Kind{deduptest.DropRequest, deduptest.DropReply, deduptest.Hang,
		deduptest.HangReply}
	if x.n(100) < 85 {
		return deduptest.Fault{}
	}
	return deduptest.Fault{Kind: kinds[x.n(len(kinds))], Item: 0}
}

// trouble is faults of the store and of commits, rebalances, and other processes.
func (x *randomRun) trouble() {
	for range 40 {
		<-time.After(time.Duration(x.n(3000)) * time.Millisecond)
		switch x.n(8) {
		case 0:
			x.r.store.SetPlan(x.fault)
		case 1:
			kind := []deduptest.Kind{deduptest.DropRequest, deduptest.DropReply, deduptest.Hang,
				deduptest.HangReply}[x.n(4)]
			op := []deduptest.Op{deduptest.OpClaim, deduptest.OpFinish, deduptest.OpRenew}[x.n(3)]
			all := x.n(3) == 0
			x.r.store.SetPlan(func(c deduptest.Call) deduptest.Fault {
				if all || c.Op == op {
					return deduptest.Fault{Kind: kind}
				}
				return deduptest.Fault{}
			})
		case 2, 3:
			x.r.heal()
		case 4:
			x.r.group.rebalance()
		case 5:
			id := fmt.Sprint("id", x.n(60))
			go x.elsewhere(id)
		case 6:
			x.commitsFail(x.n(5))
		}
	}
}

// commitsFail has the next commits fail, whether they are applied or not.
func (x *randomRun) commitsFail(n int) {
	answers := []error{io.EOF, sarama.ErrRequestTimedOut, sarama.ErrOffsetsLoadInProgress,
		sarama.ErrNotCoordinatorForConsumer, sarama.ErrIllegalGeneration}
	answer := answers[x.n(len(answers))]
	apply := !isFencing(answer) && x.n(2) == 0
	x.r.coordinator.set(func() { x.r.coordinator.apply = apply })
	x.r.coordinator.refuse(n, answer)
}

// elsewhere claims the message in another process, and may finish it there.
func (x *randomRun) elsewhere(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c, err := x.r.otherProcess().Claim(ctx, id, scoped)
	if err != nil || c.Outcome != dedup.Acquired {
		return
	}
	<-time.After(time.Duration(x.n(6000)) * time.Millisecond)
	if x.n(2) == 0 {
		_ = c.Complete(context.Background(), nil)
	} else if x.n(2) == 0 {
		_ = c.Release(context.Background())
	}
}

// Whatever happens, in any order: nothing is committed before it is on record or parked, a
// key keeps its order, everything is done once the trouble is over, and no claim is kept
// alive when the consumer has gone.
func TestRandomTrouble(t *testing.T) {
	const seeds = 30
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			x := &randomRun{t: t, rng: rand.New(rand.NewPCG(seed, 1)),
				offsets: map[string][]string{}, parked: map[string]bool{}}
			inBubble(t, 2, nil, x.configure, func(r *rig) {
				go x.produce(120)
				x.trouble()
				r.after(30 * time.Second)
				x.end()
				r.after(20 * time.Minute)
				for p := range int32(2) {
					assert.EqualValues(t, len(r.group.log[p]), r.group.committedTo(p),
						"partition %d: %+v", p, r.consumer.Progress())
				}
				r.stop()
				r.after(time.Minute)
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				assert.NoError(t, r.dedup.Close(ctx))
			})
		})
	}
}

// configure makes any consumer.
func (x *randomRun) configure(r *rig, c *kafkaadapter.Config) {
	x.r = r
	c.Order = []kafkaadapter.Order{kafkaadapter.ByKey, kafkaadapter.ByKey,
		kafkaadapter.ByPartition, kafkaadapter.Unordered}[x.n(4)]
	c.Tuning.Workers, c.Tuning.BatchMax, c.Tuning.ClaimAhead = 1+x.n(4), 1+x.n(8), 1+x.n(16)
	c.Attempts.Max = []int{0, 2, 4}[x.n(3)]
	c.Park, c.Tuning.Drain = x.park, time.Second
	c.Attempts.Timeout = []time.Duration{0, 15 * time.Second}[x.n(2)]
	c.Tuning.HighWater, c.Tuning.LowWater = 32, 8
	c.Allow.TakeOver = x.n(2) == 0
	if x.n(2) == 0 {
		r.dedup = r.process(x.resolve)
		c.Deduper = r.dedup
	}
	x.unordered = c.Order == kafkaadapter.Unordered
	if x.n(2) == 0 {
		c.Handler, c.BatchHandler = nil, x.handleBatch
	} else {
		c.Handler = func(ctx context.Context, m *kafkaadapter.Message) error {
			x.ordered(m, nil)
			return x.handle(ctx, m)
		}
	}
	r.group.finished = x.finished
}

// finished is the oracle: a message is finished if it was parked or is on record as done. A failure
// on record counts only for other messages with the id: the failed message itself must be parked.
func (x *randomRun) finished(m *sarama.ConsumerMessage) bool {
	x.mu.Lock()
	parked := x.parked[idIn(m)]
	x.mu.Unlock()
	key, err := driver.NewID("t", kafkaadapter.ScopeOf(groupName, topic), idIn(m))
	assert.NoError(x.t, err)
	rec := x.r.memory.Lookup(context.Background(), []driver.ID{key})[0].Record
	here := rec.Origin.Partition == m.Partition && rec.Origin.Offset == m.Offset
	return parked || rec.State == driver.StateSucceeded || rec.State == driver.StateFailed && !here
}

// produce adds messages, some of them again under no key.
func (x *randomRun) produce(n int) {
	for i := range n {
		k := x.n(6)
		id, key := fmt.Sprint("id", i), fmt.Sprint("key", k)
		if x.n(10) == 0 && i > 0 {
			id, key = fmt.Sprint("id", x.n(i)), ""
		}
		m := message(id, key)
		m.Partition = int32(k) % 2
		if key != "" {
			x.mu.Lock()
			x.offsets[key] = append(x.offsets[key], id)
			x.mu.Unlock()
		}
		x.r.group.add(m)
		<-time.After(time.Duration(x.n(1000)) * time.Millisecond)
	}
}

// end is the end of the trouble.
func (x *randomRun) end() {
	x.mu.Lock()
	x.calm = true
	x.mu.Unlock()
	x.r.heal()
	x.r.coordinator.refuse(0, nil)
}

func (x *randomRun) isCalm() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.calm
}
