package kafkaadapter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/kafkaadapter/internal/flow"
)

// errRevoked ends the intake of a partition that has been given up.
var errRevoked = errors.New("kafkaadapter: partition revoked")

// partition is one claim of sarama: one partition from assignment to revocation.
//
// Two goroutines feed its lanes. The intake takes whatever sarama has fetched, at once
// and always: a reader that stops makes sarama hold up every partition of the same
// broker. The claimer asks the store about it, batch by batch, and may have to wait for
// the store. How much can pile up between them is bounded by pausing the partition.
type partition struct {
	a         *Adapter
	session   sarama.ConsumerGroupSession
	claim     sarama.ConsumerGroupClaim
	topic     string
	number    int32
	committer *flow.Committer
	tracker   flow.Tracker
	gate      *flow.Gate
	lanes     *flow.Lanes[*item]
	pending   pending

	// base carries the session's values and outlives it: a handler that cannot be
	// stopped still has to be able to renew and record.
	base context.Context
	// stop ends intake and claiming, with the reason.
	stop context.CancelCauseFunc
}

// item is one message on its way.
type item struct {
	msg   *Message
	slot  flow.Slot
	claim *dedup.Claim       // held, once Acquired
	run   context.Context    // of the kept claim
	end   context.CancelFunc // ends the renewal
	bad   error              // why it must not run at all
	tries int                // failures in a row, for the backoff
	wait  time.Duration      // last backoff
}

func (a *Adapter) newPartition(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) (*partition, error) {
	a.mu.Lock()
	committer := a.sessions[session]
	a.mu.Unlock()
	if committer == nil {
		return nil, errors.New("kafkaadapter: ConsumeClaim without Setup")
	}
	p := &partition{
		a: a, session: session, claim: claim, committer: committer,
		topic: claim.Topic(), number: claim.Partition(),
		base: context.WithoutCancel(session.Context()),
	}
	p.pending.ready = make(chan struct{}, 1)
	var err error
	p.gate, err = flow.NewGate(flow.GateConfig{
		High: a.cfg.HighWater, Low: a.cfg.LowWater, Level: p.tracker.Len,
		Pause:  func() { a.pause(p.topic, p.number, true) },
		Resume: func() { a.pause(p.topic, p.number, false) },
	})
	if err != nil {
		return nil, err
	}
	p.lanes, err = flow.NewLanes(p.base, flow.LanesConfig{
		Workers: a.cfg.Workers, Order: laneOrder(a.cfg.Order), OnStop: func(err error) { p.stop(err) },
	}, p.process)
	return p, err
}

// consume runs the partition until it is revoked or has to stop, then gives it up.
func (p *partition) consume() error {
	ctx, stop := context.WithCancelCause(p.session.Context())
	p.stop = stop
	if err := p.committer.Add(p.topic, p.number, &p.tracker); err != nil {
		return fmt.Errorf("kafkaadapter: %s/%d: %w", p.topic, p.number, err)
	}
	var claiming sync.WaitGroup
	if !p.a.cfg.Unclaimed {
		claiming.Go(func() { p.claimLoop(ctx) })
	}
	err := p.intake(ctx)
	stop(errRevoked) // sarama closed the channel: the claimer ends too
	claiming.Wait()
	p.giveUp()
	if cause := context.Cause(ctx); err == nil && isFatal(cause) {
		err = cause
	}
	return err
}

// isFatal tells what must stop the consumer from the ordinary ends of a session.
func isFatal(cause error) bool {
	var fatal *UnprocessableError
	return errors.As(cause, &fatal)
}

// intake takes messages until the channel closes or ctx ends. It never waits for the
// store or for a handler.
func (p *partition) intake(ctx context.Context) error {
	in, err := flow.NewIntake(p.claim.Messages(), flow.IntakeConfig{BatchMax: p.a.cfg.BatchMax, BatchWait: p.a.cfg.BatchWait})
	if err != nil {
		return err
	}
	var batch []*sarama.ConsumerMessage
	for {
		batch, err = in.Next(ctx, batch[:0])
		if err != nil {
			return nil // revoked, session over, or stopped: consume knows why
		}
		items := make([]*item, 0, len(batch))
		for _, m := range batch {
			it, err := p.receive(m)
			if err != nil {
				return err
			}
			items = append(items, it)
		}
		if p.a.cfg.Unclaimed {
			p.submit(items)
		} else {
			p.pending.add(items)
		}
		p.gate.Check()
	}
}

// receive tracks a message, before anything else happens to it, and finds its id.
func (p *partition) receive(m *sarama.ConsumerMessage) (*item, error) {
	slot, err := p.tracker.Track(m.Offset)
	if err != nil {
		return nil, fmt.Errorf("kafkaadapter: %s/%d: %w", p.topic, p.number, err)
	}
	if hook := p.a.cfg.Observer.Delivered; hook != nil {
		hook(m)
	}
	it := &item{msg: &Message{ConsumerMessage: m}, slot: slot, end: func() {}}
	id, ok := p.a.cfg.ID(m)
	it.msg.ID = id
	if !ok && !p.a.cfg.Unclaimed {
		it.bad = ErrNoID
	}
	return it, nil
}

func (p *partition) submit(items []*item) {
	for _, it := range items {
		if err := p.lanes.Submit(laneKey(it.msg), it); err != nil {
			p.drop(it) // draining: the next owner gets it
		}
	}
}

// laneKey is Kafka's key, where no key and an empty one mean no order.
func laneKey(m *Message) []byte {
	if len(m.Key) == 0 {
		return nil
	}
	return m.Key
}

func laneOrder(o Order) flow.Order {
	switch o {
	case ByPartition:
		return flow.ByPartition
	case Unordered:
		return flow.Unordered
	default:
		return flow.ByKey
	}
}

// giveUp ends the claim: what was not started is given back, what runs may end within
// the drain budget and is cancelled then, what is finished is committed. A handler that
// still runs keeps its lease, renewed, for as long as it runs: Kafka fences offsets,
// only the token can fence its effect.
func (p *partition) giveUp() {
	ctx, cancel := context.WithTimeout(p.base, p.a.cfg.Drain)
	defer cancel()
	left := p.lanes.Drain(ctx)
	if len(left.Running) > 0 { // they have been cancelled: let those that listen come back
		grace, cancel := context.WithTimeout(p.base, drainGrace)
		defer cancel()
		again := p.lanes.Drain(grace)
		left.Pending, left.Running = append(left.Pending, again.Pending...), again.Running
	}
	p.release(append(left.Pending, p.pending.take(-1)...))
	commit, cancel := context.WithTimeout(p.base, commitTimeout)
	defer cancel()
	if err := p.committer.Remove(commit, p.topic, p.number); err != nil {
		p.a.cfg.Logger.Warn("kafkaadapter: last commit of a partition is not known to be done", "topic", p.topic, "partition", p.number, "error", err)
	}
	p.gate.Close()
	if hook := p.a.cfg.Observer.Revoked; hook != nil {
		hook(p.topic, p.number, len(left.Pending), len(left.Running))
	}
}

// release gives back the claims of what was not started, in one round trip.
func (p *partition) release(items []*item) {
	var done []dedup.Completion
	for _, it := range items {
		if it.claim != nil {
			done = append(done, dedup.Completion{Claim: it.claim, Err: errRevoked})
		}
	}
	if len(done) > 0 {
		ctx, cancel := context.WithTimeout(p.base, releaseTimeout)
		defer cancel()
		p.a.cfg.Deduper.CompleteBatch(ctx, done) // what fails lapses
	}
	for _, it := range items {
		p.drop(it)
	}
}

const (
	// releaseTimeout bounds giving claims back: a lease that is not released lapses.
	releaseTimeout = 2 * time.Second
	// drainGrace is for handlers that return when they are cancelled.
	drainGrace = 500 * time.Millisecond
	// commitTimeout bounds the last commit: a late one costs redeliveries.
	commitTimeout = 5 * time.Second
)

// drop forgets an item without finishing it.
func (p *partition) drop(it *item) {
	it.end()
	it.claim, it.run = nil, nil
}

// pause of an item that failed or has to wait, growing with its tries.
func (p *partition) backoff(it *item) time.Duration {
	it.wait = p.a.retry.Delay(it.tries, it.wait, nil)
	it.tries++
	return it.wait
}

// outage waits before the store is asked again, with the partition paused.
func (p *partition) outage(ctx context.Context, n int) error {
	p.gate.Hold(flow.StoreDown)
	return backoff.Sleep(ctx, p.a.retry.Delay(n, 0, nil))
}

// pending is the queue between intake and claimer.
type pending struct {
	mu    sync.Mutex
	items []*item
	ready chan struct{} // holds one when items may have come
}

func (q *pending) add(items []*item) {
	q.mu.Lock()
	q.items = append(q.items, items...)
	q.mu.Unlock()
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// take removes up to n items, all of them for a negative n.
func (q *pending) take(n int) []*item {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n < 0 || n >= len(q.items) {
		items := q.items
		q.items = nil
		return items
	}
	items := q.items[:n:n]
	q.items = q.items[n:]
	return items
}

// next waits for items and takes up to n.
func (q *pending) next(ctx context.Context, n int) ([]*item, error) {
	for {
		if items := q.take(n); len(items) > 0 {
			return items, nil
		}
		select {
		case <-q.ready:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
