package owned

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/onceward/onceward/contrib/owned/internal/script"
	"github.com/onceward/onceward/dedup/driver"
)

// completion is the way in which a change is carried out.
type completion uint8

const (
	replied  completion = iota // it is answered
	marking                    // a mark in the sets
	promoted                   // the claim is made at the inner store first, and then ended there
	inside                     // the inner store has the claim
	stranger                   // its caller holds nothing here
)

// finishing is one call of Finish.
type finishing struct {
	s     *Store
	ctx   context.Context
	now   time.Duration
	sort  byShard
	items []finish
}

// finish is one change under way.
type finish struct {
	ch    *driver.Finish
	ans   *driver.Answer
	e     *entry
	o     *Ownership // nil for a stranger whose partition is not held here
	how   completion
	share batchSlot // of e, when it was found
	part  *part     // whose batch write marks it
	known bool      // the inner store knows the key: the sets need not be asked
	fence uint64
	runs  int
	lapse time.Duration // when the touch was, as the time since Store.born
}

var finishings = sync.Pool{New: func() any { return new(finishing) }}

// Finish implements [driver.Store].
func (s *Store) Finish(ctx context.Context, changes []driver.Finish) []driver.Answer {
	ended, _ := s.FinishClaim(ctx, changes, nil)
	return ended
}

// FinishClaim does Finish and Claim in one round trip for each partition's server: one batch write
// contains the marks of one batch and the begin of the next.
func (s *Store) FinishClaim(ctx context.Context, changes []driver.Finish,
	reqs []driver.ClaimRequest) (ended, claimed []driver.Answer) {
	ended, claimed = answers(len(changes)), answers(len(reqs))
	if refuseEnded(ctx, ended, claimed) {
		return ended, claimed
	}
	for len(changes) > atOnce {
		s.exchange(ctx, changes[:atOnce], ended[len(ended)-len(changes):][:atOnce], nil, nil)
		changes = changes[atOnce:]
	}
	first := min(len(reqs), atOnce)
	s.exchange(ctx, changes, ended[len(ended)-len(changes):], reqs[:first], claimed[:first])
	for at := first; at < len(reqs); at += atOnce {
		to := min(at+atOnce, len(reqs))
		s.exchange(ctx, nil, nil, reqs[at:to], claimed[at:to])
	}
	return ended, claimed
}

// exchange does the work of FinishClaim for as many items as fit into one batch write.
func (s *Store) exchange(ctx context.Context, changes []driver.Finish, ended []driver.Answer,
	reqs []driver.ClaimRequest, claimed []driver.Answer) {
	c, _ := claimings.Get().(*claiming)
	f, _ := finishings.Get().(*finishing)
	c.s, c.ctx, c.now = s, ctx, s.now()
	f.s, f.ctx, f.now = s, ctx, c.now
	f.plan(changes, ended)
	f.mark(c)
	c.gated(f, reqs, claimed)
	c.found()
	f.rest()
	c.rest()
	c.notify()
	f.free()
	c.free()
}

// gated does the steps that keep a release waiting. A hook of the filter may panic here, and even
// then gated opens the gates.
func (c *claiming) gated(f *finishing, reqs []driver.ClaimRequest, claimed []driver.Answer) {
	defer c.ungate()
	c.plan(reqs, claimed)
	c.enter()
	c.send()
	f.marked(c)
	c.grant()
}

// free keeps the arrays for the next call.
func (c *claiming) free() {
	clear(c.items)
	clear(c.parts)
	*c = claiming{sort: c.sort, items: c.items[:0], parts: c.parts[:0], group: c.group,
		queries: c.queries[:0], asked: c.asked[:0]}
	claimings.Put(c)
}

func (f *finishing) free() {
	clear(f.items)
	*f = finishing{sort: f.sort, items: f.items[:0]}
	finishings.Put(f)
}

// plan finds the entry of each change.
func (f *finishing) plan(changes []driver.Finish, answers []driver.Answer) {
	f.items = resize(f.items, len(changes))
	n := 0
	for i := range changes {
		if err := f.s.checkChange(&changes[i]); err != nil {
			answers[i].Err = err
			continue
		}
		f.items[n] = finish{ch: &changes[i], ans: &answers[i]}
		n++
	}
	f.items = f.items[:n]
	f.sort.sort(n, func(i int) uint64 { return f.s.table.hash(&f.items[i].ch.ID) })
	f.sort.each(f.s.table, f.meet)
}

// checkChange refuses a change with something that this store does not keep.
func (s *Store) checkChange(c *driver.Finish) error {
	switch {
	case c.State != driver.StateSucceeded && c.State != driver.StateReleased:
		return input("State", fmt.Sprintf("is %v; this store keeps only that a key has succeeded",
			c.State))
	case c.State == driver.StateSucceeded &&
		script.Millis(c.Window) != script.Millis(s.opts.Window):
		return input("Window", fmt.Sprintf("is %v; this store has Options.Window for all keys, %v",
			c.Window, s.opts.Window))
	case len(c.Result) > 0:
		return input("Result", "is set; this store keeps none")
	case c.Fingerprint != (driver.Fingerprint{}):
		return input("Fingerprint", "is set; this store keeps none")
	case c.With != nil:
		return input("With", "is set; this store writes nothing together with a mark")
	case c.NotAttempted && (c.State != driver.StateReleased || c.NotStarted):
		return input("NotAttempted", "goes with StateReleased, and without NotStarted")
	}
	return nil
}

// meet decides how to carry out one change, by the entry of its key. The shard's mutex is held.
func (f *finishing) meet(sh *shard, i int) {
	it := &f.items[i]
	e := sh.live(f.sort.hashes[i], &it.ch.ID, f.now)
	if e == nil {
		it.how = stranger
		return
	}
	it.e, it.o = e, e.o
	switch {
	case !e.isOf(it.ch.Token, it.ch.Fence):
		f.alien(it, e)
	case e.state == ended:
		f.again(it, e)
	case e.state == claimed:
		it.inner(e)
	case it.ch.NotAttempted:
		f.unused(sh, it, e)
	case e.state == asking:
		it.how = stranger
	case it.ch.State == driver.StateSucceeded:
		it.how, it.share = marking, batchSlot{of: e.batch, place: int(e.place)}
	default:
		it.how = promoted
	}
}

// inner prepares a change whose claim the inner store has.
func (it *finish) inner(e *entry) {
	it.how, it.fence, it.runs, it.lapse = inside, e.inner, e.runs, e.touched
}

// alien decides how to carry out a change whose key another attempt has.
func (f *finishing) alien(it *finish, e *entry) {
	it.how, it.known = stranger, e.state == claimed || e.state == ended && e.end == passed
	if e.state == begun && !it.ch.EffectApplied {
		it.how = replied
		it.ans.Record = e.record(f.now)
	}
}

// again answers a change whose key has ended before. The same change gets the same answer again.
func (f *finishing) again(it *finish, e *entry) {
	switch {
	case e.end == passed:
		it.inner(e)
	case e.end == unused && it.ch.EffectApplied:
		it.how = stranger
	default:
		same := e.end == marked && it.ch.State == driver.StateSucceeded ||
			e.end == unused && it.ch.NotAttempted
		*it.ans = driver.Answer{Held: same, Written: same, Record: e.endRecord(f.s, f.now)}
	}
}

// endRecord is the record of an entry that has ended here.
func (e *entry) endRecord(s *Store, now time.Duration) driver.Record {
	if e.end == unused {
		rec := e.record(now)
		rec.State, rec.Attempt, rec.Remaining = driver.StateReleased, 0, e.until+e.hold-now
		return rec
	}
	return s.doneRecord()
}

// unused gives back a key whose effect was not attempted. It takes no round trip, and counts no
// attempt. The shard's mutex is held.
func (f *finishing) unused(sh *shard, it *finish, e *entry) {
	if e.state == asking {
		sh.drop(e)
	} else {
		e.until, e.hold = f.now, it.ch.Hold
		e.close(sh, unused)
	}
	*it.ans = driver.Answer{Held: true, Written: true, Record: e.endRecord(f.s, f.now)}
	if e.state == gone {
		it.ans.Record = driver.Record{}
	}
}

// close ends a key that had begun. The shard's mutex is held.
func (e *entry) close(sh *shard, how end) {
	e.settle()
	sh.linger(e, how)
}

// mark puts the marks into the batch writes of their partitions.
func (f *finishing) mark(c *claiming) {
	for i := range f.items {
		it := &f.items[i]
		if it.how != marking {
			continue
		}
		it.part = c.part(it.o)
		t := &it.part.write
		t.marks = append(t.marks, member{is: it.e.member, e: it.e})
		t.settled = append(t.settled, it.share)
	}
}

// marked answers the marks, by the results of their batch writes.
func (f *finishing) marked(c *claiming) {
	marks := false
	for i := range f.items {
		marks = marks || f.items[i].how == marking
	}
	if !marks {
		return
	}
	for _, p := range c.parts {
		p.settled = p.settled[:0]
	}
	f.sort.each(f.s.table, func(sh *shard, i int) {
		it := &f.items[i]
		if it.how == marking {
			f.ended(sh, it, it.part)
		}
	})
	for _, p := range c.parts {
		p.o.settleAll(p.settled, &p.write)
	}
}

// ended answers one mark. The shard's mutex is held.
func (f *finishing) ended(sh *shard, it *finish, p *part) {
	t, e := &p.write, it.e
	switch {
	case e.state == claimed && e.token == it.ch.Token:
		// a release has moved the claim to the inner store while the mark was under way
		it.inner(e)
	case t.wrote() && e.state == begun:
		p.settled = append(p.settled, e.leave())
		sh.linger(e, marked)
		it.ans.Held, it.ans.Written, it.ans.Record = true, true, f.s.doneRecord()
	case t.wrote() && e.state == ended && e.end == marked:
		// the same change was sent twice at the same time, and the other one marked the key
		*it.ans = driver.Answer{Held: true, Written: true, Record: e.endRecord(f.s, f.now)}
	case t.wrote(): // another attempt had taken it over
		*it.ans = driver.Answer{Written: true, Record: f.s.doneRecord()}
	case t.reply.Err != nil:
		it.ans.Err = t.reply.Err
	case t.reply.Answer == script.AnswerStale:
		it.o.stale()
		it.ans.Record = driver.Record{State: driver.StateInProgress, Attempt: 1}
	case t.reply.Answer == script.AnswerAmnesia:
		it.ans.Err = ErrAmnesia
	default:
		it.ans.Err = fmt.Errorf("owned: mark: script answered %q", t.reply.Answer)
	}
}
