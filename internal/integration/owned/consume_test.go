package owned_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/onceward/onceward/contrib/owned"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// tend owns a partition, or tries to acquire it, for as long as it is wanted.
func (w *worker) tend(ctx context.Context, where partition) {
	epoch := w.wire.expect(where)
	for ctx.Err() == nil {
		o, count, err := w.acquire(ctx, where)
		if err != nil {
			wait := 20 * time.Millisecond
			if errors.Is(err, owned.ErrAmnesia) {
				w.ledger.write(record{kind: refused, source: where.source, part: where.part})
				wait = 200 * time.Millisecond
			}
			if !expected(err) && ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, "acquire", where, err)
			}
			pauseFor(ctx, wait)
			continue
		}
		c := &consumer{
			worker: w, where: where, o: o, count: count, epoch: epoch, d: w.dedup[where.source],
			seen:  w.stores[where.source],
			lease: w.cfg.Sources[where.source].LeaseTTL, both: where.part%2 == 1,
			atOnce: w.cfg.Batch,
		}
		if err := c.consume(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "process", w.cfg.Child, where, err)
		}
		w.release(where, o, epoch.Load())
	}
}

// release gives a partition up, and records whether the process still had it.
func (w *worker) release(where partition, o *owned.Ownership, epoch uint64) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	from := time.Now().UnixNano()
	switch err := o.Release(ctx); {
	case err != nil:
		fmt.Fprintln(os.Stderr, "release", where, err)
	case errors.Is(context.Cause(o.Context()), owned.ErrReleased):
		w.ledger.write(record{kind: released, source: where.source, part: where.part, epoch: epoch,
			from: from})
	}
}

// expected reports whether Acquire failed because another process has the partition, or another
// partition count, or because data is lost. An InputError means that this process wants a partition
// back that it is about to release.
func expected(err error) bool {
	var held *owned.HeldError
	var input *dedup.InputError
	return errors.As(err, &held) || errors.As(err, &input) || errors.Is(err, owned.ErrAmnesia) ||
		errors.Is(err, owned.ErrCount)
}

func (w *worker) acquire(ctx context.Context, where partition) (*owned.Ownership, int32, error) {
	count, err := w.feed.count(where.source)
	if err != nil {
		return nil, 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	o, err := w.stores[where.source].Acquire(ctx, owned.Partition{
		Source: sourceName(where.source), Number: int32(where.part), Count: count,
	})
	return o, count, err
}

// consumer is one partition for as long as it is held: the API, as a program would use it by hand.
type consumer struct {
	*worker
	where partition
	o     *owned.Ownership
	count int32
	epoch interface{ Load() uint64 }
	d     *dedup.Deduper
	seen  *witness
	lease time.Duration
	both  bool // ends are sent together with the next claims

	next    int64        // the offset to read
	flushed int64        // what can be committed once all ends are on record
	ends    []completion // ends that are not on record yet
	refused bool         // an earlier end was refused
	atOnce  int          // how many messages to claim
	late    bool         // some messages did not begin in time
}

// completion is an end that is still to be sent.
type completion struct {
	of   *dedup.Claim
	run  uint64 // 0: there was no effect
	err  error  // of the handler
	idle bool   // it never began
	sent int64  // when it was first sent; 0: not yet
}

// message is a key at an offset.
type message struct {
	key    uint64
	offset int64
}

var errAgain = errors.New("begin again at the committed offset")

func keyName(key uint64) string { return "k" + strconv.FormatUint(key, 36) }

// alive reports whether the partition is ours, and no other process wants it.
func (c *consumer) alive(ctx context.Context) bool {
	return ctx.Err() == nil && c.o.Context().Err() == nil
}

func (c *consumer) consume(ctx context.Context) error {
	for begin := true; c.alive(ctx); {
		if begin {
			at, err := c.feed.committed(c.where)
			if err != nil {
				return err
			}
			c.next, c.flushed, c.ends, begin = at, at, nil, false
		}
		keys, err := c.feed.read(c.where, c.next, c.cfg.Batch)
		if err != nil {
			return err
		}
		if len(keys) == 0 {
			err = c.flush(ctx)
			pauseFor(ctx, 2*time.Millisecond)
		} else {
			err = c.process(ctx, keys)
		}
		switch {
		case errors.Is(err, errAgain):
			begin = true
			pauseFor(ctx, 5*time.Millisecond)
		case err != nil:
			return err
		}
	}
	err := c.flush(context.WithoutCancel(ctx))
	if (err == nil || errors.Is(err, errAgain)) && c.o.Context().Err() == nil {
		err = c.leave(context.WithoutCancel(ctx))
	}
	if err != nil && !errors.Is(err, errAgain) {
		return err
	}
	return nil
}

// process handles messages until all are done. The last ends may still have to be sent.
func (c *consumer) process(ctx context.Context, keys []uint64) error {
	pending := make([]message, len(keys))
	for i, key := range keys {
		pending[i] = message{key, c.next + int64(i)}
	}
	for len(pending) > 0 {
		if !c.alive(ctx) {
			return errAgain
		}
		n := min(len(pending), c.atOnce)
		left, err := c.once(ctx, pending[:n:n])
		if err != nil {
			return err
		}
		if len(left) == n && !pauseFor(ctx, 5*time.Millisecond) {
			return errAgain
		}
		c.adapt()
		pending = append(left, pending[n:]...)
	}
	c.next += int64(len(keys))
	if c.both {
		return nil
	}
	return c.flush(ctx)
}

// adapt makes a slow machine claim fewer messages at once: messages that do not begin in time are
// given back, and claimed again.
func (c *consumer) adapt() {
	if c.late {
		c.atOnce = max(c.atOnce/2, 4)
	} else {
		c.atOnce = min(c.atOnce*2, c.cfg.Batch)
	}
	c.late = false
}

// misplaced reports whether a message is in another partition than its key belongs to.
func (c *consumer) misplaced(m message) bool {
	return partitionOf(m.key, c.count) != c.where.part
}

// place calls Misplaced before each claim of a misplaced message. On a slow machine a batch may be
// claimed again after the effect of an earlier call has ended.
func (c *consumer) place(of []message) error {
	if !slices.ContainsFunc(of, c.misplaced) {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.o.Context(), 5*time.Second)
	defer cancel()
	if err := c.o.Misplaced(ctx); err != nil {
		return errors.Join(errAgain, c.flushNow(context.Background()))
	}
	return nil
}

// once claims the messages that are left and runs those that it got. A message that was begun
// before is run alone, because it may kill its process.
func (c *consumer) once(ctx context.Context, pending []message) (left []message, err error) {
	claims, claimed, err := c.claim(ctx, pending, true)
	if err != nil {
		return nil, err
	}
	var suspects []message
	for i, claim := range claims {
		m := pending[i]
		if claim.Outcome == dedup.Unknown || claim.Outcome == dedup.Acquired && claim.Attempt > 1 {
			c.remember(m, claim, claimed)
		}
		switch {
		case claim.Alias != nil:
			left = append(left, m)
		case claim.Outcome == dedup.Duplicate:
			c.ledger.write(record{kind: duplicate, key: m.key, from: claimed.UnixNano()})
		case claim.Outcome == dedup.Acquired:
			if !c.run(ctx, claim, m, claimed) {
				left = append(left, m)
			}
			if time.Since(claimed) > c.lease/2 { // ends are sent before their claims lapse
				if err := c.flushNow(ctx); err != nil {
					return nil, err
				}
			}
		case claim.Outcome == dedup.InFlight && claim.Attempt > 0 && claim.Record.Remaining <= 0:
			suspects = append(suspects, m)
		default:
			left = append(left, m)
		}
	}
	c.dawdle(pending[0].key)
	if len(suspects) == 0 && len(left) == 0 {
		return nil, nil
	}
	if err := c.flushNow(ctx); err != nil {
		return nil, err
	}
	for _, m := range suspects {
		done, err := c.alone(ctx, m)
		if err != nil {
			return nil, err
		}
		if !done {
			left = append(left, m)
		}
	}
	return left, nil
}

// alone claims one message that was begun before, and runs it while no other message is in flight.
func (c *consumer) alone(ctx context.Context, m message) (done bool, err error) {
	if !c.alive(ctx) {
		return false, nil
	}
	claims, claimed, err := c.claim(ctx, []message{m}, false)
	if err != nil {
		return false, err
	}
	claim := claims[0]
	c.remember(m, claim, claimed)
	switch claim.Outcome {
	case dedup.Duplicate:
		c.ledger.write(record{kind: duplicate, key: m.key, from: claimed.UnixNano()})
		return true, nil
	case dedup.Acquired:
		done = c.run(ctx, claim, m, claimed)
		return done, c.flushNow(ctx)
	}
	return false, nil
}

// remember records the answer that may later explain a missing attempt.
func (c *consumer) remember(m message, claim *dedup.Claim, claimed time.Time) {
	c.ledger.write(record{
		kind: answered, source: c.where.source, part: c.where.part, key: m.key,
		attempt: uint32(claim.Attempt),
		epoch:   c.epoch.Load(), seq: uint64(claim.Outcome), from: claimed.UnixNano(),
	})
}

// claim claims messages. If both is set, it sends the ends of the batch before in the same round
// trip.
func (c *consumer) claim(ctx context.Context, of []message, onlyNew bool) ([]*dedup.Claim,
	time.Time, error) {
	if err := c.place(of); err != nil {
		return nil, time.Time{}, err
	}
	reqs := make([]dedup.Request, len(of))
	for i, m := range of {
		reqs[i] = dedup.Request{
			Key: keyName(m.key), OnlyNew: onlyNew,
			Origin: driver.Origin{Source: sourceName(c.where.source),
				Partition: int32(c.where.part), Offset: m.offset},
		}
	}
	claimed := time.Now()
	if len(c.ends) == 0 {
		if err := c.commit(); err != nil {
			return nil, claimed, err
		}
		claims, err := c.d.ClaimBatch(ctx, reqs)
		return claims, claimed, err
	}
	errs, claims, err := c.d.CompleteAndClaim(ctx, c.completions(), reqs)
	if err != nil {
		return nil, claimed, err
	}
	if err := c.told(errs, claimed.UnixNano()); err != nil {
		return nil, claimed, errors.Join(err, c.giveBack(claims))
	}
	if len(c.ends) > 0 {
		return claims, claimed, nil
	}
	return claims, claimed, c.commit()
}

// giveBack ends the claims of messages that will not run.
func (c *consumer) giveBack(claims []*dedup.Claim) error {
	for _, claim := range claims {
		if claim.Outcome == dedup.Acquired && claim.Alias == nil {
			c.ends = append(c.ends, completion{of: claim, idle: true})
		}
	}
	return c.flushNow(context.Background())
}

// run runs the effect of a message, if there is still time for it. It reports whether it did.
func (c *consumer) run(ctx context.Context, claim *dedup.Claim, m message, claimed time.Time) bool {
	if time.Since(claimed) > c.lease*8/10 || c.o.Context().Err() != nil {
		c.ends = append(c.ends, completion{of: claim, idle: true})
		c.late = true
		return false
	}
	if uint32(claim.Attempt) > c.cfg.Cap {
		c.ledger.write(record{kind: deadLetter, key: m.key, attempt: uint32(claim.Attempt)})
		c.ends = append(c.ends, completion{of: claim})
		return true
	}
	if claim.Attempt == 1 && m.key%c.cfg.Failing == 1 {
		c.ledger.write(record{kind: failed, key: m.key})
		c.ends = append(c.ends, completion{of: claim, err: errors.New("not this time")})
		return false
	}
	run := c.begin(claim, m, claimed)
	if c.cfg.Poison[m.key] {
		c.ledger.write(record{kind: dying})
		die()
	}
	c.dawdle(m.key)
	if m.key%c.cfg.Slow == 2 {
		_, stop := claim.KeepAlive(ctx)
		pauseFor(context.Background(), c.lease*3/2)
		defer stop()
	}
	c.ledger.write(record{kind: runEnded, seq: run})
	c.ends = append(c.ends, completion{of: claim, run: run})
	return true
}

// begin records that an effect begins.
func (c *consumer) begin(claim *dedup.Claim, m message, claimed time.Time) (run uint64) {
	run = c.ledger.runs.Add(1)
	c.ledger.write(record{
		kind: runBegun, source: c.where.source, part: c.where.part, key: m.key,
		epoch:   c.epoch.Load(),
		attempt: uint32(claim.Attempt), seq: run, from: claimed.UnixNano(),
		proven: c.seen.begins(c.where, m, run),
	})
	return run
}

// dawdle leaves time for the process to be killed, or stopped, inside an effect and between effects
// and marks.
func (c *consumer) dawdle(key uint64) {
	if key%c.cfg.Dawdling == 3 {
		pauseFor(context.Background(), 12*time.Millisecond)
	}
}

func (c *consumer) completions() []dedup.Completion {
	all := make([]dedup.Completion, len(c.ends))
	for i, e := range c.ends {
		all[i] = dedup.Completion{Claim: e.of, Err: e.err, NotAttempted: e.idle,
			InTime: e.err == nil && !e.idle}
	}
	return all
}

// flush sends all ends and commits the offset of the done messages.
func (c *consumer) flush(ctx context.Context) error {
	if err := c.flushNow(ctx); err != nil {
		return err
	}
	return c.commit()
}

// commit commits the offset of the next message. All ends are on record.
func (c *consumer) commit() error {
	if c.flushed == c.next {
		return nil
	}
	c.flushed = c.next
	return c.feed.commit(c.where, c.next)
}

// flushNow sends all ends, again and again until the result of each is known.
func (c *consumer) flushNow(ctx context.Context) error {
	for len(c.ends) > 0 {
		sent := time.Now().UnixNano()
		if err := c.told(c.d.CompleteBatch(context.WithoutCancel(ctx), c.completions()),
			sent); err != nil {
			return err
		}
		if len(c.ends) > 0 {
			pauseFor(ctx, 5*time.Millisecond)
		}
	}
	return nil
}

// told handles the results of the ends that were sent. An end whose result is unknown is sent
// again, unless the partition is lost. After a refused end, all messages since the last commit are
// consumed again.
func (c *consumer) told(errs []error, sent int64) error {
	var again []completion
	var records []record
	var why error
	lost := 0
	for i, e := range c.ends {
		if e.sent == 0 {
			e.sent = sent
		}
		var err error
		if errs != nil {
			err = errs[i]
		}
		switch {
		case err == nil && e.run > 0:
			records = append(records, record{kind: markAcked, seq: e.run, from: e.sent})
		case err == nil:
		case dedup.OutcomeUnknown(err) && c.o.Context().Err() == nil:
			again = append(again, e)
		default:
			c.refused = true
			why, lost = err, lost+1
			if e.run > 0 {
				records = append(records, record{kind: markLost, seq: e.run, from: e.sent})
			}
		}
	}
	c.ends = again
	if why != nil {
		c.refusedWith(lost, sent, why)
	}
	if len(records) > 0 {
		c.ledger.write(records...)
	}
	if c.refused && len(again) == 0 {
		c.refused, c.next = false, c.flushed
		return errAgain
	}
	return nil
}
