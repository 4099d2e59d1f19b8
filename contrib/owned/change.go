package owned

import (
	"context"
	"time"

	"github.com/onceward/onceward/contrib/owned/internal/script"
	"github.com/onceward/onceward/dedup/driver"
)

// Renew implements [driver.Store]. A key that has begun without the inner store is held as long as
// its partition is held, so its renewal mostly takes no round trip. MarkIrreversible and Steps make
// it a claim of the inner store.
func (s *Store) Renew(ctx context.Context, renewals []driver.Renewal) []driver.Answer {
	out := answers(len(renewals))
	if refuseEnded(ctx, out) {
		return out
	}
	f := &renewing{s: s, ctx: ctx, now: s.now(), items: make([]renewal, len(renewals))}
	for i := range renewals {
		f.items[i] = renewal{ch: &renewals[i], ans: &out[i]}
	}
	f.sort.sort(len(renewals), func(i int) uint64 { return s.table.hash(&renewals[i].ID) })
	f.sort.each(s.table, f.meet)
	f.hold()
	f.promote()
	f.inner()
	return out
}

// renewal is one item of Renew under way.
type renewal struct {
	ch    *driver.Renewal
	ans   *driver.Answer
	e     *entry
	o     *Ownership
	how   completion
	fence uint64
	runs  int
	lapse time.Duration // when the touch was, as the time since Store.born
}

// renewing is one call of Renew.
type renewing struct {
	s     *Store
	ctx   context.Context
	now   time.Duration
	sort  byShard
	items []renewal
}

// meet decides how to answer one renewal, by the entry of its key. The shard's mutex is held.
func (f *renewing) meet(sh *shard, i int) {
	it := &f.items[i]
	e := sh.live(f.sort.hashes[i], &it.ch.ID, f.now)
	switch {
	case e == nil: // it may be a claim that only the inner store knows
		it.how, it.fence = inside, it.ch.Fence
		return
	case !e.isOf(it.ch.Token, it.ch.Fence) && e.state == begun:
		it.ans.Record = e.record(f.now)
		return
	case !e.isOf(it.ch.Token, it.ch.Fence):
		it.how, it.fence = inside, it.ch.Fence
		return
	}
	it.e, it.o = e, e.o
	switch {
	case e.state == ended && e.end != passed:
		it.ans.Record = e.endRecord(f.s, f.now)
	case e.state == asking:
	case e.state == begun && (it.ch.Irreversible || it.ch.Steps != nil):
		it.how = promoted
	case e.state == begun:
		it.how = marking // held with the partition
	default:
		it.how, it.fence, it.runs, it.lapse = inside, e.inner, e.runs, e.touched
	}
}

// hold renews the keys that are held with their partitions.
func (f *renewing) hold() {
	turns := make(map[*Ownership]*batchWrite)
	var order []*batchWrite
	for i := range f.items {
		it := &f.items[i]
		if it.how == marking && !it.o.covers(f.now+it.ch.Lease) && turns[it.o] == nil {
			turns[it.o] = &batchWrite{o: it.o}
			order = append(order, turns[it.o])
		}
	}
	if len(order) > 0 {
		f.s.roundTrip(f.ctx, order, nil)
	}
	for _, t := range order {
		if t.reply.Err == nil && t.reply.Answer == script.AnswerLapsed {
			_ = t.o.reacquire(f.ctx) // covers shows whether it worked
		}
	}
	f.sort.each(f.s.table, func(_ *shard, i int) {
		if it := &f.items[i]; it.how == marking {
			f.held(it, turns[it.o])
		}
	})
}

// held answers the renewal of one key that is held with its partition. The shard's mutex is held.
func (f *renewing) held(it *renewal, t *batchWrite) {
	it.how = replied
	e := it.e
	switch {
	case it.o.covers(f.now+it.ch.Lease) && e.state == begun && it.o.lostFor() == nil:
		e.until, e.hold = f.now+it.ch.Lease, it.ch.Hold
		it.ans.Held, it.ans.Record = true, e.record(f.now)
	case it.o.lostFor() != nil || e.state != begun:
		it.ans.Record = driver.Record{State: driver.StateInProgress, Attempt: 1}
	case t != nil && t.reply.Err != nil:
		it.ans.Err = t.reply.Err
	default:
		it.ans.Err = errLate
	}
}

// covers reports whether the partition is held until the time until, counted from Store.born.
func (o *Ownership) covers(until time.Duration) bool { return until-o.s.now() <= o.left() }

// promote claims each key that declares irreversibility or steps at the inner store.
func (f *renewing) promote() {
	var all []*promotion
	var of []*renewal
	for i := range f.items {
		if it := &f.items[i]; it.how == promoted {
			all = append(all, &promotion{e: it.e, lease: it.ch.Lease, hold: it.ch.Hold})
			of = append(of, it)
		}
	}
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
		}
	}
}

// inner renews the claims of the inner store.
func (f *renewing) inner() {
	f.touch()
	var inner []driver.Renewal
	var of []*renewal
	for i := range f.items {
		if it := &f.items[i]; it.how == inside {
			ch := *it.ch
			ch.Fence = it.fence
			inner, of = append(inner, ch), append(of, it)
		}
	}
	if len(inner) == 0 {
		return
	}
	for n, ans := range f.s.inner.Renew(f.ctx, inner) {
		it := of[n]
		*it.ans = ans
		if ans.Err != nil {
			continue
		}
		f.s.outward(&it.ch.ID, &it.ans.Record, it.runs)
		if ans.Held && it.e != nil {
			f.renewed(it)
		}
	}
}

// renewed notes how long the inner store's claim lasts.
func (f *renewing) renewed(it *renewal) {
	sh := f.s.table.shard(it.e.hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	it.e.until, it.e.hold = f.now+it.ch.Lease, it.ch.Hold
}

// touch renews the touches that were written half a Hold ago or earlier.
func (f *renewing) touch() {
	var all []touching
	var of []*renewal
	for i := range f.items {
		it := &f.items[i]
		if it.how == inside && it.e != nil && f.now-it.lapse > f.s.opts.Hold/2 {
			all = append(all, touching{o: it.o, member: member{is: it.e.member, e: it.e}})
			of = append(of, it)
		}
	}
	if len(all) == 0 {
		return
	}
	f.s.touch(f.ctx, all)
	for n := range all {
		it := of[n]
		switch {
		case all[n].err != nil:
			it.how, it.ans.Err = replied, all[n].err
		case !all[n].written:
			it.how, it.ans.Record = replied, driver.Record{State: driver.StateInProgress,
				Attempt: 1}
		default:
			f.touched(it)
		}
	}
}

func (f *renewing) touched(it *renewal) {
	sh := f.s.table.shard(it.e.hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	it.e.touched = f.now
}
