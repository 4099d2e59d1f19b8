package kafkadriver

import (
	"sync"

	"github.com/onceward/onceward/kafkaadapter"
)

// abandoned are the messages whose handlers still run in this process although their partition was
// given up. When the partition comes back to this member, in a newer generation, their claims are
// not taken over. Otherwise each rebalance would start one more handler of a message that is merely
// slow.
type abandoned struct {
	mu    sync.Mutex
	items map[*item]struct{}
	ids   map[messageKey]int
}

// messageKey is the key of a message: two topics may have the same ids.
type messageKey struct{ scope, id string }

func keyOf(m *kafkaadapter.Message) messageKey { return messageKey{m.Scope, m.ID} }

// add notes a message that may still be at work.
func (a *abandoned) add(it *item) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if it.over.Load() { // it has ended meanwhile
		return
	}
	if a.items == nil {
		a.items, a.ids = make(map[*item]struct{}), make(map[messageKey]int)
	}
	a.items[it] = struct{}{}
	a.ids[keyOf(it.msg)]++
}

// remove forgets a message whose claim has ended; it.over is set.
func (a *abandoned) remove(it *item) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.items[it]; !ok {
		return
	}
	delete(a.items, it)
	if a.ids[keyOf(it.msg)]--; a.ids[keyOf(it.msg)] == 0 {
		delete(a.ids, keyOf(it.msg))
	}
}

func (a *abandoned) has(key messageKey) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ids[key] > 0
}

// takesOver reports whether the message may be taken over from an older generation.
func (p *Partition) takesOver(it *item) bool {
	return p.cfg.Allow.TakeOver && !p.cfg.abandoned.has(keyOf(it.msg))
}
