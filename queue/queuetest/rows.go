package queuetest

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/deduptest"
	"github.com/onceward/onceward/queue"
)

var errPlanned = errors.New("queuetest: a planned failure")

func checkPlain(tr *trial) {
	tr.send(1, messages("plain", 20)...)
	tr.start(script{workers: 4})
	tr.through()
}

func checkUnacknowledged(tr *trial) {
	tr.send(1, messages("held", 3)...)
	release := make(chan struct{})
	tr.start(script{workers: 4,
		handle: func(_ context.Context, _ *process, _ *queue.Delivery, effect func()) error {
			<-release
			effect()
			return nil
		}})
	tr.await("three messages are at work", func() bool {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		return len(tr.arrivals) == 3
	})
	if left := tr.q.Left(tr.TB); left != 3 {
		tr.Errorf("queuetest: three messages are at work, and the broker has %d of them", left)
	}
	close(release)
	tr.through()
}

func checkDuplicates(tr *trial) {
	tr.start(script{workers: 4})
	tr.start(script{workers: 4})
	tr.send(3, messages("copied", 20)...)
	tr.through()
}

func checkFails(tr *trial) {
	tr.send(1, messages("failing", 20)...)
	var runs counts
	tr.start(script{workers: 4,
		handle: func(_ context.Context, _ *process, d *queue.Delivery, effect func()) error {
			if runs.add(d.ID) <= 2 {
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

func checkKilledBefore(tr *trial) {
	tr.send(1, messages("killed", 20)...)
	p := tr.start(script{workers: 4,
		handle: func(_ context.Context, p *process, _ *queue.Delivery, _ func()) error {
			p.kill()
			return errKilled
		}})
	<-p.dead
	tr.start(script{workers: 4})
	tr.through()
}

func checkKilledIn(tr *trial) {
	tr.send(1, messages("killed", 20)...)
	p := tr.start(script{workers: 4,
		handle: func(_ context.Context, p *process, d *queue.Delivery, effect func()) error {
			effect()
			tr.excuse(d.ID)
			p.kill()
			return errKilled
		}})
	<-p.dead
	tr.start(script{workers: 4})
	tr.through()
}

func checkKilledAfter(tr *trial) {
	tr.send(1, messages("killed", 20)...)
	var first atomic.Bool
	p := tr.start(script{workers: 4,
		handle: func(_ context.Context, p *process, _ *queue.Delivery, effect func()) error {
			if first.CompareAndSwap(false, true) {
				effect()
				return nil
			}
			<-p.dead // the others have not begun
			return errKilled
		},
		wrap: func(p *process, d *queue.Delivery) {
			d.Ack = func(context.Context) error {
				p.kill()
				return errKilled
			}
		}})
	<-p.dead
	tr.start(script{workers: 4})
	tr.through()
}

func checkAckLost(tr *trial) {
	tr.send(1, messages("lost", 20)...)
	var acks counts
	tr.start(script{workers: 4, wrap: func(_ *process, d *queue.Delivery) {
		ack := d.Ack
		d.Ack = func(ctx context.Context) error {
			switch n := acks.add(d.ID); {
			case n > 1:
				return ack(ctx)
			case strings.HasSuffix(d.ID, "1"): // its answer is lost
				_ = ack(ctx)
				return errPlanned
			}
			return nil
		}
	}})
	tr.through()
}

func checkNackLost(tr *trial) {
	tr.send(1, messages("lost", 5)...)
	var runs, nacks counts
	p := tr.start(script{workers: 4,
		handle: func(_ context.Context, _ *process, d *queue.Delivery, effect func()) error {
			if runs.add(d.ID) == 1 {
				return errPlanned
			}
			effect()
			return nil
		},
		wrap: func(_ *process, d *queue.Delivery) {
			nack := d.Nack
			d.Nack = func(ctx context.Context, after time.Duration) error {
				if nacks.add(d.ID) > 1 {
					return nack(ctx, after)
				}
				return nil
			}
		}})
	if tr.q.AckWait == 0 { // they are redelivered when the connection ends
		tr.await("every message has failed", func() bool {
			nacks.mu.Lock()
			defer nacks.mu.Unlock()
			return len(nacks.of) == 5
		})
		p.kill()
		tr.start(script{workers: 4})
	}
	tr.through()
}

func checkRestart(tr *trial) {
	tr.send(1, messages("before", 50)...)
	slow := func(ctx context.Context, _ *process, _ *queue.Delivery, effect func()) error {
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
		effect()
		return nil
	}
	tr.start(script{workers: 4, handle: slow})
	tr.await("ten messages have had their effect", func() bool { return tr.total() >= 10 })
	tr.q.Restart(tr.TB)
	tr.send(1, messages("after", 20)...)
	tr.through()
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

func (tr *trial) total() int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return len(tr.order)
}

func checkStoreOut(tr *trial) {
	tr.send(1, messages("out", 40)...)
	p := tr.start(script{workers: 4,
		handle: func(ctx context.Context, _ *process, _ *queue.Delivery, effect func()) error {
			if err := pause(ctx, 10*time.Millisecond); err != nil {
				return err
			}
			effect()
			return nil
		}})
	tr.await("ten messages have had their effect", func() bool { return tr.total() >= 10 })
	p.store.SetPlan(func(deduptest.Call) deduptest.Fault {
		return deduptest.Fault{Kind: deduptest.DropRequest}
	})
	_ = pause(context.Background(), tr.lease/3)
	p.store.SetPlan(nil)
	tr.through()
}

func checkLeaseLost(tr *trial) {
	tr.send(1, messages("paused", 4)...)
	var lost atomic.Int32
	p := tr.start(script{workers: 4,
		handle: func(ctx context.Context, _ *process, _ *queue.Delivery, _ func()) error {
			<-ctx.Done()
			if errors.Is(context.Cause(ctx), dedup.ErrLeaseLost) {
				lost.Add(1)
			}
			return nil // which proves nothing
		}})
	tr.await("every message is at work", func() bool {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		return len(tr.arrivals) == 4
	})
	p.store.SetPlan(func(deduptest.Call) deduptest.Fault {
		return deduptest.Fault{Kind: deduptest.DropRequest}
	})
	tr.await("every claim is lost", func() bool { return lost.Load() == 4 })
	p.kill()
	tr.start(script{workers: 4})
	tr.through()
}

func checkLongWork(tr *trial) {
	tr.send(1, messages("long", 3)...)
	long := script{workers: 4,
		handle: func(ctx context.Context, _ *process, _ *queue.Delivery, effect func()) error {
			if err := pause(ctx, max(3*tr.q.AckWait, tr.lease)); err != nil {
				return err
			}
			effect()
			return nil
		}}
	tr.start(long)
	tr.start(long)
	tr.through()
	for _, m := range tr.sent {
		if n := tr.count(tr.arrivals, m.ID); n != 1 {
			tr.Errorf("queuetest: %s was delivered %d times while its handler worked", m.ID, n)
		}
	}
}

func checkPoison(tr *trial) {
	poison := messages("poison", 3)
	tr.send(2, append(slices.Clone(poison), messages("healthy", 10)...)...)
	var runs counts
	tr.start(script{workers: 4,
		handle: func(_ context.Context, _ *process, d *queue.Delivery, effect func()) error {
			if strings.HasPrefix(d.ID, "poison") {
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

// parkedOnce requires that these messages are parked, once each, and no others.
func (tr *trial) parkedOnce(want []Message) {
	gone := tr.gone()
	for _, m := range want {
		if gone[m.ID] != 1 {
			tr.Errorf("queuetest: %s was parked %d times", m.ID, gone[m.ID])
		}
		delete(gone, m.ID)
	}
	for id := range gone {
		tr.Errorf("queuetest: %s was parked", id)
	}
}

func checkAttempts(tr *trial) {
	poison := messages("poison", 2)
	tr.send(1, append(slices.Clone(poison), messages("healthy", 10)...)...)
	var runs counts
	tr.start(script{workers: 4, most: 3,
		handle: func(_ context.Context, _ *process, d *queue.Delivery, effect func()) error {
			if strings.HasPrefix(d.ID, "poison") {
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
	tr.send(1, messages("deployed", 20)...)
	release, began := make(chan struct{}), make(chan struct{}, 20)
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
	p.kill() // its connection ends with it
	if n := tr.total(); n != 4 {
		tr.Errorf("queuetest: 4 handlers were at work when Run was to end, and %d have had their effect", n)
	}
	tr.start(script{workers: 4})
	tr.through()
}

func checkOrder(tr *trial) {
	var all []Message
	for i := range 20 {
		for _, key := range []string{"a", "b", "c"} {
			all = append(all, Message{ID: fmt.Sprintf("%s-%02d", key, i), Key: key})
		}
	}
	tr.send(1, all...)
	var runs counts
	handle := func(_ context.Context, _ *process, d *queue.Delivery, effect func()) error {
		if runs.add(d.ID) == 1 && hash(d.ID)%5 == 0 {
			return errPlanned
		}
		effect()
		return nil
	}
	tr.start(script{workers: 4, handle: handle})
	tr.start(script{workers: 4, handle: handle})
	tr.through()
	for _, key := range []string{"a", "b", "c"} {
		got := slices.DeleteFunc(slices.Clone(tr.order),
			func(id string) bool { return !strings.HasPrefix(id, key) })
		if !slices.IsSorted(got) {
			tr.Errorf("queuetest: the effects of key %s came in the order %v", key, got)
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
	tr.send(1, messages("fetched", 5)...)
	all, end := context.WithTimeout(context.Background(), patience)
	defer end()
	for seen := 0; seen < 5; {
		ds, err := src.Fetch(all, 2)
		if err != nil && all.Err() != nil {
			tr.Fatalf("queuetest: Fetch: %v", err)
		}
		if len(ds) > 2 {
			tr.Errorf("queuetest: Fetch was asked for 2 messages and returned %d", len(ds))
		}
		for _, d := range ds {
			seen++
			if err := d.Ack(all); err != nil {
				tr.Errorf("queuetest: Ack: %v", err)
			}
		}
	}
	tr.await("the broker has no message left", func() bool { return tr.q.Left(tr.TB) == 0 })
}

// checkStorm has 1,500 messages of 1,000 ids, of which each fifth run fails and each tenth
// acknowledgement is lost.
func checkStorm(tr *trial) {
	all := messages("storm", 1000)
	var runs, acks atomic.Int32
	s := script{workers: 16,
		handle: func(_ context.Context, _ *process, _ *queue.Delivery, effect func()) error {
			if runs.Add(1)%5 == 0 {
				return errPlanned
			}
			effect()
			return nil
		},
		wrap: func(_ *process, d *queue.Delivery) {
			ack := d.Ack
			d.Ack = func(ctx context.Context) error {
				if acks.Add(1)%10 == 0 {
					return nil
				}
				return ack(ctx)
			}
		}}
	for range 3 {
		tr.start(s)
	}
	tr.send(1, all...)
	tr.send(1, all[:500]...)
	tr.through()
	tr.Logf("queuetest: 1000 ids in 1500 messages: %d runs, a fifth failed; %d acknowledgements, a tenth lost",
		runs.Load(), acks.Load())
}
