package queuetest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/onceward/onceward/queue"
)

// Broker is a broker in memory, with one queue. It is for tests of handlers, and shows what the
// suite expects. It redelivers a message that is not acknowledged within the time given to
// [NewBroker]. It delivers no message before the older ones of its key are acknowledged. It is safe
// for concurrent use.
type Broker struct {
	wait time.Duration

	mu       sync.Mutex
	messages []*held
	parked   []string
	changed  chan struct{} // closed when there may be something to fetch
}

// held is a message that is not acknowledged.
type held struct {
	Message
	visible    time.Time
	deliveries int // only the last one may set visible
}

// NewBroker returns an empty broker. A message that is not acknowledged within ackWait is
// redelivered.
func NewBroker(ackWait time.Duration) *Broker {
	return &Broker{wait: ackWait, changed: make(chan struct{})}
}

// Queue is what the suite needs of the broker.
func (b *Broker) Queue() Queue {
	return Queue{
		Send: func(_ testing.TB, messages ...Message) { b.Send(messages...) },
		Connect: func(testing.TB) (queue.Source, func()) {
			return b, func() {}
		},
		Left:    func(testing.TB) int { return b.Left() },
		Parked:  func(testing.TB) []string { return b.Parked() },
		AckWait: b.wait, Ordered: true,
	}
}

// Send adds messages.
func (b *Broker) Send(messages ...Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range messages {
		b.messages = append(b.messages, &held{Message: m})
	}
	b.notify()
}

// notify wakes those that fetch; b.mu is held.
func (b *Broker) notify() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// Left returns how many messages are not acknowledged.
func (b *Broker) Left() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.messages)
}

// Parked returns the ids of the messages that were parked, in order.
func (b *Broker) Parked() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.parked)
}

// Fetch implements [queue.Source].
func (b *Broker) Fetch(ctx context.Context, limit int) ([]*queue.Delivery, error) {
	for {
		ds, changed, next := b.take(limit)
		if len(ds) > 0 {
			return ds, nil
		}
		timer := time.NewTimer(next)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, context.Cause(ctx)
		}
		timer.Stop()
	}
}

// take delivers what may be delivered, or returns when to look again.
func (b *Broker) take(limit int) (ds []*queue.Delivery, changed chan struct{}, next time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	next = time.Hour
	busy := map[string]bool{}
	for _, m := range b.messages {
		switch wait := m.visible.Sub(now); {
		case busy[m.Key]:
		case wait > 0:
			next = min(next, wait)
		case len(ds) < limit:
			m.visible = now.Add(b.wait)
			m.deliveries++
			ds = append(ds, b.delivery(m, m.deliveries))
		}
		busy[m.Key] = m.Key != ""
	}
	return ds, b.changed, next
}

func (b *Broker) delivery(m *held, receipt int) *queue.Delivery {
	// later makes the message visible when d has passed, unless it was delivered again meanwhile.
	later := func(d time.Duration) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if m.deliveries == receipt {
			m.visible = time.Now().Add(d)
			b.notify()
		}
		return nil
	}
	return &queue.Delivery{
		ID: m.ID, Key: m.Key, Scope: "memory", Payload: PayloadOf(m.ID), Deliveries: receipt,
		Raw: m,
		Ack: func(context.Context) error {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.messages = slices.DeleteFunc(b.messages, func(other *held) bool { return other == m })
			b.notify()
			return nil
		},
		Nack:   func(_ context.Context, after time.Duration) error { return later(after) },
		Extend: func(context.Context) error { return later(b.wait) },
		Every:  b.wait / 4,
		Park: func(context.Context, error) error {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.parked = append(b.parked, m.ID)
			return nil
		},
	}
}
