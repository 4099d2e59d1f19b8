package queuetest

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/queue"
)

var errPlanned = errors.New("queuetest: a planned failure")

func checkPlain(tr *trial) {
	tr.send(1, messages("plain", tr.q.IDs)...)
	tr.start(script{workers: 8})
	tr.through()
}

// busy is how many messages are at work at once in a row whose handlers wait.
const busy = 40

func checkUnacknowledged(tr *trial) {
	tr.send(1, messages("held", tr.q.IDs)...)
	release := make(chan struct{})
	tr.start(script{workers: busy,
		handle: func(_ context.Context, _ *process, _ *queue.Delivery, effect func()) error {
			<-release
			effect()
			return nil
		}})
	tr.awaitArrivals(busy)
	// A broker that only estimates may count a redelivered message twice.
	if left := tr.q.Left(tr.TB); left < tr.q.IDs {
		tr.Errorf("queuetest: no message is done, and the broker has %d of %d", left, tr.q.IDs)
	}
	close(release)
	tr.through()
}

func checkDuplicates(tr *trial) {
	tr.start(script{workers: 8})
	tr.start(script{workers: 8})
	tr.send(3, messages("copied", tr.q.IDs)...)
	tr.through()
}

// checkFails makes each message fail once, and about one in four fail twice.
func checkFails(tr *trial) {
	tr.send(1, messages("failing", tr.q.IDs)...)
	var runs counts
	tr.start(script{workers: 8,
		handle: func(_ context.Context, _ *process, d *queue.Delivery, effect func()) error {
			if n := runs.add(d.ID); n == 1 || n == 2 && hash(d.ID)%4 == 0 {
				return errPlanned
			}
			effect()
			return nil
		}})
	tr.through()
}

// counts counts by name.
type counts struct {
	mu sync.Mutex
	of map[string]int
}

func (c *counts) add(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = map[string]int{}
	}
	c.of[name]++
	return c.of[name]
}

// long is how many messages take longer than the broker waits for an acknowledgement. The other
// messages are sent when these are done: with all of them at once, calls of Extend could be late on
// a busy machine.
const long = 8

func checkLongWork(tr *trial) {
	slow := messages("long", long)
	tr.send(1, slow...)
	work := script{workers: long,
		handle: func(ctx context.Context, _ *process, d *queue.Delivery, effect func()) error {
			if strings.HasPrefix(d.ID, "long") {
				if err := pause(ctx, max(3*tr.q.AckWait, tr.lease)); err != nil {
					return err
				}
			}
			effect()
			return nil
		}}
	tr.start(work)
	tr.start(work)
	tr.awaitTotal(long)
	tr.send(1, messages("quick", tr.q.IDs-long)...)
	tr.through()
	// A broker that is stopped for a while may take a few calls of Extend too late.
	again := 0
	for _, m := range slow {
		switch n := tr.count(tr.arrivals, m.ID); {
		case n == 2 && again < long/4:
			again++
			tr.Logf("queuetest: %s was delivered twice while its handler worked", m.ID)
		case n != 1:
			tr.Errorf("queuetest: %s was delivered %d times while its handler worked", m.ID, n)
		}
	}
}

// pause waits, unless ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// poisoned is how many of the messages cannot be processed.
const poisoned = 20

// sendPoison sends messages that must be parked, together with others, and returns the former.
func (tr *trial) sendPoison(copies int) (poison []Message) {
	poison = messages("poison", poisoned)
	for _, m := range poison {
		tr.doomed[m.ID] = true
	}
	tr.send(copies, append(slices.Clone(poison), messages("healthy", tr.q.IDs-poisoned)...)...)
	return poison
}

func checkPoison(tr *trial) {
	poison := tr.sendPoison(2)
	var runs counts
	tr.start(script{workers: 8,
		handle: func(_ context.Context, _ *process, d *queue.Delivery, effect func()) error {
			if tr.doomed[d.ID] {
				runs.add(d.ID)
				return dedup.Permanent(errPlanned)
			}
			effect()
			return nil
		}})
	tr.through()
	tr.parkedOnce(poison)
	for id, n := range runs.of {
		if n != 1 {
			tr.Errorf("queuetest: %s, which failed for good, ran %d times", id, n)
		}
	}
}

// parkedOnce requires that each of these messages is parked once, and that no other is. A few may
// be parked again: if a process is stopped for as long as the broker waits, it gets a message a
// second time between Park and Ack.
func (tr *trial) parkedOnce(want []Message) {
	gone := tr.gone()
	again := 0
	for _, m := range want {
		switch n := gone[m.ID]; {
		case n == 2 && again < len(want)/4:
			again++
			tr.Logf("queuetest: %s was parked twice", m.ID)
		case n != 1:
			tr.Errorf("queuetest: %s was parked %d times", m.ID, n)
		}
		delete(gone, m.ID)
	}
	for id := range gone {
		tr.Errorf("queuetest: %s was parked", id)
	}
}

func checkAttempts(tr *trial) {
	poison := tr.sendPoison(1)
	var runs counts
	tr.start(script{workers: 8, most: 3,
		handle: func(_ context.Context, _ *process, d *queue.Delivery, effect func()) error {
			if tr.doomed[d.ID] {
				runs.add(d.ID)
				return errPlanned
			}
			effect()
			return nil
		}})
	tr.through()
	tr.parkedOnce(poison)
	for id, n := range runs.of {
		if n != 3 {
			tr.Errorf("queuetest: %s ran %d times; 3 attempts were allowed", id, n)
		}
	}
}

func checkShutdown(tr *trial) {
	tr.send(1, messages("deployed", tr.q.IDs)...)
	release, began := make(chan struct{}), make(chan struct{}, tr.q.IDs)
	p := tr.start(script{workers: 4,
		handle: func(ctx context.Context, _ *process, _ *queue.Delivery, effect func()) error {
			began <- struct{}{}
			select {
			case <-release:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			effect()
			return nil
		}})
	for range 4 {
		<-began
	}
	p.stop()
	close(release)
	<-p.ended
	p.kill() // its connection ends, too
	if n := tr.total(); n != 4 {
		tr.Errorf("queuetest: 4 handlers were at work when Run was to end, and %d have had their effect", n)
	}
	tr.start(script{workers: 8})
	tr.through()
}

// orderedKeys is how many keys the messages of checkOrder have.
const orderedKeys = 25

func checkOrder(tr *trial) {
	var all []Message
	for i := range tr.q.IDs / orderedKeys {
		for key := range orderedKeys {
			name := fmt.Sprintf("key-%02d", key)
			all = append(all, Message{ID: fmt.Sprintf("%s-%02d", name, i), Key: name})
		}
	}
	tr.send(1, all...)
	var runs counts
	handle := func(_ context.Context, _ *process, d *queue.Delivery, effect func()) error {
		if runs.add(d.ID) == 1 && hash(d.ID)%20 == 0 {
			return errPlanned
		}
		effect()
		return nil
	}
	tr.start(script{workers: 8, handle: handle})
	tr.start(script{workers: 8, handle: handle})
	tr.through()
	for _, m := range all[:orderedKeys] {
		got := slices.DeleteFunc(slices.Clone(tr.order),
			func(id string) bool { return !strings.HasPrefix(id, m.Key) })
		if !slices.IsSorted(got) {
			tr.Errorf("queuetest: the effects of %s came in the order %v", m.Key, got)
		}
	}
}

func hash(s string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(s))
	return h.Sum32()
}

func checkFetch(tr *trial) {
	src, cut := tr.q.Connect(tr.TB)
	defer cut()
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	began := time.Now()
	if ds, _ := src.Fetch(ctx, 10); len(ds) > 0 {
		tr.Errorf("queuetest: an empty queue has delivered %d messages", len(ds))
	}
	if took := time.Since(began); took > 5*time.Second {
		tr.Errorf("queuetest: Fetch returned %v after it was called, and its context lasted 0.5 s", took)
	}
	tr.send(1, messages("fetched", tr.q.IDs)...)
	tr.fetchAll(src)
	tr.await("the broker has no message left", func() bool { return tr.q.Left(tr.TB) == 0 })
}

// fetchAll fetches every message from src and acknowledges it, without a consumer.
func (tr *trial) fetchAll(src queue.Source) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for len(tr.without()) > 0 {
		ds, err := src.Fetch(ctx, 2)
		if err != nil && ctx.Err() != nil {
			tr.Fatalf("queuetest: Fetch: %v", err)
		}
		if len(ds) > 2 {
			tr.Errorf("queuetest: Fetch was asked for 2 messages and returned %d", len(ds))
		}
		for _, d := range ds {
			tr.effect(d.ID)
			if err := d.Ack(ctx); err != nil {
				tr.Errorf("queuetest: Ack: %v", err)
			}
		}
	}
}
