package dedup

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/internal/drain"
)

// BenchmarkCache compares the cache of finished keys with what one writes by hand: an exact
// map behind a mutex, which has no bound and no record. The smaller number of keys fits into
// a processor's own cache. The larger number measures the memory.
func BenchmarkCache(b *testing.B) {
	for _, keys := range []int{1 << 13, 1 << 16} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) { benchmarkCache(b, keys) })
	}
}

func benchmarkCache(b *testing.B, keys int) {
	ids, others := make([]driver.ID, keys), make([]driver.ID, keys)
	for i := range ids {
		ids[i], others[i] = randomID(), randomID()
	}
	c := filledCache(b, ids, nil)
	m := &mutexMap{by: make(map[driver.ID]time.Time)}
	for _, id := range ids {
		m.put(id)
	}
	ctx, fp := context.Background(), driver.Fingerprint{}
	kept := 0
	for i := range ids {
		if c.table.find(&ids[i]) != nil {
			kept++
		}
	}
	if kept < keys*98/100 {
		b.Fatalf("%d of %d keys are kept", kept, keys)
	}
	each(b, "hit/cache", func(i int) { c.get(ctx, &ids[i%keys], &fp) })
	each(b, "hit/map", func(i int) { m.get(ids[i%keys]) })
	each(b, "miss/cache", func(i int) { c.get(ctx, &others[i%keys], &fp) })
	each(b, "miss/map", func(i int) { m.get(others[i%keys]) })
	parallel(b, "hit_parallel/cache", func(i int) { c.get(ctx, &ids[i%keys], &fp) })
	parallel(b, "hit_parallel/map", func(i int) { m.get(ids[i%keys]) })

	results := filledCache(b, ids, make([]byte, 200))
	each(b, "hit_result_200B/cache", func(i int) { results.get(ctx, &ids[i%keys], &fp) })

	small := newCache(&Config{CacheBytes: keys * 50, StoreTimeout: time.Second}, Memory(1), nil)
	each(b, "put_evicting/cache", func(i int) { finished(small, ids[i%keys], nil) })
	each(b, "put/map", func(i int) { m.put(ids[i%keys]) })
}

// finished puts the entry into the cache that the end of a Kafka message leaves there.
func finished(c *cache, id driver.ID, result []byte) {
	change := driver.Finish{
		ID: id, State: driver.StateSucceeded, Attempt: 1, Fence: 1 << 40, Window: time.Hour,
		Result: result,
		Origin: driver.Origin{SourceDigest: 1, Partition: 2, Offset: 3, Generation: 4},
	}
	c.done(&change, &Record{}, c.now())
}

// filledCache returns a cache that has all ids, and has just looked for Forgets.
func filledCache(b *testing.B, ids []driver.ID, result []byte) *cache {
	b.Helper()
	life := &drain.Group{}
	life.Init()
	size := 256 + 2*len(result) // for each key; twice what it takes, so that few are evicted
	c := newCache(&Config{CacheBytes: len(ids) * size, StoreTimeout: time.Second}, Memory(1), life)
	if !c.watch.await(b.Context()) {
		b.Fatal("no look")
	}
	for _, id := range ids {
		finished(c, id, result)
	}
	return c
}

func each(b *testing.B, name string, do func(i int)) {
	b.Run(name, func(b *testing.B) {
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			do(i)
			i += 7919 // a prime: no two neighbors in memory
		}
	})
}

func parallel(b *testing.B, name string, do func(i int)) {
	b.Run(name, func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for i := 0; pb.Next(); i += 7919 {
				do(i)
			}
		})
	})
}

type mutexMap struct {
	mu sync.Mutex
	by map[driver.ID]time.Time
}

func (m *mutexMap) get(id driver.ID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	until, ok := m.by[id]
	return ok && time.Now().Before(until)
}

func (m *mutexMap) put(id driver.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.by[id] = time.Now().Add(time.Hour)
}
