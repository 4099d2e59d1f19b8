package kafkaadapter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/dedup"
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
	valve     valve
	lanes     *flow.Lanes[*item]
	pending   pending
	queued    queued

	// base carries the session's values and outlives it: a handler that cannot be
	// stopped still has to be able to renew and record.
	base context.Context
	// stop ends intake and claiming, with the reason.
	stop context.CancelCauseFunc
}

// item is one message on its way. It is worked on by one goroutine at a time: the
// intake, the claimer, the worker that has its turn, and whoever gives the partition up.
// Only the claim of a queued one is shared; see queued.
type item struct {
	msg   *Message
	slot  flow.Slot
	claim *dedup.Claim       // held, once Acquired
	run   context.Context    // of the kept claim
	end   context.CancelFunc // ends the renewal
	bad   error              // why it must not run at all

	tries   int           // failures in a row, for the backoff
	polls   int           // questions in a row that did not win the claim, likewise
	waiting time.Time     // since when
	wait    time.Duration // last backoff
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
		Pause:  func() { p.pause(true) },
		Resume: func() { p.pause(false) },
	})
	if err != nil {
		return nil, err
	}
	p.lanes, err = flow.NewLanes(p.base, flow.LanesConfig{
		Workers: a.cfg.Workers, Order: laneOrder(a.cfg.Order), OnStop: p.fail,
	}, p.process)
	return p, err
}

// consume runs the partition until it is revoked or has to stop, then gives it up.
func (p *partition) consume() error {
	ctx, stop := context.WithCancelCause(p.session.Context())
	defer stop(errRevoked)
	p.stop = stop
	if err := p.committer.Add(p.topic, p.number, &p.tracker); err != nil {
		return fmt.Errorf("kafkaadapter: %s/%d: %w", p.topic, p.number, err)
	}
	var claimer error
	var claiming sync.WaitGroup
	if !p.a.cfg.Unclaimed {
		claiming.Go(func() {
			if claimer = p.claimLoop(ctx); claimer != nil {
				p.fail(claimer)
			}
		})
	}
	intake := p.intake(ctx)
	stop(errRevoked) // sarama closed the channel: the claimer ends too
	claiming.Wait()
	p.giveUp()
	if err := p.lanes.Err(); errors.Is(err, flow.ErrNoVerdict) {
		return fmt.Errorf("kafkaadapter: %s/%d: a handler ended its goroutine: %w", p.topic, p.number, err)
	}
	return cmp.Or(p.lanes.Err(), claimer, intake)
}

// fail stops the consumer: this partition at once, the others with Run.
func (p *partition) fail(err error) {
	p.a.cfg.Logger.Error("kafkaadapter: stopping", "topic", p.topic, "partition", p.number, "error", err)
	p.stop(err)
	p.a.stopRun()
}

// intake takes messages until the channel closes or ctx ends. It never waits for the
// store or for a handler, unless nobody can pause the partition for it.
func (p *partition) intake(ctx context.Context) error {
	in, err := flow.NewIntake(p.claim.Messages(), flow.IntakeConfig{BatchMax: p.a.cfg.BatchMax, BatchWait: p.a.cfg.BatchWait})
	if err != nil {
		return err
	}
	var batch []*sarama.ConsumerMessage
	for p.valve.wait(ctx) == nil {
		batch, err = in.Next(ctx, batch[:0])
		if err != nil {
			break // revoked, session over, or stopped: consume knows why
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
	return nil
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
	it.msg.ID, it.bad = p.a.idOf(m)
	return it, nil
}

// submit hands items to the lanes. Lanes that have stopped take none: the items go the
// way of those that were never claimed, and are given back.
func (p *partition) submit(items []*item) {
	for _, it := range items {
		if err := p.lanes.Submit(laneKey(it.msg), it); err != nil {
			p.pending.add([]*item{it})
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

// done finishes a message: its record exists, or it is parked durably.
func (p *partition) done(it *item) {
	p.drop(it)
	if it.slot.Done() {
		p.committer.Finished(1)
		p.gate.Check()
	}
}

// drop forgets an item's claim: it has ended, or lapses.
func (p *partition) drop(it *item) {
	it.end()
	it.claim, it.run = nil, nil
}

// retry runs a message again after a failure.
func (p *partition) retry(it *item) flow.Verdict {
	it.wait = p.a.retry.Delay(it.tries, it.wait, nil)
	it.tries++
	return flow.RetryAfter(it.wait)
}

// retryAfter is retry, at the time that the handler's error may ask for. Those behind the
// message in its lane do not keep their claims for a long one.
func (p *partition) retryAfter(it *item, err error) flow.Verdict {
	after, ok := asked(err)
	if !ok {
		return p.retry(it)
	}
	it.tries++
	if after >= yieldAfter {
		p.yield(it)
	}
	return flow.RetryAfter(after)
}
