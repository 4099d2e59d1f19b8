package pipeline_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/kafkaadapter/internal/pipeline"
)

// referee watches a random run of queues and complains about everything they promise
// not to do.
type referee struct {
	t       *testing.T
	workers int

	mu       sync.Mutex
	rnd      *rand.Rand
	running  map[string]int // key to the item inside process
	next     map[string]int // key to the item that must run next
	finished map[item]bool
	gone     bool // the last Drain has answered: nothing may start
}

func (r *referee) process(ctx context.Context, it item) pipeline.Decision {
	r.enter(it)
	d, retry := r.plan()
	select {
	case <-time.After(d):
	case <-ctx.Done():
		retry = true
	}
	return r.exit(it, retry)
}

func (r *referee) plan() (d time.Duration, retry bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Duration(r.rnd.IntN(20)) * time.Millisecond, r.rnd.IntN(4) == 0
}

func (r *referee) enter(it item) {
	r.mu.Lock()
	defer r.mu.Unlock()
	other, busy := r.running[it.key]
	assert.False(r.t, busy, "%v started while %d of its key runs", it, other)
	assert.Equal(r.t, r.next[it.key], it.n, "the next one of key %s", it.key)
	r.running[it.key] = it.n
	assert.LessOrEqual(r.t, len(r.running), r.workers, "items that run at a time")
	assert.False(r.t, r.gone, "%v started after the drain", it)
}

func (r *referee) exit(it item, retry bool) pipeline.Decision {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.running, it.key)
	if retry {
		return pipeline.RetryAfter(time.Duration(r.rnd.IntN(30)-5) * time.Millisecond)
	}
	r.finished[it] = true
	r.next[it.key]++
	return pipeline.Done()
}

func TestKeyQueuesKeepTheirPromises(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { randomRun(t, seed) })
		})
	}
}

func randomRun(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	r := &referee{
		t: t, workers: 1 + rnd.IntN(6), rnd: rand.New(rand.NewPCG(seed, 2)),
		running: map[string]int{}, next: map[string]int{}, finished: map[item]bool{},
	}
	l := newKeyQueues(t, pipeline.KeyQueuesConfig{Workers: r.workers}, r.process)
	keys, count := 1+rnd.IntN(30), map[string]int{}
	total := 100 + rnd.IntN(400)
	for range total {
		key := strconv.Itoa(rnd.IntN(keys))
		submit(t, l, item{key, count[key]})
		count[key]++
		time.Sleep(time.Duration(rnd.IntN(3)) * time.Millisecond)
	}
	time.Sleep(time.Duration(rnd.IntN(1000)) * time.Millisecond)
	if seed%3 == 0 {
		time.Sleep(time.Hour) // everything can finish
	}
	account(t, r, l, time.Duration(rnd.IntN(25))*time.Millisecond, total)
}

// account drains and checks that finished + pending + running is what was submitted,
// each exactly once and in order.
func account(t *testing.T, r *referee, l *pipeline.KeyQueues[item],
	patience time.Duration, total int) {
	seen := map[item]string{}
	pending := map[string]int{} // key to its last pending item
	claim := func(it item, as string) {
		before, twice := seen[it]
		assert.False(t, twice, "%v is %s and %s", it, before, as)
		seen[it] = as
	}
	left := l.Drain(within(t, patience))
	r.mu.Lock()
	r.gone = true
	r.mu.Unlock()
	rest := l.Drain(within(t, time.Hour))
	assert.Nil(t, rest.Running, "still running after an hour")
	for it := range r.finished {
		claim(it, "finished")
	}
	for _, it := range append(rest.Pending, left.Pending...) {
		claim(it, "pending")
		last, ok := pending[it.key]
		assert.True(t, !ok || it.n > last, "pending %v after %d of its key", it, last)
		pending[it.key] = it.n
	}
	for _, it := range left.Running {
		assert.NotEmpty(t, seen[it], "%v ran during the drain and is lost", it)
	}
	assert.Len(t, seen, total, "items that are accounted for")
	assert.Zero(t, l.Stats(), "after the drain")
}

// Real time and real parallelism, for the race detector.
func TestKeyQueuesUnderConcurrency(t *testing.T) {
	const keys, perKey = 50, 200
	var mu sync.Mutex
	next := make([]int, keys)
	var wg sync.WaitGroup
	wg.Add(keys * perKey)
	l := newKeyQueues(t, pipeline.KeyQueuesConfig{Workers: 8}, func(_ context.Context,
		it item) pipeline.Decision {
		k, _ := strconv.Atoi(it.key)
		mu.Lock()
		defer mu.Unlock()
		assert.Equal(t, next[k], it.n, "the next one of key %s", it.key)
		next[k]++
		wg.Done()
		return pipeline.Done()
	})
	for k := range keys {
		go func() {
			for n := range perKey {
				submit(t, l, item{strconv.Itoa(k), n})
			}
		}()
	}
	wg.Wait()
	assert.Zero(t, l.Drain(t.Context()))
}

// BenchmarkKeyQueues submits one item per iteration, in bursts as an intake does.
func BenchmarkKeyQueues(b *testing.B) {
	for _, bench := range []struct {
		name  string
		order pipeline.Order
		keys  int
	}{
		{"order=key/keys=1", pipeline.ByKey, 1},
		{"order=key/keys=100", pipeline.ByKey, 100},
		{"order=key/keys=100000", pipeline.ByKey, 100000},
		{"order=partition", pipeline.ByPartition, 100},
		{"order=none", pipeline.Unordered, 100},
	} {
		b.Run(bench.name, func(b *testing.B) {
			var wg sync.WaitGroup
			l, err := pipeline.NewKeyQueues(context.Background(),
				pipeline.KeyQueuesConfig{Order: bench.order},
				func(context.Context, int) pipeline.Decision { wg.Done(); return pipeline.Done() })
			if err != nil {
				b.Fatal(err)
			}
			keys := make([][]byte, bench.keys)
			for i := range keys {
				keys[i] = fmt.Appendf(nil, "customer-%d", i)
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				wg.Add(1)
				if err := l.Submit(keys[i%len(keys)], i); err != nil {
					b.Fatal(err)
				}
				if i++; i%256 == 0 {
					wg.Wait()
				}
			}
			wg.Wait()
			l.Drain(b.Context())
		})
	}
}
