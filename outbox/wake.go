package outbox

import "sync"

// Notify says that there are messages: it wakes the relays of this process that use this Outbox
// and, where a [Notifier] runs, those of other processes that listen. Call it after the commit of
// a transaction with [Outbox.InsertTx]: before it, there is nothing to be seen. It never blocks
// and asks nothing of the database. Without it messages are found by polling.
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

// Wake wakes the relays of this process alone. It is for a program that another process has woken,
// whose Notify would wake that process in turn: outbox/pgxlisten calls it for each NOTIFY. It never
// blocks.
func (o *Outbox) Wake() {
	if o != nil {
		o.relays.ring()
	}
}

// Channel is the name under which a [Notifier] sends: that of the table and "_wake", shortened
// where it is long. Outboxes of several schemas may share one, and wake each other's relays for
// nothing. To LISTEN its name must be quoted.
func (o *Outbox) Channel() string {
	if o == nil {
		return ""
	}
	return o.channel
}

// bells are rung together. Each remembers one ring until it is heard.
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
		default: // it has been told already
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
