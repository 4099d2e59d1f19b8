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
	// back from them; has room for every shard, so that no worker is left behind on it
	done   chan report
	calls  chan int // shards, of which a call that took long has ended
	over   chan struct{}
	shards []shard
	queue  []int // in hand, but not yet a worker's
	epoch  int   // of the topics that the shards' bounds are about
	final  finality

	timer  *time.Timer   // of the next poll
	next   time.Time     // when that is
	polled time.Time     // when the database was last asked
	cost   time.Duration // of the last poll
	idle   bool          // it has found nothing to do
	deadTo time.Time     // until then the beginnings of the shards are taken for rows that are dead
	report reporter
	found  time.Time // when there was last something to publish
	askDue time.Time // when to ask for scheduled messages that are due
	errors int       // of polls, in a row
}

// shard is the state of one in a running relay. The first fields belong to the worker that has it.
type shard struct {
	limit    int       // messages to read, so that they fit BatchBytes
	failures int       // of turns, in a row
	sure     bool      // the last turn ended well: published messages can be deleted
	waiting  time.Time // since when all its messages wait, or zero
	until    time.Time // it waits
	calls    []*call   // that have not ended
	lock     *locked   // kept for them

	// The dispatcher's.
	inHand bool
	again  bool // it had messages when it was in hand
	ended  bool // a call has ended when it was in hand
	bound
}

// bound is up to which id a shard is known to hold only messages of topics that are left out.
type bound struct {
	low    int64     // the polls begin behind it; zero: at the beginning
	since  time.Time // when low was seen
	next   int64     // what it may become
	seen   time.Time // when next was seen
	lookAt time.Time // when the whole shard is looked at, though nothing is behind low
	looked time.Time // when it was last taken only to move final
	whole  bool      // the next turn looks at it
	// final is up to which id nothing else can be committed either: reads begin behind it.
	final   int64
	finalTo time.Time // when it is forgotten
}

const (
	// settled is how long after it was seen a bound takes the place of an earlier one: a message
	// before it that is committed later than that is found when the whole shard is looked at.
	settled = time.Second
	// wholeLook is how rarely that is. It is more often while a bound is new, so that a message
	// that is committed d after it was seen is found within 2d.
	wholeLook = 2 * time.Second
	firstLook = 20 * time.Millisecond
	// costly is a poll that more than rows that are there must have been read for.
	costly = 2 * time.Millisecond
	// behindShare bounds how much of the time a shard is read that has nothing but messages that
	// are left out.
	behindShare = 3
)

// saw moves the bound. Final is the id up to which the look has seen all that will ever be there.
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

// from is the id behind which the next turn looks.
func (b *bound) from() int64 {
	if b.whole {
		return 0
	}
	return b.low
}

// lookDue is when the whole shard is looked at. Behind a final id the polls find all there is.
func (b *bound) lookDue() time.Time {
	if b.final > 0 && b.low == b.final {
		return b.finalTo
	}
	return b.lookAt
}

// report is what came of one turn.
type report struct {
	shard int
	found bool // messages were published
	more  bool // there are likely more
	rests bool // it is to wait, until shard.until
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

// isDead reports whether the relay looks for the part of each shard that has no messages any more.
// It does so for a while after a poll that was expensive: rows that were deleted, and that an old
// snapshot keeps the database from removing, are passed over by every read from the beginning.
func (d *dispatcher) isDead(now time.Time) bool {
	return d.relay.statements.writers != "" && now.Before(d.deadTo)
}

func (d *dispatcher) pollAt(next time.Time) {
	d.next = next
	d.timer.Reset(time.Until(next))
}

// pollBy has the database asked at that time, unless it is asked before, or does not answer.
func (d *dispatcher) pollBy(at time.Time) {
	if d.errors > 0 {
		return
	}
	gap := max(pollGap, d.cost)
	// A poll that finds nothing costs a tenth of the time, however often it is asked for.
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

// ended has a shard looked at of which a call has ended. It is called by any goroutine.
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
	case r.more, s.again: // also when nothing was found: it may have come after the turn had looked
		d.take(r.shard)
	}
	s.again, s.ended = false, false
	if shards, at := d.relay.topics.next(); len(shards) > 0 {
		d.pollBy(time.Now())
	} else if !at.IsZero() {
		d.pollBy(at)
	}
}

// renew forgets the bounds when a topic has come back: its messages are before them.
func (d *dispatcher) renew() {
	epoch, out := d.relay.topics.now()
	tracks := out || d.isDead(time.Now())
	if epoch == d.epoch && tracks {
		return
	}
	for i := range d.shards {
		d.shards[i].bound = bound{}
	}
	if !tracks { // it may be long until a topic fails, and ids may count anew by then
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

// poll takes every shard that has messages and does not wait, in an order of its own, so that
// relays do not follow each other around. It returns after what time to poll again.
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
		// No longer than at other times: when the database is back nobody tells.
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

// overlooked takes the shards that no poll finds: those with a probe to make, and those that are
// looked at as a whole. It returns when to do that again.
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

// lookIsDue reports whether a shard is to be read only to learn up to where it is empty: the last
// poll was expensive, and more ids have become final since the last such look.
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
