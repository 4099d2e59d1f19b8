package owned

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redistest"
)

// twoParts is a source of two partitions.
func twoParts(number int32) Partition {
	return Partition{Source: only.Source, Number: number, Count: 2, Generation: 1}
}

// at is a request for a key of another partition.
func at(r driver.ClaimRequest, number int32) driver.ClaimRequest {
	r.Origin.Partition = number
	return r
}

// TestABatchWaitsForNoRelease: two batches over the same partitions in opposite orders, and a
// release of each, would deadlock: each batch holds one gate, and waits for the other gate behind a
// release, which waits for the other batch. So a partition that is being released is elsewhere.
func TestABatchWaitsForNoRelease(t *testing.T) {
	b := redistest.Open(t, "miniredis")
	o := storyOptions()
	o.Prefix = b.Prefix
	s := open(t, b, o)
	first, second := ready(t, s, twoParts(0)), ready(t, s, twoParts(1))
	first.gate.RLock() // by another batch, which is on its way
	released := make(chan error)
	go func() { released <- first.Release(t.Context()) }()
	for first.gate.TryRLock() { // until the release waits
		first.gate.RUnlock()
		runtime.Gosched()
	}
	answers := make(chan []driver.Answer)
	go func() {
		answers <- s.Claim(t.Context(), []driver.ClaimRequest{at(request(1), 1), at(request(2), 0)})
	}()
	select {
	case got := <-answers:
		assert.Equal(t, dedup.Acquired, got[0].Outcome, "want a claim, and one that is elsewhere")
		assert.Equal(t, dedup.InFlight, got[1].Outcome)
		if assert.True(t, second.gate.TryLock(),
			"the gate of the partition that is not released is still held") {
			second.gate.Unlock()
		}
		first.gate.RUnlock()
	case <-time.After(10 * time.Second):
		t.Error("a batch waits for a release")
		first.gate.RUnlock()
		<-answers
	}
	must(t, <-released)
}

// TestNobodyIsCalledUnderTheGate: a hook may release the partition, and may panic.
func TestNobodyIsCalledUnderTheGate(t *testing.T) {
	story(t, func(w *world) {
		var o *Ownership
		told, fatal := 0, false
		w.opts.Observer = dedup.Observer{Filtered: func(dedup.Event) {
			told++
			if !assert.True(w, o.gate.TryLock(), "the hook was called under the gate") {
				return
			}
			o.gate.Unlock()
			if fatal {
				panic("of a hook")
			}
		}}
		s := w.process()
		o = w.own(s)
		w.wants("a new key", w.claim(s, request(1)), dedup.Acquired, 1)
		w.wants("the same key", w.claim(s, request(1)), dedup.InFlight, 1)
		assert.Equal(w, 1, told)
		panics := func(claim func()) {
			defer func() {
				assert.NotNil(w, recover(), "the panic was swallowed")
				if !o.gate.TryLock() {
					w.Error("a panic has left the gate locked")
					o.gate.RUnlock()
					return
				}
				o.gate.Unlock()
			}()
			claim()
		}
		fatal = true
		panics(func() { w.claim(s, request(2)) })
		fatal = false
		s.between = func() { panic("on the way, as of a hook of the filter's") }
		panics(func() { w.claim(s, request(3)) })
		s.between = nil
		w.wants("the next key", w.claim(s, request(4)), dedup.Acquired, 1)
		must(w, o.Release(w.Context()))
	})
}

// TestAReleaseLooksAtItsOwnKeys: a release does not look at the keys of other partitions. A process
// that gives up a hundred partitions would look at all keys a hundred times.
func TestAReleaseLooksAtItsOwnKeys(t *testing.T) {
	b := redistest.Open(t, "miniredis")
	o := storyOptions()
	o.Prefix = b.Prefix
	s := open(t, b, o)
	first := ready(t, s, twoParts(0))
	second := ready(t, s, twoParts(1))
	mine, other := request(1), at(request(2), 1)
	for _, a := range s.Claim(t.Context(), []driver.ClaimRequest{mine, other}) {
		assert.Equal(t, dedup.Acquired, a.Outcome, "a new key")
	}
	its := s.table.shard(s.table.hash(&mine.ID))
	for i := range s.table.shards {
		if sh := &s.table.shards[i]; sh != its {
			sh.mu.Lock()
		}
	}
	released := make(chan error, 1)
	go func() { released <- first.Release(t.Context()) }()
	select {
	case err := <-released:
		must(t, err)
	case <-time.After(10 * time.Second):
		t.Error("the release looks at keys of others")
	}
	for i := range s.table.shards {
		if sh := &s.table.shards[i]; sh != its {
			sh.mu.Unlock()
		}
	}
	a := s.Lookup(t.Context(),
		[]driver.ID{mine.ID})[0]
	assert.Equal(t, driver.StateInProgress, a.Record.State,
		"what still runs is a claim of the inner store")
	assert.NoError(t, a.Err)
	assert.Equal(t, 1, second.Stats().InFlight, "the other partition")
}
