package dedup

import (
	"bytes"
	"container/list"
	"sync"
	"time"
)

const (
	// cacheLife bounds an entry's life, and with it how long another process's Forget
	// can go unnoticed here.
	cacheLife = time.Minute
	// cacheResult bounds the results worth keeping in memory.
	cacheResult = 1 << 10
)

// cache remembers finished keys exactly, least recently used first out. Finished is
// terminal within its window, so a hit needs no round trip; nothing else is cached. A
// nil cache remembers nothing.
type cache struct {
	capacity int

	mu    sync.Mutex
	by    map[ID]*list.Element
	order list.List // of *cached, most recently used first
	// epoch counts Forgets. What was asked for under an older epoch is not added: its
	// answer may have left the store before the Forget got there.
	epoch uint64
}

type cached struct {
	id       ID
	rec      Record
	learnt   time.Time
	deadline time.Time
}

func newCache(capacity int) *cache {
	if capacity == 0 {
		return nil
	}
	return &cache{capacity: capacity, by: make(map[ID]*list.Element)}
}

// stamp is when a question was asked.
type stamp struct {
	epoch uint64
	at    time.Time
}

// now returns the stamp to pass to learn and done; take it before asking the store.
func (c *cache) now() stamp {
	if c == nil {
		return stamp{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return stamp{c.epoch, time.Now()}
}

// get answers Duplicate, or Mismatch, for a key known to be done.
func (c *cache) get(id ID, fp Fingerprint) (Answer, bool) {
	if c == nil {
		return Answer{}, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	el := c.by[id]
	if el == nil {
		return Answer{}, false
	}
	e := el.Value.(*cached) //nolint:errcheck // the list holds nothing else
	now := time.Now()
	if !now.Before(e.deadline) {
		c.remove(el)
		return Answer{}, false
	}
	c.order.MoveToFront(el)
	rec := e.rec
	rec.Result = bytes.Clone(rec.Result)
	rec.Age += now.Sub(e.learnt)
	rec.Remaining -= now.Sub(e.learnt)
	outcome := Duplicate
	if rec.Fingerprint.Conflicts(fp) {
		outcome = Mismatch
	}
	return Answer{Outcome: outcome, Record: rec}, true
}

// learn adds what the store said of a key, if that is final. The record's remaining
// life is counted from before it was asked for, so that the entry ends first.
func (c *cache) learn(id ID, ans Answer, asked stamp) {
	if c == nil || ans.Err != nil || !ans.Record.State.terminal() {
		return
	}
	c.add(id, ans.Record, asked)
}

// done adds a key that this process finished.
func (c *cache) done(change Change, sent stamp) {
	if c == nil || !change.State.terminal() {
		return
	}
	c.add(change.ID, Record{
		State: change.State, Attempt: change.Attempt, Fence: change.Fence, Result: change.Result, NoResult: change.NoResult,
		Fingerprint: change.Fingerprint, Origin: change.Origin, Label: change.Label, Remaining: change.Window,
	}, sent)
}

func (c *cache) add(id ID, rec Record, asked stamp) {
	life := min(rec.Remaining-margin(rec.Remaining), cacheLife)
	if life <= 0 || len(rec.Result) > cacheResult {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if asked.epoch != c.epoch {
		return
	}
	rec.Result = bytes.Clone(rec.Result)
	e := &cached{id: id, rec: rec, learnt: asked.at, deadline: asked.at.Add(life)}
	if el := c.by[id]; el != nil {
		el.Value = e
		c.order.MoveToFront(el)
		return
	}
	c.by[id] = c.order.PushFront(e)
	if c.order.Len() > c.capacity {
		c.remove(c.order.Back())
	}
}

// forget drops a key, and whatever is being asked for right now.
func (c *cache) forget(id ID) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch++
	if el := c.by[id]; el != nil {
		c.remove(el)
	}
}

func (c *cache) remove(el *list.Element) {
	delete(c.by, c.order.Remove(el).(*cached).id) //nolint:errcheck // the list holds nothing else
}
