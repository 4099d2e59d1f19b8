package outbox

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// dispatcher hands the shards that have messages to the workers. It runs on one goroutine.
type dispatcher struct {
	relay *Relay
	jobs  chan job // to the workers
	// from the workers; has room for every shard, so that no worker blocks on it
	done   chan report
	calls  chan int // numbers of shards in which a long call has ended
	over   chan struct{}
	shards []shard
	queue  []int // in hand, but not yet given to a worker
	epoch  int   // of the list of topics for which the shards' bounds hold
	final  finality

	timer  *time.Timer   // of the next poll
	next   time.Time     // when that is
	polled time.Time     // when the database was last asked
	cost   time.Duration // of the last poll
	idle   bool          // the last poll has found nothing to do
	deadTo time.Time     // until then the relay assumes dead rows at the beginning of the shards
	report reporter
	found  time.Time // when there was last something to publish
	askDue time.Time // when to ask for scheduled messages that are due
	errors int       // of polls, in a row
}

// shard is the state of one shard in a running relay. The first fields belong to the worker that
// has it.
type shard struct {
	limit    int       // messages to read, so that they fit BatchBytes
	failures int       // of turns, in a row
	sure     bool      // the last turn ended well: published messages can be deleted
	waiting  time.Time // when all its messages began to wait, or zero
	until    time.Time // until then it rests
	calls    []*call   // that have not ended
	lock     *locked   // kept for these calls

	// These belong to the dispatcher.
	inHand bool
	again  bool // a poll found messages while it was in hand
	ended  bool // a call has ended while it was in hand
	bound
}

// bound is the id up to which a shard is known to hold only messages of topics that are left out.
type bound struct {
	low    int64     // polls begin behind this id; zero: at the beginning
	since  time.Time // when low was seen
	next   int64     // the candidate for the next low
	seen   time.Time // when next was seen
	lookAt time.Time // when to read the whole shard, even if nothing is behind low
	looked time.Time // when it was last read only to move final
	whole  bool      // the next turn reads the whole shard
	// final is the id up to which no other message can be committed any more: reads begin behind
	// it.
	final   int64
	finalTo time.Time // when final is forgotten
}

const (
	// settled is how old a new bound must be before it replaces the current one. A message before
	// the bound that is committed even later is found when the whole shard is read.
	settled = time.Second
	// wholeLook is the longest pause between two reads of the whole shard. While a bound is new the
	// pause is shorter, at least firstLook: a message that is committed d after the bound was seen
	// is found within 2d.
	wholeLook = 2 * time.Second
	firstLook = 20 * time.Millisecond
	// costly is the time from which on a poll must have read more than the existing rows.
	costly = 2 * time.Millisecond
	// behindShare bounds how much time goes into reading a shard that has only messages of topics
	// that are left out: it rests behindShare times as long as a read took.
	behindShare = 3
)

// saw moves the bound. final is the id up to which the look has seen every message that will ever
// be there.
func (b *bound) saw(l look, final int64) {
	if l.low < 0 {
		return
	}
	if l.all && final == 0 {
		return
	}
	if final = min(final, l.low); final > b.final {
		if b.final == 0 {
			b.finalTo = l.at.Add(finalFor)
		}
		b.final = final
	}
	if l.all {
		b.low, b.whole = b.final, false
		return
	}
	switch {
	case b.low == 0 || l.low < b.low:
		b.low, b.since = l.low, l.at
		b.next, b.seen = l.low, l.at
	case l.low < b.next:
		b.next, b.seen = l.low, l.at
	case l.at.Sub(b.seen) >= settled:
		b.low, b.since = b.next, b.seen
		b.next, b.seen = l.low, l.at
	}
	b.low = max(b.low, b.final)
	b.whole = false
	b.lookAt = l.at.Add(min(max(2*l.at.Sub(b.since), firstLook), wholeLook))
}

// from returns the id behind which the next turn begins to read.
func (b *bound) from() int64 {
	if b.whole {
		return 0
	}
	return b.low
}

// lookDue returns when to read the whole shard. When low is a final id, polls behind it find every
// message.
func (b *bound) lookDue() time.Time {
	if b.final > 0 && b.low == b.final {
		return b.finalTo
	}
	return b.lookAt
}

// report is the outcome of one turn.
type report struct {
	shard int
	found bool // messages were published
	more  bool // there are probably more
	rests bool // the shard rests until shard.until
	look  look
}

func newDispatcher(r *Relay) *dispatcher {
	n := r.box.dialect.shards
	d := &dispatcher{relay: r, jobs: make(chan job), done: make(chan report, n),
		calls: make(chan int),
		over:  make(chan struct{}), shards: make([]shard, n), found: time.Now()}
	for i := range d.shards {
		d.shards[i].limit = r.cfg.BatchSize
	}
	d.epoch, _ = r.topics.now()
	return d
}

func (d *dispatcher) run(ctx context.Context) {
	wake, stop := d.relay.box.relays.add()
	defer stop()
	d.timer, d.next = time.NewTimer(0), time.Now()
	defer d.timer.Stop()
	defer close(d.over)
	defer d.box().bounds.Store(nil)
	for {
		var jobs chan<- job
		var next job
		if len(d.queue) > 0 {
			d.renew()
			jobs, next = d.jobs, d.job(d.queue[0])
		}
		select {
		case <-ctx.Done():
			return
		case jobs <- next:
			d.queue = d.queue[1:]
		case r := <-d.done:
			d.back(r)
		case no := <-d.calls:
			if s := &d.shards[no]; s.inHand {
				s.ended = true
			} else {
				d.take(no)
			}
		case <-wake:
			d.pollBy(time.Now())
		case <-d.timer.C:
			wait := d.poll(ctx)
			d.pollAt(time.Now().Add(wait))
		}
	}
}

func (d *dispatcher) job(no int) job {
	s := &d.shards[no]
	return job{no, s.from(), s.final, d.epoch, d.final.server, d.isDead(time.Now())}
}

// isDead reports whether turns should find out up to where each shard is empty. They do so for a
// while after an expensive poll. An old snapshot may keep the database from removing deleted rows,
// and every read from the beginning passes over them.
func (d *dispatcher) isDead(now time.Time) bool {
	return d.relay.statements.writers != "" && now.Before(d.deadTo)
}

func (d *dispatcher) pollAt(next time.Time) {
	d.next = next
	d.timer.Reset(time.Until(next))
}

// pollBy moves the next poll to the time at, unless it is due earlier anyway, or polls fail.
func (d *dispatcher) pollBy(at time.Time) {
	if d.errors > 0 {
		return
	}
	gap := max(pollGap, d.cost)
	// Polls that find nothing take at most a tenth of the time, however often they are asked for.
	if d.idle {
		gap = max(pollGap, costFactor*d.cost)
	}
	if least := d.polled.Add(gap); at.Before(least) {
		at = least
	}
	if at.Before(d.next) {
		d.pollAt(at)
	}
}

// ended makes the dispatcher look at a shard in which a call has ended. Any goroutine may call it.
func (d *dispatcher) ended(no int) {
	select {
	case d.calls <- no:
	case <-d.over:
	}
}

func (d *dispatcher) back(r report) {
	s := &d.shards[r.shard]
	s.inHand = false
	if r.found {
		d.found = time.Now()
	}
	if d.renew(); r.look.epoch == d.epoch {
		s.saw(r.look, d.final.of(r.look))
	}
	switch {
	case s.ended:
		d.take(r.shard)
	case r.rests && !r.more:
		d.pollBy(s.until)
	case r.more, s.again: // also when nothing was found: a message may have come after the read
		d.take(r.shard)
	}
	s.again, s.ended = false, false
	if shards, at := d.relay.topics.next(); len(shards) > 0 {
		d.pollBy(time.Now())
	} else if !at.IsZero() {
		d.pollBy(at)
	}
}

// renew forgets the bounds when a topic has come back, because its messages are before them.
func (d *dispatcher) renew() {
	epoch, out := d.relay.topics.now()
	tracks := out || d.isDead(time.Now())
	if epoch == d.epoch && tracks {
		return
	}
	for i := range d.shards {
		d.shards[i].bound = bound{}
	}
	if !tracks { // the next failure of a topic may be far away, and ids may start again by then
		d.final = finality{}
	}
	if epoch != d.epoch {
		d.epoch = epoch
		d.pollBy(time.Now())
	}
}

func (d *dispatcher) take(no int) {
	d.shards[no].inHand = true
	d.queue = append(d.queue, no)
}

// poll takes every shard that has messages and does not rest. It takes them in a random order, so
// that relays do not follow each other from shard to shard. It returns the pause before the next
// poll.
func (d *dispatcher) poll(ctx context.Context) time.Duration {
	began := time.Now()
	busy, err := d.relay.busy(ctx, d.shards)
	d.polled = time.Now()
	d.cost, d.idle = d.polled.Sub(began), true
	if d.cost >= costly {
		d.deadTo = d.polled.Add(finalFor)
	}
	if err != nil {
		d.errors++
		d.forget()
		if ctx.Err() == nil {
			d.relay.cfg.OnError(err)
		}
		// The pause is at most PollMax, because nobody reports when the database is back.
		return min(max(d.relay.cfg.least(), d.relay.cfg.retry().Delay(d.errors-1, 0, nil)),
			d.relay.cfg.PollMax)
	}
	d.errors = 0
	wait := min(max(d.polled.Sub(d.found)/idleShare, d.relay.cfg.PollMin), d.relay.cfg.PollMax)
	rand.Shuffle(len(busy), func(i, j int) { busy[i], busy[j] = busy[j], busy[i] })
	for _, no := range busy {
		switch s := &d.shards[no]; {
		case s.inHand:
			s.again, d.idle = true, false
		case !d.polled.Before(s.until):
			d.idle = false
			s.whole = s.whole || !d.polled.Before(s.lookAt)
			d.take(no)
		default:
			wait = min(wait, s.until.Sub(d.polled))
		}
	}
	wait = min(wait, d.overlooked(), d.releaseDue(ctx))
	d.checkFinality(ctx)
	d.diagnose(ctx)
	d.renew()
	d.box().publishBounds(d)
	return max(wait, costFactor*d.cost)
}

// overlooked takes the shards that no poll finds: those with a probe to make, and those that must
// be read as a whole. It returns the pause until the next such shard.
func (d *dispatcher) overlooked() time.Duration {
	probes, at := d.relay.topics.next()
	for _, no := range probes {
		if !d.shards[no].inHand {
			d.take(no)
		}
	}
	for no := range d.shards {
		s := &d.shards[no]
		if !s.inHand && d.lookIsDue(s) {
			s.looked = d.polled
			d.take(no)
		}
		if s.low == 0 || s.inHand {
			continue
		}
		if !d.polled.Before(s.lookDue()) && !d.polled.Before(s.until) {
			s.whole = true
			if !d.polled.Before(s.finalTo) {
				s.final = 0
			}
			d.take(no)
		} else if at.IsZero() || s.lookDue().Before(at) {
			at = s.lookDue()
		}
	}
	if at.IsZero() {
		return d.relay.cfg.PollMax
	}
	return max(at.Sub(d.polled), pollGap)
}

// lookIsDue reports whether to read a shard only to learn up to where it is empty. It does so after
// an expensive poll, if more ids have become final since the last such read.
func (d *dispatcher) lookIsDue(s *shard) bool {
	return d.cost >= costly && d.isDead(d.polled) && s.final < d.final.id &&
		s.looked.Before(d.final.at) && !d.polled.Before(s.until)
}

func (d *dispatcher) box() *Outbox { return d.relay.box }

// busy asks which shards have messages.
func (r *Relay) busy(ctx context.Context, all []shard) (shards []int, err error) {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	from, end, err := r.box.fresh(ctx, r.cfg.DB)
	if err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	defer end()
	query, args := r.box.dialect.probing(r.statements, all)
	rows, err := from.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var no int
		if err := rows.Scan(&no); err != nil {
			return nil, fmt.Errorf("outbox: %w", err)
		}
		if no < 0 || no >= r.box.dialect.shards {
			return nil, fmt.Errorf("outbox: there are messages of shard %d", no)
		}
		shards = append(shards, no)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	return shards, nil
}
