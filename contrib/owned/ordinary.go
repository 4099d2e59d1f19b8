package owned

import (
	"errors"

	"github.com/onceward/onceward/bloom"
	"github.com/onceward/onceward/contrib/owned/internal/script"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// grant answers the keys that were proven new.
func (c *claiming) grant() {
	for _, p := range c.parts {
		if len(p.write.begins) == 0 {
			continue
		}
		refused := p.granted()
		fence := p.write.reply.Fence
		for _, i := range p.items {
			it := &c.items[i]
			if it.way != proven && it.way != resent {
				continue
			}
			if refused != nil {
				c.refuse(it, refused)
				continue
			}
			it.ans.Outcome, it.ans.Mine = driver.Acquired, it.way == resent
			it.ans.Record = driver.Record{State: driver.StateInProgress, Attempt: 1, Fence: fence,
				Remaining: it.req.Lease, Origin: digested(&it.req.Origin)}
			c.done(it, 1)
		}
	}
}

// digested returns an origin in the form in which a store returns it.
func digested(o *driver.Origin) driver.Origin {
	d := *o
	d.Source, d.SourceDigest = "", o.Digest()
	return d
}

// refuse answers a key whose begin is not on record, or may not be on record. If that is not known,
// the key stays as it is, and the same claim sends the same begin again.
func (c *claiming) refuse(it *item, why error) {
	switch {
	case errors.Is(why, errRemoteOwner):
		c.unbegin(it)
		c.drop(it)
		*it.ans = remoteOwnerAnswer(c.s.opts.Lease)
	case errors.Is(why, errShared):
		c.unbegin(it)
		it.way, it.says, it.why = ordinary, bloom.Unknown, bloom.Shared
		return
	case errors.Is(why, driver.ErrStoreFull) && it.way == proven:
		c.unbegin(it)
		c.drop(it)
		it.ans.Err = why
	default:
		it.ans.Err = why
	}
	c.done(it, 0)
}

// unbegin takes a key out of a batch that did not begin.
func (c *claiming) unbegin(it *item) {
	sh := c.s.table.shard(it.e.hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if it.e.state != begun {
		return
	}
	it.e.settle()
	it.e.state = asking
}

// drop removes an entry that no answer has mentioned.
func (c *claiming) drop(it *item) {
	if it.e == nil || !it.listed {
		return
	}
	sh := c.s.table.shard(it.e.hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if it.e.state == asking {
		sh.drop(it.e)
	}
}

// found answers the keys that are done according to the sets, and sends the others the ordinary
// way.
func (c *claiming) found() {
	for _, p := range c.parts {
		for n, it := range p.asked {
			r := &p.ask.reply
			switch {
			case r.Err != nil:
				c.drop(it)
				it.ans.Err = r.Err
				c.done(it, 0)
			case len(r.Found) == 0:
				c.drop(it)
				*it.ans = remoteOwnerAnswer(c.s.opts.Lease)
				c.done(it, 0)
			case r.Found[n].Done():
				c.drop(it)
				*it.ans = driver.Answer{Outcome: driver.Duplicate, Record: c.s.doneRecord()}
				c.cleared(it)
				c.done(it, 0)
			default:
				it.way, it.found = ordinary, r.Found[n]
			}
		}
	}
}

// cleared notes that a suspect has turned out to be done.
func (c *claiming) cleared(it *item) {
	if it.runs == 0 {
		return
	}
	o := it.part.o
	o.mu.Lock()
	defer o.mu.Unlock()
	o.clear(it.member)
}

// doneRecord returns what is known of a marked key.
func (s *Store) doneRecord() driver.Record {
	return driver.Record{State: driver.StateSucceeded, Attempt: 1, Remaining: s.opts.Window}
}

// rest sends the remaining keys to the inner store. It touches them first, so that a later owner
// also asks there.
func (c *claiming) rest() {
	c.leave()
	todo := c.touch()
	if len(todo) == 0 {
		return
	}
	reqs := make([]driver.ClaimRequest, len(todo))
	for n, it := range todo {
		reqs[n], it.todo = *it.req, int32(n+1) // the index of an item
	}
	answers := c.s.inner.Claim(c.ctx, reqs)
	c.askOthers(todo, answers)
	for n, it := range todo {
		c.passed(it, &answers[n])
	}
}

// touch touches the keys that go to the inner store, and returns those whose touch is on record.
func (c *claiming) touch() []*item {
	var todo []*item
	var turns []*batchWrite
	for i := range c.items {
		it := &c.items[i]
		if it.way != ordinary {
			continue
		}
		p := it.part
		if !p.touching {
			p.write, p.touching = batchWrite{o: p.o}, true
			turns = append(turns, &p.write)
		}
		p.write.touches = append(p.write.touches, member{is: it.member})
		todo = append(todo, it)
	}
	if len(todo) == 0 {
		return nil
	}
	c.s.roundTrip(c.ctx, turns, nil)
	n := 0
	for _, it := range todo {
		t := &it.part.write
		it.part.shared = it.part.shared || t.reply.Answer == script.AnswerShared
		switch {
		case t.didTouch():
			todo[n] = it
			n++
			continue
		case t.reply.Err != nil:
			it.ans.Err = t.reply.Err
		default:
			*it.ans = remoteOwnerAnswer(c.s.opts.Lease)
		}
		c.drop(it)
		c.done(it, 0)
	}
	return todo[:n]
}

// leave answers the OnlyNew requests whose key has had an attempt. It asks the inner store, which
// may know of further attempts.
func (c *claiming) leave() {
	var ids []driver.ID
	var of []*item
	for i := range c.items {
		if it := &c.items[i]; it.way == ordinary && it.req.OnlyNew && it.runs > 0 {
			ids, of = append(ids, it.req.ID), append(of, it)
		}
	}
	if len(ids) == 0 {
		return
	}
	for n, ans := range c.s.inner.Lookup(c.ctx, ids) {
		it := of[n]
		rec := ans.Record
		if rec.State == driver.StateAbsent {
			rec = driver.Record{State: driver.StateInProgress}
		}
		c.s.outward(&it.req.ID, &rec, it.runs)
		switch {
		case ans.Err != nil:
			it.ans.Err = ans.Err
		case rec.State == driver.StateSucceeded || rec.State == driver.StateFailed:
			*it.ans = driver.Answer{Outcome: driver.Duplicate, Record: rec}
		case rec.State == driver.StateUncertain:
			*it.ans = driver.Answer{Outcome: driver.Uncertain, Record: rec}
		default:
			if rec.State != driver.StateInProgress {
				rec.Remaining = 0
			}
			*it.ans = driver.Answer{Outcome: driver.InFlight, Record: rec}
		}
		c.drop(it)
		it.way = answered
		c.done(it, 0)
	}
}

// passed passes the answer of the inner store on to the caller.
func (c *claiming) passed(it *item, ans *driver.Answer) {
	*it.ans = *ans
	if ans.Err != nil {
		c.drop(it)
		c.done(it, 0)
		return
	}
	if ans.Outcome != driver.Acquired {
		c.s.outward(&it.req.ID, &it.ans.Record, it.runs)
		c.drop(it)
		if ans.Outcome == driver.Duplicate {
			c.cleared(it)
		}
		c.done(it, 0)
		return
	}
	it.ans.Record.Attempt += it.runs
	c.keep(it, ans)
	if it.says == bloom.Maybe && !it.found.Touched() && it.runs == 0 {
		it.part.o.filter.Wrong(1)
	}
	c.done(it, 0)
}

// keep notes a claim that the inner store has granted. The claim's fence is the larger of two
// fences: that of the touch, which grows from one window to the next, and that of the inner store,
// which grows from one claim to the next.
func (c *claiming) keep(it *item, ans *driver.Answer) {
	s := c.s
	hash := s.table.hash(&it.req.ID)
	sh := s.table.shard(hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.find(hash, &it.req.ID)
	switch {
	case e != nil && e.token == it.req.Token && e.state == claimed && ans.Mine:
		it.ans.Record.Fence = e.fence
		return
	case e != nil && e != it.e && e.state == begun && e.until > s.now():
		// Our lease was over before the answer came, and the attempt that has begun since keeps
		// the key.
		*it.ans = driver.Answer{Outcome: driver.InFlight, Record: e.record(s.now())}
		return
	case e != nil && e != it.e:
		sh.drop(e)
		e.suspected()
		e = nil
	}
	if e == nil {
		e = c.entry(it, hash)
		sh.put(e)
	}
	e.state, e.runs, e.inner, e.attempt = claimed, it.runs, ans.Record.Fence, it.ans.Record.Attempt
	e.fence = max(ans.Record.Fence, it.part.write.reply.Fence)
	e.touched = it.part.write.sent
	it.ans.Record.Fence = e.fence
}

// askOthers looks for the granted keys of shared partitions in all other partitions. It may run
// after the claim, because one script replaces a begin by its mark, and a shared partition accepts
// no new begin.
func (c *claiming) askOthers(todo []*item, answers []driver.Answer) {
	for _, p := range c.parts {
		if !p.shared {
			continue
		}
		var of []int
		var all []int64
		for _, i := range p.items {
			n := int(c.items[i].todo) - 1
			if n >= 0 && answers[n].Outcome == driver.Acquired && answers[n].Err == nil {
				of, all = append(of, n), append(all, todo[n].member)
			}
		}
		if len(of) == 0 {
			continue
		}
		found, err := p.o.askOthers(c.ctx, all)
		for i, n := range of {
			if err != nil {
				answers[n] = driver.Answer{Err: err}
				continue
			}
			c.meetRemote(todo[n], &answers[n], &found[i])
		}
		c.giveBack(todo, answers, of)
	}
}

// meetRemote changes the answer for a key that another partition knows.
func (c *claiming) meetRemote(it *item, ans *driver.Answer, found *remoteState) {
	switch {
	case found.done:
		it.back = driver.StateSucceeded
		*ans = driver.Answer{Outcome: driver.Duplicate, Record: c.s.doneRecord()}
	case found.live:
		it.back = driver.StateReleased
		*ans = remoteOwnerAnswer(c.s.opts.Lease)
	default:
		it.runs += found.runs
		// the same answer as in leave: no attempt is in flight, and this claim did not count as an
		// attempt
		if it.req.OnlyNew && found.runs > 0 {
			it.back = driver.StateReleased
			*ans = driver.Answer{Outcome: driver.InFlight,
				Record: driver.Record{State: driver.StateInProgress,
					Attempt: ans.Record.Attempt - 1}}
		}
	}
}

// giveBack ends the claims of the inner store that no caller gets.
func (c *claiming) giveBack(todo []*item, answers []driver.Answer, of []int) {
	var changes []driver.Finish
	for _, n := range of {
		it := todo[n]
		if answers[n].Err != nil {
			it.back = driver.StateReleased
		}
		if it.back == driver.StateAbsent {
			continue
		}
		changes = append(changes, driver.Finish{
			ID: it.req.ID, Token: it.req.Token, State: it.back,
			NotAttempted:  it.back == driver.StateReleased,
			EffectApplied: it.back == driver.StateSucceeded, Hold: it.req.Hold,
			Window: c.s.opts.Window,
			Origin: it.req.Origin, Until: c.s.born.Add(c.now + it.req.Lease),
		})
	}
	if len(changes) > 0 {
		c.s.inner.Finish(c.ctx, changes) // if this fails, the claim lapses with its lease
	}
}

// done counts one answer. The observer gets this answer in the end.
func (c *claiming) done(it *item, saved int) {
	it.part.o.stats.count(it.says, saved)
	it.saved, it.over = saved, true
}

// notify tells the observer about all answers. The caller holds no lock, because the hook may
// release a partition, and may panic.
func (c *claiming) notify() {
	hook := c.s.opts.Observer.Filtered
	if hook == nil {
		return
	}
	for i := range c.items {
		if it := &c.items[i]; it.over {
			hook(dedup.Event{
				ID: it.req.ID, Outcome: it.ans.Outcome, FilterAnswer: it.says.String(),
				Reason: it.why.String(), Saved: it.saved, Err: it.ans.Err,
			})
		}
	}
}
