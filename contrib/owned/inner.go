package owned

import (
	"context"
	"errors"
	"time"

	"github.com/onceward/onceward/contrib/owned/internal/script"
	"github.com/onceward/onceward/dedup/driver"
)

// rest carries out the changes that are not marks: those for the inner store, and those of a caller
// that holds nothing.
func (f *finishing) rest() {
	if !f.any(promoted, inside, stranger) {
		return
	}
	f.promote()
	f.strangers()
	f.touch()
	f.end()
}

func (f *finishing) any(how ...completion) bool {
	for i := range f.items {
		for _, h := range how {
			if f.items[i].how == h {
				return true
			}
		}
	}
	return false
}

// each calls fn with each change that is carried out in the way how.
func (f *finishing) each(how completion, fn func(it *finish)) {
	for i := range f.items {
		if f.items[i].how == how {
			fn(&f.items[i])
		}
	}
}

// promote claims the keys of the promoted changes at the inner store.
func (f *finishing) promote() {
	var all []*promotion
	var of []*finish
	f.each(promoted, func(it *finish) {
		all = append(all, &promotion{e: it.e, lease: it.ch.Lease, hold: it.ch.Hold})
		of = append(of, it)
	})
	f.s.promote(f.ctx, all)
	for n, p := range all {
		it := of[n]
		it.how = replied
		switch {
		case p.err != nil:
			it.ans.Err = p.err
		case p.held:
			it.how, it.fence, it.lapse = inside, p.fence, f.s.now()
		default:
			it.ans.Record = p.record
			if p.stale {
				it.o.stale()
			}
		}
	}
}

// errTaken reports that a key began without the inner store, and that store has the key in flight
// for another attempt. That happens briefly when a request for the key comes in another partition
// of a shared source.
var errTaken = errors.New("owned: another attempt has the key at the inner store")

// promotion moves a claim that had begun without the inner store to that store, under the same
// token.
type promotion struct {
	e           *entry
	lease, hold time.Duration

	held   bool
	stale  bool
	fence  uint64
	record driver.Record
	err    error
}

// promote touches and claims.
func (s *Store) promote(ctx context.Context, all []*promotion) {
	if len(all) == 0 {
		return
	}
	touches := make([]touching, len(all))
	for n, p := range all {
		touches[n] = touching{o: p.e.o, member: member{is: p.e.member, e: p.e}}
	}
	s.touch(ctx, touches)
	var reqs []driver.ClaimRequest
	var of []*promotion
	for n, p := range all {
		t := &touches[n]
		switch {
		case t.err != nil:
			p.err = t.err
		case !t.written:
			p.stale, p.record = true, driver.Record{State: driver.StateInProgress, Attempt: 1}
		default:
			reqs = append(reqs, p.request(s))
			of = append(of, p)
		}
	}
	if len(reqs) == 0 {
		return
	}
	for n, ans := range s.inner.Claim(ctx, reqs) {
		of[n].take(s, &ans)
	}
}

func (p *promotion) request(s *Store) driver.ClaimRequest {
	e := p.e
	lease := p.lease
	if lease <= 0 {
		lease = s.opts.Lease / leaseRequests
	}
	return driver.ClaimRequest{
		ID: e.id, Token: e.token, Lease: lease, Hold: p.hold,
		Origin: driver.Origin{Source: e.o.part.Source, Partition: e.o.part.Number,
			Offset: e.origin.offset, Generation: e.origin.generation},
	}
}

// take notes the inner store's answer. If that store has granted the claim, it has the claim and
// the count of attempts from then on.
func (p *promotion) take(s *Store, ans *driver.Answer) {
	e := p.e
	sh := s.table.shard(e.hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	switch {
	case ans.Err != nil:
		p.err = ans.Err
	case e.state == claimed: // by another call with the same token, meanwhile
		p.held, p.fence = true, e.inner
	case e.state != begun:
		p.record = ans.Record
	case ans.Outcome != driver.Acquired && ans.Outcome != driver.Duplicate &&
		ans.Outcome != driver.Uncertain:
		// its begin stays on record, because the key runs and the inner store does not know of it
		p.err = errTaken
	default:
		p.held, p.fence, p.record = ans.Outcome == driver.Acquired, ans.Record.Fence, ans.Record
		of := e.leave()
		if p.held {
			e.state, e.inner, e.touched = claimed, p.fence, s.now()
		} else {
			sh.drop(e)
		}
		o := e.o
		o.mu.Lock()
		defer o.mu.Unlock()
		o.settle(of)
	}
}

// touching is a touch that is written before a call of the inner store, and its result.
type touching struct {
	o *Ownership
	member

	written bool
	fence   uint64
	err     error
}

// touch writes touches, in one round trip for all partitions.
func (s *Store) touch(ctx context.Context, all []touching) {
	turns := make(map[*Ownership]*batchWrite, 1) // the last of each partition
	of := make([]*batchWrite, len(all))
	var order []*batchWrite
	for n := range all {
		t := turns[all[n].o]
		if t == nil || len(t.touches) == script.MaxMembers {
			t = &batchWrite{o: all[n].o}
			turns[all[n].o] = t
			order = append(order, t)
		}
		t.touches = append(t.touches, all[n].member)
		of[n] = t
	}
	if len(order) > 0 {
		s.roundTrip(ctx, order, nil)
	}
	for n := range all {
		t := of[n]
		all[n].err, all[n].written, all[n].fence = t.reply.Err, t.didTouch(), t.reply.Fence
		if all[n].err == nil && t.reply.Answer == script.AnswerAmnesia {
			all[n].err = ErrAmnesia
		}
	}
}

// strangers carries out the changes of callers that hold nothing. A key that is done in the sets
// stays as it is. Changes of other keys go to the inner store.
func (f *finishing) strangers() {
	byOwner := make(map[*Ownership][]*finish)
	var nowhere []*finish
	f.each(stranger, func(it *finish) {
		if it.o == nil || it.o.lostFor() != nil {
			it.o, _ = f.s.owner(&it.ch.Origin)
		}
		switch {
		case it.o == nil:
			nowhere = append(nowhere, it)
		case it.known:
			it.how, it.fence = inside, it.ch.Fence
		default:
			byOwner[it.o] = append(byOwner[it.o], it)
		}
	})
	var asks []*ask
	for o, all := range byOwner {
		a := &ask{o: o}
		for _, it := range all {
			a.items = append(a.items, lookup{member: f.s.members.of(&it.ch.ID), in: anywhere})
		}
		asks = append(asks, a)
	}
	if len(asks) > 0 {
		f.s.roundTrip(f.ctx, nil, asks)
	}
	for _, a := range asks {
		for n, it := range byOwner[a.o] {
			f.asked(it, a, n)
		}
	}
	f.nowhere(nowhere)
}

// asked decides about a stranger's change by what the sets know of its key.
func (f *finishing) asked(it *finish, a *ask, n int) {
	it.how = replied
	switch {
	case a.reply.Err != nil:
		it.ans.Err = a.reply.Err
	case len(a.reply.Found) == 0:
		it.ans.Err = errRemoteOwner
	case a.reply.Found[n].Done():
		it.ans.Record = f.s.doneRecord()
	default:
		it.how, it.fence, it.lapse = inside, it.ch.Fence, touchAnew
		it.e = nil
	}
}

// touchAnew stands for the time of a touch that does not exist.
const touchAnew = -1 << 62

// nowhere carries out changes of keys whose partition is not held here. A change goes to the inner
// store if that store has a record of the key.
func (f *finishing) nowhere(all []*finish) {
	if len(all) == 0 {
		return
	}
	ids := make([]driver.ID, len(all))
	for n, it := range all {
		ids[n] = it.ch.ID
	}
	for n, ans := range f.s.inner.Lookup(f.ctx, ids) {
		it := all[n]
		it.how = replied
		switch {
		case ans.Err != nil:
			it.ans.Err = ans.Err
		case ans.Record.State != driver.StateAbsent:
			it.how, it.fence, it.e = inside, it.ch.Fence, nil
		case it.ch.EffectApplied:
			it.ans.Err = input("Origin", "names no partition that this process holds")
		}
	}
}

// touch renews the touches of keys that the inner store will remember for longer than the touch
// lasts.
func (f *finishing) touch() {
	var all []touching
	var of []*finish
	f.each(inside, func(it *finish) {
		if it.o == nil || f.now-it.lapse <= f.s.opts.Hold/2 {
			return
		}
		if it.lapse == touchAnew && !it.ch.EffectApplied {
			return // the change cannot apply to a key without a touch
		}
		m := member{is: f.s.members.of(&it.ch.ID), e: it.e}
		all, of = append(all, touching{o: it.o, member: m}), append(of, it)
	})
	if len(all) == 0 {
		return
	}
	f.s.touch(f.ctx, all)
	for n := range all {
		switch it := of[n]; {
		case all[n].err != nil:
			it.how, it.ans.Err = replied, all[n].err
		case !all[n].written:
			it.how = replied
			it.o.stale()
			it.ans.Record = driver.Record{State: driver.StateInProgress, Attempt: 1}
		}
	}
}

// end sends the changes to the inner store.
func (f *finishing) end() {
	var changes []driver.Finish
	var of []*finish
	f.each(inside, func(it *finish) {
		ch := *it.ch
		ch.Fence = it.fence
		if ch.Attempt > it.runs {
			ch.Attempt -= it.runs
		}
		changes, of = append(changes, ch), append(of, it)
	})
	if len(changes) == 0 {
		return
	}
	for n, ans := range f.s.inner.Finish(f.ctx, changes) {
		f.passed(of[n], &ans)
	}
}

// passed passes the inner store's answer on to the caller.
func (f *finishing) passed(it *finish, ans *driver.Answer) {
	*it.ans = *ans
	if ans.Err != nil {
		return
	}
	f.s.outward(&it.ch.ID, &it.ans.Record, it.runs)
	hash := f.s.table.hash(&it.ch.ID)
	sh := f.s.table.shard(hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.find(hash, &it.ch.ID)
	if !ans.Written || e == nil {
		return
	}
	switch {
	case e.token == it.ch.Token && e.state == claimed:
		sh.linger(e, passed)
	case e.token != it.ch.Token && e.state == begun: // its effect has landed, whoever owns it now
		e.close(sh, overrun)
	}
	if it.ch.State == driver.StateSucceeded {
		e.o.mu.Lock()
		defer e.o.mu.Unlock()
		e.o.clear(e.member)
	}
}
