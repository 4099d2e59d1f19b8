package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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

// check is what must hold of a batch when it is handed out.
func (r *batchReferee) check(tasks []pipeline.Task[item]) {
	if len(tasks) == 0 || len(tasks) > r.batch {
		r.t.Errorf("a batch of %d, the limit is %d", len(tasks), r.batch)
	}
	last := map[string]int{}
	for _, task := range tasks {
		it := task.Item
		if n := r.open[it.key]; n > 0 {
			r.t.Errorf("%v started while %d of its key are not settled", it, n)
		}
		before, seen := last[it.key]
		switch {
		case seen && it.n <= before:
			r.t.Errorf("%v comes after %d in its batch", it, before)
		case !seen && it.n != r.next[it.key]:
			r.t.Errorf("%v started, %d of its key comes next", it, r.next[it.key])
		}
		last[it.key] = it.n
		if r.alone(it) && len(tasks) > 1 {
			r.t.Errorf("%v is to be alone and shares a batch of %d", it, len(tasks))
		}
	}
	if r.gone {
		r.t.Errorf("%v started after the drain", tasks[0].Item)
	}
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
	if err != nil {
		t.Fatal(err)
	}
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
	if got := l.Stats(); got != (pipeline.KeyQueueStats{}) {
		t.Errorf("after the drain: %+v", got)
	}
}

// account checks that finished and pending are what was submitted, each exactly once.
func (r *batchReferee) account(left, rest pipeline.Drained[item], total int) {
	if rest.Running != nil {
		r.t.Errorf("still running after an hour: %v", rest.Running)
	}
	seen := map[item]bool{}
	for it := range r.finished {
		seen[it] = true
	}
	for _, it := range append(left.Pending, rest.Pending...) {
		if seen[it] {
			r.t.Errorf("%v is pending, and something else", it)
		}
		seen[it] = true
	}
	for _, it := range left.Running {
		if !seen[it] {
			r.t.Errorf("%v ran during the drain and is lost", it)
		}
	}
	if len(seen) != total {
		r.t.Errorf("%d items are accounted for, %d were submitted", len(seen), total)
	}
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
				if err != nil {
					t.Fatal(err)
				}
				items := []item{{"a", 0}, {"a", 1}, {"b", 0}, {"c", 0}}
				if err := l.SubmitAll(items, func(it item) []byte {
					return []byte(it.key)
				}); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if got := <-told; !errors.Is(got, row.want) || len(told) > 0 {
					t.Errorf("stopped with %v, want %v once", got, row.want)
				}
				left := l.Drain(t.Context())
				if want := []item{{"a", 1}, {"c", 0}}; !slices.Equal(left.Pending, want) ||
					left.Running != nil {
					t.Errorf("left %+v, want %v pending", left, want)
				}
				if err := l.SubmitAll(items, func(item) []byte {
					return nil
				}); !errors.Is(err, pipeline.ErrStopped) {
					t.Errorf("SubmitAll after a stop: %v", err)
				}
			})
		})
	}
}
