package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// session is one Run of a relay.
type session struct {
	*Relay
	calls      context.Context // of the publisher's calls
	kept       chan struct{}   // has one entry for each lock that outlasts its turn
	dispatcher *dispatcher
}

// job is a shard to look at.
type job struct {
	shard int
	// up to this id only messages of topics that are left out were seen; zero: not known
	low int64
	// up to this id there are no other messages, as long as epoch and server stay the same
	final  int64
	epoch  int
	server int64
	// dead says that the turn should report up to where the shard is empty
	dead bool
}

// look is what a turn has seen at the beginning of its shard: see bound.
type look struct {
	// up to this id there are only messages of topics that are left out; negative: not looked
	low    int64
	at     time.Time
	epoch  int   // of the list of those topics
	server int64 // that was read
	all    bool  // no topic was left out: there is nothing at all up to low
}

// outcome is the outcome of one turn.
type outcome struct {
	publishResult *publishResult
	parked        []Parked
	waits         bool // there are messages, and all of them wait
	behind        bool // there are only messages of topics that are left out
	full          bool // there may be more behind the rows that were read
	left          bool // there are others, which wait
	slow          bool // calls continue, whose topics are left out from now on
	look          look
	err           error // the shard must rest
}

func (o *outcome) found() bool { return o.err == nil && len(o.publishResult.acknowledged) > 0 }

// more says whether to read again at once. When a topic is left out from now on, the messages
// behind those of the topic get their turn.
func (o *outcome) more() bool {
	return o.found() && (o.full || o.left) ||
		o.err == nil && (o.slow || len(o.publishResult.failed)+len(o.publishResult.topics) > 0)
}

// publishBatch publishes one batch of a shard, if nobody else has the shard.
func (s *session) publishBatch(work context.Context, j job) report {
	began := time.Now()
	state := &s.dispatcher.shards[j.shard]
	o := s.serve(work, j, state)
	s.notify(work, &o)
	rep := report{shard: j.shard, found: o.found(), more: o.more(), rests: o.waits || o.behind ||
		o.err != nil, look: o.look}
	switch {
	case o.err != nil:
		state.until = time.Now().Add(s.cfg.retry().Delay(state.failures, 0, nil))
		state.failures++
	case rep.found:
		state.failures = 0
	}
	state.rest(o.waits, began, &s.cfg)
	if o.behind && o.err == nil && !o.waits {
		state.until = time.Now().Add(min(max(behindShare*time.Since(began), s.cfg.least()),
			s.cfg.PollMax))
	}
	return rep
}

// rest puts off the next read of a shard in which all messages wait. The longer they wait, and the
// longer a read takes, the longer the pause is. Without it the relay would read such a shard at
// every poll, and other shards may make it poll all the time.
func (s *shard) rest(waits bool, began time.Time, cfg *RelayConfig) {
	if !waits {
		s.waiting = time.Time{}
		return
	}
	if s.waiting.IsZero() {
		s.waiting = began
	}
	now := time.Now()
	s.until = now.Add(min(max(now.Sub(s.waiting)/idleShare, 10*now.Sub(began), cfg.least()),
		cfg.PollMax))
}

var errTooLong = errors.New("outbox: a part of a turn took too long")

// budget returns a context whose end can be moved. So each part of a turn has its own time limit,
// and a slow part leaves enough time to the next. A context that has ended stays ended.
func budget(ctx context.Context, first time.Duration) (inner context.Context,
	next func(time.Duration), end func()) {
	inner, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(first, func() { cancel(errTooLong) })
	return inner, func(limit time.Duration) {
		timer.Reset(limit)
	}, func() { timer.Stop(); cancel(nil) }
}

// because adds the cause of ctx's end to an error.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// hold takes the shard, or continues with the lock that an earlier turn has kept for calls that had
// not ended. It returns nil when another relay has the shard.
func (s *session) hold(work context.Context, no int, state *shard) (*locked, error) {
	if l := state.lock; l != nil {
		state.lock = nil
		l.next(prepare)
		return l, nil
	}
	ctx, next, end := budget(work, prepare)
	l, err := s.lock(ctx, no)
	if l == nil {
		err = because(ctx, err)
		end()
		return nil, err
	}
	l.ctx, l.next, l.budget = ctx, next, end
	return l, nil
}

// keep reports whether the lock, which occupies a connection, may outlast this turn. A lease
// occupies none.
func (s *session) keep(l *locked) bool {
	if l.tx == nil || l.release != nil {
		return true
	}
	select {
	case s.kept <- struct{}{}:
		l.release = func() { <-s.kept }
		return true
	default:
		return false
	}
}

// serve runs one turn, in the transaction that holds the lock, or under a lease.
func (s *session) serve(work context.Context, j job, state *shard) (o outcome) {
	began := time.Now()
	o.publishResult, o.look.low = &publishResult{}, -1
	l, err := s.hold(work, j.shard, state)
	if l == nil {
		o.err = err
		s.topics.skipShard(j.shard)
		s.settleLate(work, j.shard, state, &o)
		return o
	}
	defer func() {
		o.err = because(l.ctx, o.err)
		if state.lock != l {
			l.end()
		}
	}()
	p, err := s.gather(l, j, state, &o)
	// A process that was suspended meanwhile may have lost the shard to another.
	if err == nil && time.Since(began) >= prepare {
		err = errTooLong
	}
	if err != nil {
		p.give(s.topics)
		o.err = because(l.ctx, err)
		l.end()
		s.settleLate(work, j.shard, state, &o)
		return o
	}
	s.send(l, j.shard, state, p, &o)
	l.next(grace)
	s.finish(l, j.shard, state, &o)
	return o
}

// send gives the messages to the publisher and collects its answers. Calls that take longer than
// others continue: their topics are left out until they have ended, and the lock is kept for them.
func (s *session) send(l *locked, no int, state *shard, p *plan, o *outcome) {
	l.next(s.cfg.PublishTimeout + linger)
	var sent, probes []*call
	for _, b := range p.batches {
		if c := s.publish(b, nil); s.topics.isKnown(c.topic) {
			sent = append(sent, c)
		} else {
			probes = append(probes, c)
		}
	}
	for _, one := range p.probes {
		probes = append(probes, s.publish(one.batch, one.counted))
	}
	state.calls = append(append(state.calls, sent...), probes...)
	began := time.Now()
	await(sent, min(s.topics.patience(), s.cfg.PublishTimeout+linger))
	await(probes, time.Until(began.Add(probePatience)))
	o.publishResult.add(s.collect(no, state))
	o.publishResult.failed = append(o.publishResult.failed, p.refused...)
	for _, c := range state.calls {
		if c.counted == nil {
			c.counted = s.topics.slow(c.topic, no)
			o.slow = true
		}
	}
	if len(state.calls) > 0 && !s.keep(l) {
		await(state.calls, time.Until(state.calls[len(state.calls)-1].overdue(&s.cfg)))
		o.publishResult.add(s.collect(no, state))
		o.slow = false
	}
}

// collect takes the calls that have ended, and those that are overdue.
func (s *session) collect(no int, state *shard) *publishResult {
	all := &publishResult{}
	state.calls = slices.DeleteFunc(state.calls, func(c *call) bool {
		switch {
		case c.hasEnded():
			if c.counted != nil {
				s.topics.returned(c.counted)
			}
			all.add(s.judge(no, c, c.results))
		case time.Now().Before(c.overdue(&s.cfg)):
			return false
		default:
			if c.counted == nil {
				c.counted = s.topics.slow(c.topic, no)
			}
			all.add(s.judge(no, c, unacknowledged(len(c.batch.rows), "Publish has not returned")))
			s.abandon(c)
		}
		return true
	})
	return all
}

// abandon stops waiting for a call, and other relays may take the shard. Another call of the topic
// could hang as well, and calls would pile up. So the topic has no probe until this call has
// returned.
func (s *session) abandon(c *call) {
	if c.counted == nil {
		return
	}
	go func() {
		<-c.ended
		s.topics.returned(c.counted)
	}()
}

// judge decides what to do with the messages of a call, and records what the call says about their
// topic.
func (s *session) judge(no int, c *call, results []error) *publishResult {
	v := c.batch.judge(results)
	switch {
	case len(v.acknowledged) > 0:
		s.topics.succeeded(c.topic, time.Since(c.began))
	case v.whole == nil:
		s.topics.undecided(c.topic, no)
	default:
		failures, delay := s.topics.failed(c.topic, no, v.whole)
		v.topics = append(v.topics, &TopicError{
			Topic: c.topic, Failures: failures, Messages: len(c.batch.rows), Delay: delay,
			Err: v.whole,
		})
		for i := range v.waiting {
			v.waiting[i].delay = 2 * delay // the next probe is for the messages behind them
		}
	}
	return v
}

// finish settles the known results. While calls continue it does so in a separate transaction, and
// keeps the lock.
func (s *session) finish(l *locked, no int, state *shard, o *outcome) {
	if len(state.calls) == 0 {
		if !o.publishResult.empty() {
			o.parked, o.err = s.settle(l.ctx, l, no, o.publishResult)
			state.sure = o.err == nil
		}
		return
	}
	if !o.publishResult.empty() {
		o.parked, o.err = s.settleApart(l.ctx, no, o.publishResult)
		state.sure = o.err == nil
	}
	if o.err == nil && l.tx != nil {
		state.lock = l
		l.next(s.cfg.PublishTimeout + linger + grace)
	}
	s.watch(no, state)
}

// settleLate settles without the lock of the shard. It deletes acknowledged messages, whoever has
// the shard.
func (s *session) settleLate(work context.Context, no int, state *shard, o *outcome) {
	v := s.collect(no, state)
	if !v.empty() {
		ctx, cancel := context.WithTimeoutCause(work, grace, errTooLong)
		defer cancel()
		parked, err := s.settleApart(ctx, no, v)
		o.publishResult, o.parked, o.err = v, parked, errors.Join(o.err, err)
	}
	s.watch(no, state)
}

// watch makes the dispatcher look at the shard when one of its calls has ended or is overdue.
func (s *session) watch(no int, state *shard) {
	for _, c := range state.calls {
		if c.watched {
			continue
		}
		c.watched = true
		go func() {
			await([]*call{c}, time.Until(c.overdue(&s.cfg)))
			s.dispatcher.ended(no)
		}()
	}
}

// notify reports the outcome of a turn. Its transaction has ended, or stays open for calls that
// have not. So the callbacks may use the database.
func (s *session) notify(ctx context.Context, o *outcome) {
	for _, p := range o.parked {
		s.cfg.OnPark(context.WithoutCancel(ctx), p)
	}
	s.reportFailures(o.publishResult)
	if o.err != nil {
		s.stats.failures.Add(1)
		s.cfg.OnError(o.err)
	}
}

// reportFailures reports failures of topics and of single messages.
func (r *Relay) reportFailures(v *publishResult) {
	for _, t := range v.topics {
		r.stats.failures.Add(1)
		r.cfg.OnError(t)
	}
	for _, f := range v.failed {
		r.stats.failures.Add(1)
		r.cfg.OnError(fmt.Errorf("outbox: message %q to %s, attempt %d: %w", f.row.ID, f.row.Topic,
			f.row.attempts+1, f.err))
	}
	for _, f := range v.overtaken {
		r.stats.overtaken.Add(1)
		r.cfg.OnError(fmt.Errorf("outbox: message %q to %s: %w: %w", f.row.ID, f.row.Topic,
			ErrOvertaken, f.err))
	}
}
