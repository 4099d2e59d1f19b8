package dedup

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/internal/drain"
)

const (
	// cacheLife bounds the life of an entry that came from a store, and of every entry
	// when the store does not report Forgets.
	cacheLife = time.Minute
	// cacheResult bounds the results worth keeping in memory.
	cacheResult = 1 << 10
)

// cache remembers finished keys exactly. A finished key stays finished within its window, so a
// hit needs no round trip; nothing else is cached. A nil cache remembers nothing.
type cache struct {
	table *cacheTable
	watch *forgetWatch // nil when the store does not report Forgets
	start time.Time
}

// newCache returns the cache that cfg asks for, or nil.
func newCache(cfg *Config, store Store, life *drain.Group) *cache {
	if cfg.CacheBytes == 0 {
		return nil
	}
	c := &cache{table: newCacheTable(cfg.CacheBytes), start: time.Now()}
	if counter, ok := store.(driver.ForgetCounter); ok {
		c.watch = newForgetWatch(counter, cfg, life, c)
	}
	return c
}

// clock returns the monotonic time since the cache was made.
func (c *cache) clock() time.Duration { return time.Since(c.start) }

// stamp is when a question was asked.
type stamp struct {
	epoch uint64
	at    time.Duration
}

// now returns the stamp to pass to learn and done; take it before asking the store.
func (c *cache) now() stamp {
	if c == nil {
		return stamp{}
	}
	return stamp{c.table.epoch.Load(), c.clock()}
}

// holds reports whether the cache knows, without asking the store, that a key is done, and
// whether the key is bound to another fingerprint. It allocates nothing and starts no look, so
// get may find a key for which holds says false.
func (c *cache) holds(id *driver.ID, fp *driver.Fingerprint) (mismatch, done bool) {
	if c == nil {
		return false, false
	}
	read := c.watch.readAt() // before the entry, as in get
	e := c.table.find(id)
	if e == nil {
		return false, false
	}
	if now := c.clock(); !c.table.alive(e, now) || !c.watch.fresh(read, now) {
		return false, false
	}
	return *fp != (driver.Fingerprint{}) && e.conflicts(*fp), true
}

// get answers Duplicate, or Mismatch, for a key known to be done. It waits for the store
// only when it has a hit and nobody has asked for Forgets within the last second.
func (c *cache) get(ctx context.Context, id *driver.ID,
	fp *driver.Fingerprint) (ans driver.Answer, hit bool) {
	if c == nil {
		return ans, false
	}
	for range 2 {
		// Read this before the entry: a goroutine empties the table before it publishes a newer
		// time, so an entry that is found after that time was read has survived that look.
		read := c.watch.readAt()
		e, now := c.table.find(id), c.clock()
		if e == nil || !c.table.alive(e, now) {
			break
		}
		if c.watch.covers(read, now) {
			ans.Outcome = Duplicate
			e.record(&ans.Record, now)
			if e.conflicts(*fp) {
				ans.Outcome = Mismatch
			}
			return ans, true
		}
		if !c.watch.await(ctx) {
			break
		}
	}
	return ans, false
}

// answer does the work of get for a caller that keeps the answer. For a miss it returns nil, and
// allocates nothing.
func (c *cache) answer(ctx context.Context, id *driver.ID, fp *driver.Fingerprint) *driver.Answer {
	if c == nil {
		return nil
	}
	ans, hit := c.get(ctx, id, fp)
	if !hit {
		return nil
	}
	kept := ans
	return &kept
}

// learn adds what the store said of a key, if that is final. The record's remaining
// life is counted from before the question, so that the entry ends before the record.
func (c *cache) learn(id driver.ID, ans *driver.Answer, asked stamp) {
	if c == nil || ans.Err != nil || !terminal(ans.Record.State) {
		return
	}
	c.add(id, &ans.Record, cacheLife, asked)
}

// done adds a key that this process finished. stored is what the store holds now. If the
// change was sent more than once, stored may be older than sent. It may also have fields that
// the change leaves empty.
func (c *cache) done(change *driver.Finish, stored *Record, sent stamp) {
	if c == nil || !terminal(change.State) {
		return
	}
	rec := Record{
		State: change.State, Attempt: change.Attempt, Fence: change.Fence, Result: change.Result,
		NoResult:    change.NoResult,
		Fingerprint: change.Fingerprint, Origin: change.Origin, Label: change.Label,
		Remaining: change.Window,
	}
	if stored.State == change.State {
		fillRecord(&rec, stored)
	}
	life := cacheLife
	if c.watch != nil {
		life = change.Window
	}
	c.add(change.ID, &rec, life, sent)
}

// fillRecord takes from stored what the change leaves empty, and the age of a record that was
// written earlier.
func fillRecord(r, stored *Record) {
	r.Age = stored.Age
	if stored.Remaining > 0 {
		r.Remaining = min(r.Remaining, stored.Remaining)
	}
	if stored.Fence != 0 {
		r.Fence, r.Attempt = stored.Fence, stored.Attempt
	}
	if r.Fingerprint == (driver.Fingerprint{}) {
		r.Fingerprint = stored.Fingerprint
	}
	if r.Origin == (driver.Origin{}) {
		r.Origin = stored.Origin
	}
	if r.Label == "" {
		r.Label = stored.Label
	}
}

// add keeps a record for at most life, and never longer than the store does.
func (c *cache) add(id driver.ID, rec *Record, life time.Duration, asked stamp) {
	life = min(rec.Remaining-margin(rec.Remaining), life)
	if life <= 0 || len(rec.Result) > cacheResult {
		return
	}
	e := newCacheEntry(id, rec, asked.at)
	e.deadline, e.epoch = asked.at+life, asked.epoch
	c.table.put(e, c.clock())
}

// forget drops a key. Answers to questions that are under way are not added afterwards.
func (c *cache) forget(id driver.ID) {
	if c != nil {
		c.table.remove(&id)
	}
}

const (
	// forgetsEvery is the longest time since the newest look at a store's Forgets for which a hit
	// is served. So another process's Forget can go unnoticed here for that long.
	forgetsEvery = time.Second
	// forgetsAhead is when a busy cache looks again, so that its hits never wait. It is
	// also the pause after a look that failed.
	forgetsAhead = forgetsEvery / 2
)

// forgetWatch asks the store whether another process has forgotten a key, and empties the
// cache if so. It asks only while there are hits to serve, and has a goroutine only while it
// asks. For a store that cannot tell, the watch is nil.
type forgetWatch struct {
	store   driver.ForgetCounter
	cache   *cache
	timeout time.Duration
	life    *drain.Group
	failed  func(Event) // may be nil

	// last is when the newest answer was asked for; an answer is as old as its question.
	last atomic.Int64
	// next is when to look again: never while somebody looks.
	next atomic.Int64

	mu     sync.Mutex
	newest *forgetLook
	// known is false before the first answer, which counts as a change: keys of earlier entries
	// may have been forgotten before it.
	known bool
	value uint64
}

// forgetLook is one question to the store.
type forgetLook struct {
	done chan struct{}
	ok   bool // set before done is closed
}

func newForgetWatch(store driver.ForgetCounter, cfg *Config, life *drain.Group,
	c *cache) *forgetWatch {
	w := &forgetWatch{store: store, cache: c, timeout: cfg.StoreTimeout, life: life,
		failed: cfg.Observer.StoreError}
	w.last.Store(int64(-forgetsEvery))
	return w
}

// readAt returns when the newest answer was asked for.
func (w *forgetWatch) readAt() time.Duration {
	if w == nil {
		return 0
	}
	return time.Duration(w.last.Load())
}

// covers reports whether a hit may be served at the time now if the store was last asked at the
// time read. It starts the next look early, so that hits need not wait for it.
func (w *forgetWatch) covers(read, now time.Duration) bool {
	if w == nil {
		return true
	}
	age := now - read
	if age >= forgetsAhead && now >= time.Duration(w.next.Load()) {
		w.look()
	}
	return age < forgetsEvery
}

// fresh reports whether read is so recent that covers serves a hit at now and starts no
// look.
func (w *forgetWatch) fresh(read, now time.Duration) bool {
	return w == nil || now-read < forgetsAhead
}

// await waits for the newest look, which is under way or has just ended, and reports
// whether it succeeded. All callers wait for the same look instead of making a round trip
// each.
func (w *forgetWatch) await(ctx context.Context) bool {
	look := w.look()
	select {
	case <-look.done:
		return look.ok
	case <-ctx.Done():
		return false
	}
}

// look begins a look when it is time for one, and returns the newest. Soon after a
// failure it returns the failed look: a store that hangs must not delay every hit.
func (w *forgetWatch) look() *forgetLook {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.cache.clock()
	if now >= time.Duration(w.next.Load()) {
		w.newest = &forgetLook{done: make(chan struct{})}
		w.next.Store(math.MaxInt64)
		w.life.Begin()
		go w.ask(w.newest, now)
	}
	return w.newest
}

// ask runs under no caller's context: several callers may wait for it, or none.
func (w *forgetWatch) ask(look *forgetLook, sent time.Duration) {
	defer w.life.End()
	ctx, cancel := context.WithTimeout(context.Background(), w.timeout)
	defer cancel()
	value, err := w.store.Forgets(ctx)
	if err != nil {
		fire(w.failed, Event{Err: err})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	defer close(look.done)
	if err != nil {
		w.next.Store(int64(w.cache.clock() + forgetsAhead))
		return
	}
	if !w.known || value != w.value {
		w.cache.table.empty() // before last lets hits be served again
	}
	w.known, w.value = true, value
	w.last.Store(int64(sent))
	w.next.Store(int64(sent + forgetsAhead))
	look.ok = true
}
