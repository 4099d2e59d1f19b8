package outbox

import "sync"

// Notify says that there are messages: it wakes the relays of this process that use this Outbox
// and, where a [Notifier] runs, those of other processes that listen. Call it after the commit of a
// transaction with [Outbox.InsertTx]: before the commit relays see nothing. It never blocks and
// does not use the database. Without it relays find messages by polling.
func (o *Outbox) Notify() {
	if o == nil {
		return
	}
	if n := o.scheduled.Load(); o.notified.Swap(n) != n {
		o.askDue.Store(true)
	}
	o.relays.ring()
	o.notifiers.ring()
}

// Wake wakes only the relays of this process. It is for a program that another process has woken:
// its Notify would wake that process in turn. outbox/pgxlisten calls it for each NOTIFY. It never
// blocks.
func (o *Outbox) Wake() {
	if o != nil {
		o.relays.ring()
	}
}

// Channel is the name under which a [Notifier] sends: the table's name and "_wake", shortened where
// it is long. Outboxes of several schemas may share one, and then wake each other's relays
// needlessly. Quote the name in LISTEN.
func (o *Outbox) Channel() string {
	if o == nil {
		return ""
	}
	return o.channel
}

// bells are rung together. Each remembers one ring until it is received.
type bells struct {
	mu  sync.Mutex
	all map[chan struct{}]struct{}
}

func (b *bells) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for one := range b.all {
		select {
		case one <- struct{}{}:
		default: // it has a ring already
		}
	}
}

// add returns a bell that is rung until remove is called.
func (b *bells) add() (bell <-chan struct{}, remove func()) {
	c := make(chan struct{}, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all == nil {
		b.all = map[chan struct{}]struct{}{}
	}
	b.all[c] = struct{}{}
	return c, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.all, c)
	}
}
