package queuetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/queue"
)

// patience is how long a row waits for something that must happen. The test of this package
// shortens it.
var patience = 3 * time.Minute

// settleTime is how long an acknowledgement may take to reach the broker.
const settleTime = time.Second

// many is how many ids a row has, unless Queue.IDs says otherwise.
const many = 1000

const namespace = "queuetest"

// trial is one run of a row. Its processes share a store, and their effects are counted.
type trial struct {
	testing.TB
	q       Queue
	store   dedup.Store // the judge's
	connect func(testing.TB) dedup.Store
	lease   time.Duration

	mu        sync.Mutex
	sent      map[string]Message // by their ids
	doomed    map[string]bool    // ids that are to be parked
	messages  int                // sent, with copies
	runs      int                // of handlers
	effects   map[string]int
	arrivals  map[string]int // deliveries
	excused   map[string]int // effects that a kill or an outage explains
	parked    map[string]int // by Config.Park
	order     []string       // ids in the order of their effects
	faults    []string       // what was wrong with deliveries
	processes []*process
}

func newTrial(t testing.TB, q Queue) *trial {
	return &trial{TB: t, q: q, store: dedup.Memory(10_000), lease: max(q.AckWait, 2*time.Second),
		sent: map[string]Message{}, doomed: map[string]bool{}, effects: map[string]int{},
		arrivals: map[string]int{}, excused: map[string]int{}, parked: map[string]int{}}
}

func (tr *trial) park(_ context.Context, d *queue.Delivery, _ error) error {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.parked[d.ID]++
	return nil
}

func (tr *trial) ran() {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.runs++
}

func (tr *trial) effect(id string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.effects[id]++
	tr.order = append(tr.order, id)
}

func (tr *trial) count(of map[string]int, id string) int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return of[id]
}

// excuse notes that a kill or an outage explains one more effect of a message.
func (tr *trial) excuse(id string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.excused[id]++
}

// unrecorded is called when a consumer does not know whether an effect is on record. In a row whose
// server of records goes away, that explains a second effect.
func (tr *trial) unrecorded(d *queue.Delivery, _ error) {
	if tr.connect != nil {
		tr.excuse(d.ID)
	}
}

// arrived counts a delivery and checks it.
func (tr *trial) arrived(d *queue.Delivery) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.arrivals[d.ID]++
	sent, known := tr.sent[d.ID]
	switch {
	case !known:
		tr.fault("a delivery has the ID %q, which was not sent", d.ID)
	case string(d.Payload) != string(PayloadOf(d.ID)):
		tr.fault("the delivery of %s has the payload %q", d.ID, d.Payload)
	case tr.q.Ordered && sent.Key != "" && d.Key != sent.Key:
		tr.fault("the delivery of %s has the key %q", d.ID, d.Key)
	case d.Ack == nil, d.Nack == nil:
		tr.fault("the delivery of %s has no Ack or no Nack", d.ID)
	case d.Extend != nil && d.Every <= 0:
		tr.fault("the delivery of %s has Extend and not Every", d.ID)
	}
}

// fault notes what is wrong; tr.mu is held.
func (tr *trial) fault(format string, args ...any) {
	if len(tr.faults) < 5 {
		tr.faults = append(tr.faults, fmt.Sprintf(format, args...))
	}
}

// mayAck notes a fault if a message is acknowledged that is not on record.
func (tr *trial) mayAck(ctx context.Context, d *queue.Delivery) {
	rec, ok := tr.record(ctx, d.Scope, d.ID)
	parked := rec.State == driver.StateReleased && rec.Attempt > 0
	if ok && !ended(rec) && !parked {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		tr.fault("%s was acknowledged although it is %v", d.ID, rec.State)
	}
}

// record looks up a message. It returns false if no record can have the id, and while the store
// cannot be asked.
func (tr *trial) record(ctx context.Context, scope, id string) (driver.Record, bool) {
	key, err := driver.NewID(namespace, scope, id)
	if err != nil {
		return driver.Record{}, false
	}
	answer := tr.store.Lookup(ctx, []driver.ID{key})[0]
	return answer.Record, answer.Err == nil
}

func ended(rec driver.Record) bool {
	return rec.State == driver.StateSucceeded || rec.State == driver.StateFailed
}

// send sends every message to the queue, copies times each.
func (tr *trial) send(copies int, messages ...Message) {
	tr.Helper()
	tr.mu.Lock()
	for _, m := range messages {
		tr.sent[m.ID] = m
	}
	tr.messages += copies * len(messages)
	tr.mu.Unlock()
	for range copies {
		tr.q.Send(tr.TB, messages...)
	}
}

// await waits until so reports true.
func (tr *trial) await(what string, so func() bool) {
	tr.Helper()
	if !tr.within(patience, so) {
		tr.report()
		tr.Fatalf("queuetest: %s: not so after %v; %d ids have had no effect, and the broker has %d"+
			" messages left", what, patience, len(tr.without()), tr.q.Left(tr.TB))
	}
}

// within reports whether so becomes true before limit has passed.
func (tr *trial) within(limit time.Duration, so func() bool) bool {
	wait := 5 * time.Millisecond
	tick := time.NewTimer(wait)
	defer tick.Stop()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	for !so() {
		select {
		case <-tick.C:
			wait = min(2*wait, 50*time.Millisecond) // a call of so has a cost
			tick.Reset(wait)
		case <-deadline.C:
			return false
		}
	}
	return true
}

// awaitTotal waits for n effects.
func (tr *trial) awaitTotal(n int) {
	tr.Helper()
	tr.await(fmt.Sprintf("%d effects", n), func() bool { return tr.total() >= n })
}

func (tr *trial) total() int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return len(tr.order)
}

// awaitArrivals waits until n messages have arrived at a process.
func (tr *trial) awaitArrivals(n int) {
	tr.Helper()
	tr.await(fmt.Sprintf("%d messages are at work", n), func() bool {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		return len(tr.arrivals) >= n
	})
}

// through waits until every message has had its effect or was parked, and the broker has none left.
// Then it judges.
func (tr *trial) through() {
	tr.Helper()
	tr.await("every message has had its effect", func() bool {
		return len(tr.without()) <= len(tr.doomed)
	})
	tr.await("every message has had its effect, or was parked", func() bool { return tr.lost() == 0 })
	none := func() bool { return tr.q.Left(tr.TB) == 0 }
	if tr.q.AckWait == 0 && !tr.settled() {
		// If an acknowledgement was lost, the broker redelivers the message only when the
		// connection ends.
		for _, p := range tr.processes {
			p.stop()
			<-p.ended
			p.kill()
		}
		tr.start(script{workers: 4})
	}
	tr.await("the broker has no message left", none)
	tr.report()
}

// settled reports whether the broker has no message left. It waits as long as their number falls.
func (tr *trial) settled() bool {
	left := tr.q.Left(tr.TB)
	for left > 0 {
		before := left
		fewer := tr.within(settleTime, func() bool {
			left = tr.q.Left(tr.TB)
			return left < before
		})
		if !fewer {
			return false
		}
	}
	return true
}

// end ends the processes.
func (tr *trial) end() {
	for _, p := range tr.processes {
		p.stop()
	}
	for _, p := range tr.processes {
		select {
		case <-p.ended:
			p.kill() // its connection
		case <-time.After(patience):
			tr.Errorf("queuetest: Run did not return after its context had ended")
			continue
		}
		if p.err != nil && !errors.Is(p.err, errKilled) {
			tr.Errorf("queuetest: Run returned %v", p.err)
		}
	}
}

// messages returns n messages with ids of their own.
func messages(prefix string, n int) []Message {
	made := make([]Message, n)
	for i := range made {
		made[i].ID = fmt.Sprintf("%s-%d", prefix, i)
	}
	return made
}
