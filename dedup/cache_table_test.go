package dedup

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup/driver"
)

func randomID() (id driver.ID) {
	_, _ = rand.Read(id[:])
	return id
}

// neighbours returns keys that share a set and a tag, and differ in one byte.
func neighbours(n int) []driver.ID {
	ids := make([]driver.ID, n)
	first := randomID()
	for i := range ids {
		ids[i] = first
		ids[i][9] = byte(i)
	}
	return ids
}

// entryOf returns an entry whose every field follows from its key.
func entryOf(id driver.ID, epoch uint64) *cacheEntry {
	n := binary.LittleEndian.Uint64(id[8:])
	return &cacheEntry{
		id: id, deadline: time.Hour, expires: time.Duration(n), ended: time.Duration(n + 1),
		fence: n + 2, epoch: epoch,
		source: n + 3, offset: int64(n + 4), partition: int32(n), generation: int32(n + 1),
		attempt: int32(n + 2),
	}
}

// ofItsKey reports whether the entry is the one that entryOf made for id.
func (e *cacheEntry) ofItsKey(id driver.ID) bool {
	want := entryOf(id, e.epoch)
	want.more, want.deadline = e.more, e.deadline
	return *e == *want
}

func recordOf(e *cacheEntry, now time.Duration) (rec Record) {
	e.record(&rec, now)
	return rec
}

// The stated size of an entry is the size that the runtime allocates.
func TestCacheSizes(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("sizes are those of a 64-bit machine")
	}
	assert.EqualValues(t, cacheEntryBytes, unsafe.Sizeof(cacheEntry{}), "an entry")
	assert.EqualValues(t, cacheMoreBytes, unsafe.Sizeof(cacheMore{}), "its second part")
	assert.True(t, cacheSetBytes == 64, "a set has %d bytes, a cache line 64", cacheSetBytes)
	n := float64(cacheEntryBytes) + float64(cacheSetBytes)/cacheWays
	assert.GreaterOrEqual(t, n, 105.0, "bytes of an entry and its slot")
	assert.LessOrEqual(t, n, 106.0)
}

// A false duplicate is a lost message. So the whole key is compared, also among keys that agree in
// everything that leads to their slot.
func TestCacheTableIsExact(t *testing.T) {
	table := newCacheTable(minCacheBytes)
	ids := neighbours(2 * cacheWays)
	for _, id := range ids[:cacheWays] {
		table.put(entryOf(id, 0), 0)
	}
	for i, id := range ids {
		e := table.find(&id)
		assert.Equal(t, i < cacheWays, e != nil, "key %d", i)
		assert.False(t, e != nil && !e.ofItsKey(id), "key %d: %+v", i, e)
	}
}

func TestMatchTags(t *testing.T) {
	for range 1000 {
		var tags [8]byte
		_, _ = rand.Read(tags[:])
		for i, tag := range tags[:cacheWays] {
			m := matchTags(binary.LittleEndian.Uint64(tags[:]), tag)
			require.EqualValues(t, 1, m>>(8*i+7)&1, "%x", tags)
		}
	}
}

// A full set drops entries that had no hit.
func TestCacheTableKeepsWhatIsUsed(t *testing.T) {
	table := newCacheTable(minCacheBytes)
	ids := neighbours(100)
	hot := ids[:3]
	for i, id := range ids {
		table.put(entryOf(id, 0), 0)
		for n := range min(i+1, len(hot)) {
			require.NotNil(t, table.find(&hot[n]), "key %d is gone after %d others", n, i)
		}
	}
	kept := 0
	for _, id := range ids {
		if table.find(&id) != nil {
			kept++
		}
	}
	assert.Equal(t, cacheWays, kept)
}

// Expired entries are replaced before live ones.
func TestCacheTableReplacesTheDeadFirst(t *testing.T) {
	for name, kill := range map[string]func(*cacheTable, *cacheEntry){
		"expired": func(_ *cacheTable, e *cacheEntry) { e.deadline = time.Minute },
		"removed": func(table *cacheTable, e *cacheEntry) { table.remove(&e.id) },
	} {
		t.Run(name, func(t *testing.T) {
			table := newCacheTable(minCacheBytes)
			ids := neighbours(cacheWays + 1)
			for i, id := range ids[:cacheWays] {
				e := entryOf(id, table.epoch.Load())
				if table.put(e, 0); i == 5 {
					kill(table, e)
				}
				table.find(&id)
			}
			table.put(entryOf(ids[cacheWays], table.epoch.Load()), time.Minute)
			for i, id := range ids {
				assert.Equal(t, i != 5, table.find(&id) != nil, "key %d", i)
			}
		})
	}
}

func TestCacheTableEmpties(t *testing.T) {
	table := newCacheTable(minCacheBytes)
	asked, before := table.epoch.Load(), randomID()
	table.put(entryOf(before, asked), 0)
	e := table.find(&before)
	require.NotNil(t, e, "not there")
	require.True(t, table.alive(e, 0), "not there")
	table.empty()
	e = table.find(&before)
	assert.False(t, e != nil && table.alive(e, 0), "alive after the table was emptied")
	late := randomID()
	table.put(entryOf(late, asked), 0)
	assert.Nil(t, table.find(&late), "what was asked for before is added after")
	table.put(entryOf(late, table.epoch.Load()), 0)
	e = table.find(&late)
	require.NotNil(t, e, "what was asked for since is not added")
	assert.True(t, table.alive(e, 0), "what was asked for since is not added")
}

// One goroutine adds an entry while another one forgets its key. Whichever comes first, the key is
// absent when both have finished.
func TestCacheTableForgetsWhatIsBeingAdded(t *testing.T) {
	table := newCacheTable(minCacheBytes)
	id := randomID()
	for n := range 20_000 {
		e := entryOf(id, table.epoch.Load())
		var wg sync.WaitGroup
		wg.Go(func() { table.put(e, 0) })
		wg.Go(func() { table.remove(&id) })
		wg.Wait()
		require.Nil(t, table.find(&id), "round %d: added after the Forget", n)
	}
}

// Readers, writers, Forgets and emptyings run at once on few sets. Each entry that a reader finds
// is the whole record of its key, and none that is found alive is older than the last emptying.
func TestCacheTableUnderLoad(t *testing.T) {
	table := newCacheTable(minCacheBytes)
	ids := append(neighbours(3*cacheWays), neighbours(3*cacheWays)...)
	until := time.Now().Add(500 * time.Millisecond)
	var readers, writers sync.WaitGroup
	var over atomic.Bool
	found := make([]int, 4)
	for r := range found {
		readers.Go(func() {
			// Until then, and until it has found something: it may get no processor for that time.
			for i := r; time.Now().Before(until) ||
				found[r] == 0 && time.Since(until) < time.Minute; i++ {
				id := ids[i*7%len(ids)]
				floor := table.floor.Load()
				e := table.find(&id)
				if e == nil || !table.alive(e, 0) {
					continue
				}
				found[r]++
				if !assert.True(t, e.ofItsKey(id) && e.epoch >= floor,
					"%x: %+v below %d", id, e, floor) {
					return
				}
			}
		})
	}
	for w := range 3 {
		writers.Go(func() {
			for i := w; !over.Load(); i++ {
				id := ids[i*5%len(ids)]
				e := entryOf(id, table.epoch.Load())
				if i%3 == 0 {
					e.more = &cacheMore{result: make([]byte, i%1000)}
				}
				table.put(e, 0)
				switch {
				case i%50 == 0:
					table.remove(&id)
				case i%1000 == 1:
					table.empty()
				}
			}
		})
	}
	readers.Wait()
	over.Store(true)
	writers.Wait()
	for r, n := range found {
		assert.NotZero(t, n, "reader %d found nothing", r)
	}
	assert.Equal(t, table.bytes.Load(), occupied(table))
}

// occupied adds up what is there.
func occupied(table *cacheTable) int64 {
	n := int64(unsafe.Sizeof(*table)) + int64(len(table.sets)*cacheSetBytes)
	for i := range table.sets {
		for j := range table.sets[i].slots {
			n += table.sets[i].slots[j].Load().size()
		}
	}
	return n
}

// The entries fill the bound of the memory and do not exceed it, whatever they carry.
func TestCacheBytesAreTheMemory(t *testing.T) {
	const budget = 4 << 20
	for _, row := range []struct {
		name    string
		entries int
		rec     func(i int) Record
	}{
		{"bare", 80_000, func(int) Record { return Record{} }},
		{"fingerprints and labels", 50_000, func(i int) Record {
			return Record{Fingerprint: driver.Fingerprint{1, byte(i)},
				Label: fmt.Sprintf("label %d", i)}
		}},
		{"results", 20_000, func(i int) Record {
			return Record{Result: bytes.Repeat([]byte{1}, i%(cacheResult+1))}
		}},
		{"small results", 60_000, func(i int) Record {
			return Record{Result: bytes.Repeat([]byte{1}, i%20)}
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			before := heapBytes()
			table := newCacheTable(budget)
			for i := range row.entries {
				rec := row.rec(i)
				e := newCacheEntry(randomID(), &rec, 0)
				e.deadline = time.Hour
				table.put(e, 0)
			}
			used, counted := heapBytes()-before, table.bytes.Load()
			t.Logf("%d bytes counted, %d used", counted, used)
			assert.LessOrEqual(t, counted, int64(budget))
			assert.Equal(t, occupied(table), counted)
			assert.LessOrEqual(t, used, int64(budget*105/100))
			assert.GreaterOrEqual(t, used, int64(budget*90/100))
			runtime.KeepAlive(table)
		})
	}
}

// heapBytes is the memory in use once everything that was dropped has been swept. Leftovers
// of other tests in pools are gone after the second collection.
func heapBytes() int64 {
	var m runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// An entry keeps the whole record, and none of the caller's memory.
func TestCacheEntryIsTheRecord(t *testing.T) {
	result := []byte("result")
	rec := Record{
		State: driver.StateFailed, Attempt: 3, Fence: 77, Result: result, NoResult: true,
		Fingerprint: driver.Fingerprint{1, 2},
		Origin:      driver.Origin{SourceDigest: 5, Partition: 6, Offset: 7, Generation: 8},
		Label:       "label", Age: time.Second, Remaining: time.Minute,
	}
	e := newCacheEntry(randomID(), &rec, 10*time.Second)
	result[0] = 'x'
	got := recordOf(e, 15*time.Second)
	want := rec
	want.Result, want.Age, want.Remaining = []byte("result"), 6*time.Second, 55*time.Second
	assert.Equal(t, fmt.Sprintf("%+v", want), fmt.Sprintf("%+v", got))
	got.Result[0] = 'x'
	assert.Equal(t, "result", string(recordOf(e, 0).Result), "a caller wrote into the cache")
}
