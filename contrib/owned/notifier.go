package owned

import (
	"context"
	"sync"

	"github.com/onceward/onceward/dedup"
)

// untold bounds the events that wait for an observer that hangs: the oldest are dropped.
const untold = 256

// notifier hands the events of the filters to an observer, in order, from a goroutine that lives
// while there are events. An event can arise anywhere: while a batch keeps a release waiting, while
// a partition is acquired again, or in work that a release waits for. If a hook ran in that
// goroutine and released the partition, it would wait for itself.
type notifier struct {
	hook func(dedup.Event)

	mu     sync.Mutex
	events []dedup.Event
	over   chan struct{} // closed when all events were handed over; nil while there are none
}

func (t *notifier) notify(e dedup.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.events) == untold {
		t.events = t.events[1:]
	}
	t.events = append(t.events, e)
	if t.over == nil {
		t.over = make(chan struct{})
		go t.run(t.over)
	}
}

func (t *notifier) run(over chan struct{}) {
	defer close(over)
	for {
		e, ok := t.next()
		if !ok {
			return
		}
		t.hook(e)
	}
}

// next returns the oldest event. If there is no event, the goroutine ends.
func (t *notifier) next() (e dedup.Event, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.events) == 0 {
		t.events, t.over = nil, nil
		return e, false
	}
	e, t.events = t.events[0], t.events[1:]
	return e, true
}

// wait returns when all events were handed over, or ctx ends.
func (t *notifier) wait(ctx context.Context) error {
	t.mu.Lock()
	over := t.over
	t.mu.Unlock()
	if over == nil {
		return nil
	}
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
