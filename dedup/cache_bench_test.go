package dedup

import (
	"context"
	"sync"
	"testing"
	"time"
)

// BenchmarkCache measures the cache of finished keys beside what one writes by hand: an
// exact map behind a mutex, which has no bound.
func BenchmarkCache(b *testing.B) {
	const keys = 1 << 16
	ids, others := make([]ID, keys), make([]ID, keys)
	for i := range ids {
		ids[i], others[i] = randomID(), randomID()
	}
	c := filledCache(b, ids, nil)
	m := &mutexMap{by: make(map[ID]time.Time)}
	for _, id := range ids {
		m.put(id)
	}
	ctx, fp := context.Background(), Fingerprint{}
	hit := func(i int, want bool, ids []ID) {
		if _, ok := c.get(ctx, &ids[i%keys], &fp); ok != want {
			b.Fatalf("key %d found: %t", i, ok)
		}
	}
	each(b, "hit/cache", func(i int) { hit(i, true, ids) })
	each(b, "hit/map", func(i int) { m.get(ids[i%keys]) })
	each(b, "miss/cache", func(i int) { hit(i, false, others) })
	each(b, "miss/map", func(i int) { m.get(others[i%keys]) })
	parallel(b, "hit_parallel/cache", func(i int) { hit(i, true, ids) })
	parallel(b, "hit_parallel/map", func(i int) { m.get(ids[i%keys]) })

	large := filledCache(b, ids, make([]byte, 200))
	each(b, "hit_result_200B/cache", func(i int) { large.get(ctx, &ids[i%keys], &fp) })

	small := newCache(&Config{CacheBytes: 1 << 20, StoreTimeout: time.Second}, Memory(1), nil)
	each(b, "put_evicting/cache", func(i int) { finished(small, ids[i%keys], nil) })
	each(b, "put/map", func(i int) { m.put(ids[i%keys]) })
}

// finished is what the end of a Kafka message leaves behind.
func finished(c *cache, id ID, result []byte) {
	change := Change{
		ID: id, State: StateSucceeded, Attempt: 1, Fence: 1 << 40, Window: time.Hour, Result: result,
		Origin: Origin{SourceDigest: 1, Partition: 2, Offset: 3, Generation: 4},
	}
	c.done(&change, &Record{}, c.now())
}

// filledCache returns a cache that has all ids, and has just looked for Forgets.
func filledCache(b *testing.B, ids []ID, result []byte) *cache {
	b.Helper()
	life := &life{}
	life.init()
	c := newCache(&Config{CacheBytes: 64 << 20, StoreTimeout: time.Second}, Memory(1), life)
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
			i += 7919 // a prime: no two neighbours in memory
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
	by map[ID]time.Time
}

func (m *mutexMap) get(id ID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	until, ok := m.by[id]
	return ok && time.Now().Before(until)
}

func (m *mutexMap) put(id ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.by[id] = time.Now().Add(time.Hour)
}
