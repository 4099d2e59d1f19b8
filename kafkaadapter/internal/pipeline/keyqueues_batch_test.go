package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/kafkaadapter/internal/pipeline"
)

// batchReferee watches queues whose process function takes batches and settles them later,
// in any order, from anywhere.
type batchReferee struct {
	t     *testing.T
	batch int

	mu       sync.Mutex
	rnd      *rand.Rand
	open     map[string]int // of a key: handed out and not settled
	next     map[string]int // of a key: the lowest that is not finished
	failed   sync.Map       // items that must be alone; read under the queues' lock
	finished map[item]bool
	gone     bool
}

func (r *batchReferee) process(_ context.Context, tasks []pipeline.Task[item]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.check(tasks)
	for _, i := range r.rnd.Perm(len(tasks)) { // in any order
		task := tasks[i]
		r.open[task.Item.key]++
		d := time.Duration(r.rnd.IntN(15)) * time.Millisecond
		if d == 0 {
			r.settle(task) // before process returns
			continue
		}
		time.AfterFunc(d, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.settle(task)
		})
	}
}

// check checks a batch when the queues hand it out.
func (r *batchReferee) check(tasks []pipeline.Task[item]) {
	require.NotEmpty(r.t, tasks)
	assert.LessOrEqual(r.t, len(tasks), r.batch, "the limit of a batch")
	last := map[string]int{}
	for _, task := range tasks {
		it := task.Item
		assert.Zero(r.t, r.open[it.key], "%v started while others of its key are not settled", it)
		before, seen := last[it.key]
		if seen {
			assert.Greater(r.t, it.n, before, "the order in a batch of key %s", it.key)
		} else {
			assert.Equal(r.t, r.next[it.key], it.n, "the next one of key %s", it.key)
		}
		last[it.key] = it.n
		if r.alone(it) {
			assert.Len(r.t, tasks, 1, "%v is to be alone", it)
		}
	}
	assert.False(r.t, r.gone, "%v started after the drain", tasks[0].Item)
}

func (r *batchReferee) settle(task pipeline.Task[item]) {
	it := task.Item
	r.open[it.key]--
	if r.rnd.IntN(4) == 0 {
		r.failed.Store(it, true)
		task.Settle(pipeline.RetryAfter(time.Duration(r.rnd.IntN(30)-5) * time.Millisecond))
		return
	}
	r.finished[it] = true
	for r.finished[item{it.key, r.next[it.key]}] {
		r.next[it.key]++
	}
	task.Settle(pipeline.Done())
}

func (r *batchReferee) alone(it item) bool {
	_, failed := r.failed.Load(it)
	return failed
}

func TestBatchKeyQueuesKeepTheirPromises(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { randomBatches(t, seed) })
		})
	}
}

func randomBatches(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	r := &batchReferee{
		t: t, batch: 1 + rnd.IntN(20), rnd: rand.New(rand.NewPCG(seed, 2)), open: map[string]int{},
		next: map[string]int{}, finished: map[item]bool{},
	}
	l, err := pipeline.NewBatchKeyQueues(context.WithoutCancel(t.Context()),
		pipeline.KeyQueuesConfig{Workers: 1 + rnd.IntN(4), Batch: r.batch}, r.process, r.alone)
	require.NoError(t, err)
	keys, count, total := 1+rnd.IntN(20), map[string]int{}, 100+rnd.IntN(300)
	for range total {
		key := strconv.Itoa(rnd.IntN(keys))
		submit(t, l, item{key, count[key]})
		count[key]++
		if rnd.IntN(3) == 0 {
			time.Sleep(time.Duration(rnd.IntN(4)) * time.Millisecond)
		}
	}
	if seed%3 == 0 {
		time.Sleep(time.Hour) // everything can finish
	}
	left := l.Drain(within(t, time.Duration(rnd.IntN(25))*time.Millisecond))
	r.mu.Lock()
	r.gone = true
	r.mu.Unlock()
	rest := l.Drain(within(t, time.Hour))
	r.account(left, rest, total)
	assert.Zero(t, l.Stats(), "after the drain")
}

// account checks that finished and pending are what was submitted, each exactly once.
func (r *batchReferee) account(left, rest pipeline.Drained[item], total int) {
	assert.Nil(r.t, rest.Running, "still running after an hour")
	seen := map[item]bool{}
	for it := range r.finished {
		seen[it] = true
	}
	for _, it := range append(left.Pending, rest.Pending...) {
		assert.False(r.t, seen[it], "%v is pending, and something else", it)
		seen[it] = true
	}
	for _, it := range left.Running {
		assert.True(r.t, seen[it], "%v ran during the drain and is lost", it)
	}
	assert.Len(r.t, seen, total, "items that are accounted for")
}

// A stop, or a goroutine that ends, in the middle of a batch leaves nothing unsettled.
func TestBatchKeyQueuesStop(t *testing.T) {
	errBroken := errors.New("broken")
	for name, row := range map[string]struct {
		process func(tasks []pipeline.Task[item])
		want    error
	}{
		"decision": {func(tasks []pipeline.Task[item]) {
			pipeline.SettleAll(tasks, []pipeline.Decision{pipeline.Done(),
				pipeline.Stop(errBroken), pipeline.Done()})
		}, errBroken},
		"no decision": {func(tasks []pipeline.Task[item]) {
			pipeline.SettleAll(tasks, []pipeline.Decision{pipeline.Done(), {}, pipeline.Done()})
		}, pipeline.ErrNoDecision},
		"goroutine ends": {func(tasks []pipeline.Task[item]) {
			tasks[0].Settle(pipeline.Done())
			tasks[2].Settle(pipeline.Done())
			runtime.Goexit()
		}, pipeline.ErrNoDecision},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				told := make(chan error, 9)
				l, err := pipeline.NewBatchKeyQueues(t.Context(),
					pipeline.KeyQueuesConfig{Workers: 1, Batch: 3,
						OnStop: func(err error) { told <- err }},
					func(_ context.Context, tasks []pipeline.Task[item]) {
						row.process(tasks)
					}, nil)
				require.NoError(t, err)
				items := []item{{"a", 0}, {"a", 1}, {"b", 0}, {"c", 0}}
				require.NoError(t, l.SubmitAll(items, func(it item) []byte {
					return []byte(it.key)
				}))
				synctest.Wait()
				assert.ErrorIs(t, <-told, row.want)
				assert.Empty(t, told, "it is told once")
				left := l.Drain(t.Context())
				assert.Equal(t, pipeline.Drained[item]{Pending: []item{{"a", 1}, {"c", 0}}}, left)
				err = l.SubmitAll(items, func(item) []byte { return nil })
				assert.ErrorIs(t, err, pipeline.ErrStopped, "SubmitAll after a stop")
			})
		})
	}
}
