package kafkasarama

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/deduptest"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
)

const lease = 10 * time.Second

// rig is a consumer under Run over a fakeGroup and a store in memory.
type rig struct {
	t           *testing.T
	group       *fakeGroup
	coordinator *fakeCoordinator // of the group
	memory      dedup.Store      // store passes its calls on to this
	store       *deduptest.Faulty
	dedup       *dedup.Deduper
	consumer    *Consumer
	stop        context.CancelFunc
	ended       chan error

	mu   sync.Mutex
	runs map[string]int
	seen []string // what happened, in order
}

// inBubble runs f in fake time, with a rig that is stopped after it.
func inBubble(t *testing.T, partitions int32, handler kafkaadapter.Handler,
	change func(*rig, *kafkaadapter.Config), f func(*rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, partitions, handler, change)
		f(r)
		r.stop()
		synctest.Wait()
	})
}

func newRig(t *testing.T, partitions int32, handler kafkaadapter.Handler,
	change func(*rig, *kafkaadapter.Config)) *rig {
	t.Helper()
	r := &rig{t: t, group: newFakeGroup(t, partitions), ended: make(chan error, 1),
		runs: map[string]int{}}
	r.coordinator = newFakeCoordinator(r.group)
	memory := dedup.Memory(1 << 16)
	r.memory, r.store = memory, deduptest.NewFaulty(memory, nil)
	r.dedup = r.otherProcess()
	r.group.finished = recorded(t, memory)
	cfg := kafkaadapter.Config{Deduper: r.dedup, Logger: slog.New(slog.DiscardHandler),
		Attempts: kafkaadapter.Attempts{RetryBase: 100 * time.Millisecond,
			RetryMax: 2 * time.Second}}
	cfg.Handler = func(ctx context.Context, m *kafkaadapter.Message) error {
		r.ran(m)
		if handler == nil {
			return nil
		}
		return handler(ctx, m)
	}
	if change != nil {
		change(r, &cfg)
	}
	if cfg.Unclaimed {
		cfg.Deduper = nil
	}
	var err error
	r.consumer, err = newConsumer(r.coordinator, groupName, cfg)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	t.Cleanup(stop)
	go func() { r.ended <- r.consumer.Run(ctx, r.group, []string{topic}) }()
	return r
}

// otherProcess is a Deduper of its own over the same store.
func (r *rig) otherProcess() *dedup.Deduper { return r.process(nil) }

// process is a Deduper with a resolver.
func (r *rig) process(resolve func(context.Context, string, dedup.Record) (dedup.Resolution,
	error)) *dedup.Deduper {
	return r.over(r.store, resolve)
}

// over is a Deduper over the store as one process sees it.
func (r *rig) over(store dedup.Store,
	resolve func(context.Context, string, dedup.Record) (dedup.Resolution, error)) *dedup.Deduper {
	d, err := dedup.New(store, dedup.Config{Namespace: "t", Window: time.Hour, LeaseTTL: lease,
		Hold: time.Hour, Resolve: resolve})
	require.NoError(r.t, err)
	r.t.Cleanup(func() { // also of a process that died, or whose lost claims it would look for
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = d.Close(ctx)
	})
	return d
}

func (r *rig) ran(m *kafkaadapter.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runs[m.ID]++
}

func (r *rig) note(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, what)
}

func (r *rig) noted() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.seen)
}

func (r *rig) times(id string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.runs[id]
}

func (r *rig) totalRuns() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, runs := range r.runs {
		n += runs
	}
	return n
}

// after lets time pass until everybody waits again.
func (r *rig) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// wantRuns requires the number of runs of an id.
func (r *rig) wantRuns(id string, n int) {
	r.t.Helper()
	assert.Equal(r.t, n, r.times(id), "runs of "+id)
}

// wantCommitted requires the committed offset of partition 0.
func (r *rig) wantCommitted(offset int64) {
	r.t.Helper()
	assert.Equal(r.t, offset, r.group.committedTo(0), "what is committed")
}

// wantEnd requires that Run has returned, and returns its error.
func (r *rig) wantEnd() error {
	r.t.Helper()
	synctest.Wait()
	select {
	case err := <-r.ended:
		return err
	default:
		assert.Fail(r.t, "Run has not returned")
		return nil
	}
}

// wantStop requires that Run has returned without an error.
func (r *rig) wantStop() {
	r.t.Helper()
	assert.NoError(r.t, r.wantEnd())
}

// wantRunning requires that Run has not returned.
func (r *rig) wantRunning() {
	r.t.Helper()
	synctest.Wait()
	select {
	case err := <-r.ended:
		assert.Fail(r.t, "Run has returned", err)
	default:
	}
}

// claimElsewhere takes the claim of an id as another process would.
func (r *rig) claimElsewhere(d *dedup.Deduper, id string) *dedup.Claim {
	r.t.Helper()
	c, err := d.Claim(context.Background(), id, scoped)
	require.NoError(r.t, err)
	return c
}

// wantElsewhere requires what another process finds when it claims the id, and returns the claim.
func (r *rig) wantElsewhere(id string, want driver.Outcome) *dedup.Claim {
	r.t.Helper()
	c := r.claimElsewhere(r.otherProcess(), id)
	assert.Equal(r.t, want, c.Outcome, id+" elsewhere")
	return c
}

// wantFree requires that another process can claim the id now.
func (r *rig) wantFree(id string) {
	r.t.Helper()
	_ = r.wantElsewhere(id, dedup.Acquired).Release(context.Background())
}

// wantHeld requires that another process finds the id in flight.
func (r *rig) wantHeld(id string) {
	r.t.Helper()
	r.wantElsewhere(id, dedup.InFlight)
}

// outage makes the store unreachable, in every direction.
func (r *rig) outage() {
	r.store.SetPlan(func(deduptest.Call) deduptest.Fault {
		return deduptest.Fault{Kind: deduptest.DropRequest}
	})
}

func (r *rig) heal() { r.store.SetPlan(nil) }
