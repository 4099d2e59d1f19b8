package kafkadriver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/internal/deadletter"
	"github.com/onceward/onceward/kafkaadapter/internal/pipeline"
)

// ErrRevoked ends the intake of a partition that has been given up.
var ErrRevoked = errors.New("kafkaadapter: partition revoked")

// Partition is one partition from assignment to revocation:
//
//	p, err := engine.Assign(assignment)
//	err = p.Start()
//	for ... { err = p.Take(messages) }   // until p.Context() ends
//	err = p.End()
//
// Two goroutines feed its queues. The adapter's goroutine takes every message that the client has
// fetched, at once: a reader that stops makes sarama hold up every partition of the same broker.
// The claimer asks the store about the messages, batch by batch, and may have to wait for the
// store. Pausing the partition bounds how much can pile up between them.
type Partition struct {
	cfg          *Engine
	at           Assignment
	tracker      pipeline.Tracker
	backpressure *pipeline.Backpressure
	queues       *pipeline.KeyQueues[*item]
	pending      pending
	queued       queued
	asks         *pipeline.Gather[task]
	ends         *pipeline.Gather[completion]
	origins      driver.Origin // of the messages, without the offset
	scope        deadletter.TopicScope
	delay        time.Duration // of the topic's messages
	doubts       atomic.Int64  // effects that could not be recorded yet
	owner        owner

	leaving atomic.Bool // it is being given up
	parking *parking    // of its topic

	identified, noIDWarned atomic.Bool // a message with an id has come; it was said that none has
	noIDs                  atomic.Int64

	// base has the assignment's values and outlives it: a handler that cannot be stopped must still
	// be able to renew and record.
	base context.Context
	// ctx ends with the assignment, or when stop is called, with the reason.
	ctx  context.Context
	stop context.CancelCauseFunc

	claiming sync.WaitGroup
	claimer  error // why the claimer has ended
}

// item is one message on its way. One goroutine at a time works on it: the intake, the claimer, the
// worker that has its turn, or the one that gives the partition up. Only the claim of a queued item
// is shared; see queued.
type item struct {
	msg        *kafkaadapter.Message
	bad        error // why it must not run at all
	otherTopic bool  // its first topic is another one: its record may be from there
	labelled   bool  // Config.Label was asked
	carried    int   // attempts that its letter reports

	slot   pipeline.Slot
	claim  *dedup.Claim       // set once Acquired
	answer *dedup.Claim       // to the claimer's question, between asking and sorting
	run    context.Context    // of the kept claim
	end    context.CancelFunc // ends the renewal
	under  context.Context    // the context for its handler when the store was asked

	before    int         // attempts that others have made, as far as is known
	over      atomic.Bool // it holds no claim any more
	queued    bool        // in the list of [queued]
	prior     *item       // in that list
	next      *item       // in that list
	begun     bool        // the handler was called under the claim that is held
	landed    bool        // the effect has happened; its record is not confirmed
	landedAt  time.Time   // when its handler had returned, for Observer.Recorded
	tries     int         // failures in a row, for the backoff
	polls     int         // questions in a row that did not win the claim, for the backoff
	uncertain bool        // its worker must find out
	waits     *waits      // made when it has to wait: few do
}

// waits has the times of a message that waits.
type waits struct {
	due      time.Time     // of a message in a topic of Attempts.Delayed
	standing time.Time     // since when it waits to be the suspect that runs
	polling  time.Time     // since when the store is asked about it in vain
	busy     time.Time     // since when it has been in flight elsewhere; zero: it is not
	backoff  time.Duration // the last one
}

func (it *item) wait() *waits {
	if it.waits == nil {
		it.waits = new(waits)
	}
	return it.waits
}

// notBusy notes that the message is not in flight elsewhere, as far as is known.
func (it *item) notBusy() {
	if it.waits != nil {
		it.waits.busy = time.Time{}
	}
}

// Assign makes a partition. It starts nothing.
func (e *Engine) Assign(at Assignment) (*Partition, error) {
	p := &Partition{cfg: e, at: at, base: context.WithoutCancel(at.Context),
		scope: e.scopes.Topic(at.Topic)}
	p.ctx, p.stop = context.WithCancelCause(at.Context)
	p.pending.ready = make(chan struct{}, 1)
	t := &e.Tuning
	p.backpressure = pipeline.NewBackpressure(pipeline.BackpressureConfig{
		High: t.HighWater, Low: t.LowWater, Level: p.tracker.Len,
		Pause:  func() { p.pause(true) },
		Resume: func() { p.pause(false) },
	})
	if i, ok := e.delays[at.Topic]; ok {
		p.delay = e.Attempts.Delayed[i].Delay
	}
	queues := pipeline.KeyQueuesConfig{Workers: t.Workers, Order: e.order, OnStop: p.fail}
	if e.BatchHandler != nil {
		queues.Batch = t.BatchMax
	}
	var err error
	p.queues, err = pipeline.NewBatchKeyQueues(p.base, queues, p.process, alone)
	p.asks = pipeline.NewGather(t.BatchMax, endSenders, p.askBatch)
	p.ends = pipeline.NewGather(t.BatchMax, endSenders, p.endBatch)
	k, _ := e.parkings.LoadOrStore(at.Topic, new(parking))
	p.parking = k.(*parking) //nolint:errcheck,forcetypeassert // the map has nothing else
	p.identified.Store(e.identified.has(TopicPartition{at.Topic, at.Partition}))
	p.origins = driver.Origin{Source: e.group + "/" + at.Topic, // neither may contain a slash
		Partition: at.Partition, Generation: at.Generation}
	if e.Own == nil { // otherwise a store digests the source for each message, up to four times
		p.origins.SourceDigest, p.origins.Source = p.origins.Digest(), ""
	}
	return p, err
}

// pause pauses or resumes fetching.
func (p *Partition) pause(on bool) {
	p.at.Pause(on)
	if hook := p.cfg.Observer.Paused; hook != nil {
		hook(p.at.Topic, p.at.Partition, on)
	}
}

// Context ends when no more messages may be taken. Call [Partition.End] then.
func (p *Partition) Context() context.Context { return p.ctx }

// Start begins to commit the partition, and to claim the messages that are taken.
func (p *Partition) Start() error {
	if err := p.at.Committer.Add(p.at.Topic, p.at.Partition, &p.tracker); err != nil {
		p.stop(err)
		return p.errorf(err)
	}
	p.cfg.shown.add(p)
	if hook := p.cfg.Observer.Assigned; hook != nil {
		hook(p.at.Topic, p.at.Partition, p.at.Generation)
	}
	loop := func(run func(context.Context) error, failed *error) {
		p.claiming.Go(func() {
			if *failed = run(p.ctx); *failed != nil {
				p.fail(*failed)
			}
		})
	}
	if p.claims() {
		loop(p.claimLoop, &p.claimer)
	}
	if p.cfg.Own != nil {
		loop(p.own, &p.owner.failed)
	}
	return nil
}

// End gives a started partition up. It returns the reason if the partition could not go on.
func (p *Partition) End() error {
	p.stop(ErrRevoked)
	p.claiming.Wait()
	p.giveUp()
	p.cfg.shown.remove(p)
	if err := p.queues.Err(); errors.Is(err, pipeline.ErrNoDecision) {
		return p.errorf(fmt.Errorf("a handler ended its goroutine: %w", err))
	}
	return cmp.Or(p.queues.Err(), p.claimer, p.owner.failed)
}

// fail stops the consumer: this partition at once, then the others.
func (p *Partition) fail(err error) {
	p.stop(err) // first: until then the claimer claims again what the queues refuse
	p.at.Halt()
	p.cfg.Logger.Error("kafkaadapter: stopping", "topic", p.at.Topic, "partition", p.at.Partition,
		"error", err)
}

// Take takes messages that have arrived, in the order of their offsets. It waits for the store and
// for handlers only at the high mark, and no longer than the constant breath. It returns an error
// for an offset that is not above the one before, and the partition ends: its state no longer
// describes the messages that are delivered.
//
// The partition keeps the messages: they no longer belong to the caller.
func (p *Partition) Take(messages []kafkaadapter.Message) error {
	items := make([]item, len(messages))
	for i := range messages {
		items[i].msg, items[i].end = &messages[i], noEnd
		p.cfg.identify(&items[i], &p.scope)
		p.putOffTo(&items[i])
	}
	p.note(items)
	first, err := p.tracker.TrackAll(len(items),
		func(i int) int64 { return items[i].msg.Offset })
	if err != nil {
		return p.errorf(err) // none of them is run: nobody has seen them
	}
	taken := make([]*item, len(items))
	for i := range items {
		items[i].slot, taken[i] = first.Plus(i), &items[i]
	}
	if p.claims() {
		p.pending.add(taken)
	} else {
		p.submit(taken)
	}
	p.breathe()
	p.backpressure.Check()
	return nil
}

func noEnd() {}

// breath is how long a partition at its high mark may drain before it is paused.
const breath = 20 * time.Millisecond

// breathe waits a moment for what is in flight to fall below the high mark. A pause is expensive
// for a fast partition:
//
//  1. While it is paused, the client fetches the other partitions of its broker.
//  2. If they have no messages, that fetch takes its whole MaxWaitTime.
//  3. Only the fetch after it asks for the resumed partition again.
//
// The other partitions wait during a breath, too. But a slow partition is then paused for much
// longer than that, so they do not wait often.
func (p *Partition) breathe() {
	full := func() bool {
		return p.tracker.Len() >= p.cfg.Tuning.HighWater && p.backpressure.Reasons() == 0
	}
	if !full() {
		return
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); full() && time.Since(began) < breath; {
		select {
		case <-tick.C:
		case <-p.ctx.Done():
			return
		}
	}
}

// submit hands items to the queues. Stopped KeyQueues take none: the items then go back to pending
// and are given back, like those that were never claimed.
func (p *Partition) submit(items []*item) {
	if err := p.queues.SubmitAll(items, queueKey); err != nil {
		p.pending.add(items)
	}
}

// queueKey returns Kafka's key, or nil if the key is missing or empty, which means no order.
func queueKey(it *item) []byte {
	if len(it.msg.Key) == 0 {
		return nil
	}
	return it.msg.Key
}

// done finishes messages: their records exist, or they are parked durably.
func (p *Partition) done(items ...*item) {
	for _, it := range items {
		p.drop(it)
	}
	n := p.tracker.FinishAll(len(items), func(i int) pipeline.Slot { return items[i].slot })
	if n > 0 {
		p.at.Committer.Finished(n)
		p.backpressure.Ease()
	}
}

// drop forgets an item's claim: the claim has ended, or lapses.
func (p *Partition) drop(it *item) {
	it.end()
	it.over.Store(true)
	if p.cfg.Allow.TakeOver {
		p.cfg.abandoned.remove(it)
	}
	it.claim, it.run = nil, nil
}

func (p *Partition) errorf(err error) error {
	return fmt.Errorf("kafkaadapter: %s/%d: %w", p.at.Topic, p.at.Partition, err)
}

// warn logs what happened to a message.
func (p *Partition) warn(what string, it *item, err error) {
	p.cfg.Logger.Warn("kafkaadapter: "+what, "topic", p.at.Topic, "partition", p.at.Partition,
		"offset", it.msg.Offset, "error", err)
}
