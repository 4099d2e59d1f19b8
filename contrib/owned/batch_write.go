package owned

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceward/onceward/contrib/owned/internal/script"
)

// resends bounds how often one batch write is sent. It is sent again if it named a wrong
// generation, or after its partition was acquired again.
const resends = 5

// errBehind reports that a promoted server has lost batch writes. Nobody knows what else it has
// lost.
var errBehind = fmt.Errorf("%w: the server has lost batch writes that it had answered", ErrLost)

// batchWrite holds what one call has to write in one partition. One script writes all of it.
type batchWrite struct {
	o       *Ownership
	begins  []*begin
	marks   []member
	touches []member
	settled []batchSlot // of the marks
	others  int         // fields in Ended without a key that this batch write marks

	script.Batch // as it was sent last
	sent         time.Duration
	epoch, seq   uint64 // what it was sent with
	reply        script.Reply
}

// member is a member that goes into the filter, and then into a set.
type member struct {
	is int64
	e  *entry // nil for a caller that holds nothing
}

func (t *batchWrite) empty() bool {
	return len(t.begins)+len(t.marks)+len(t.touches) == 0
}

// call names the set, feeds the filter, and makes the script's call, in that order. If a member
// were in the store and not in the filter, its effect could happen a second time.
func (t *batchWrite) call() script.Call {
	o := t.o
	o.mu.Lock()
	self := o.selfLocked()
	t.epoch, t.seq = self.Epoch, self.Seq
	t.Begin, t.Ended = t.Begin[:0], t.Ended[:0]
	t.Ended = append(t.Ended, o.over...)
	o.over, t.others = nil, len(t.Ended)
	t.name()
	if n := len(t.marks) + len(t.touches); n > 0 {
		t.Gen, t.N = o.set(n)
		t.Fresh = o.names.fresh(t.Gen, t.N)
	}
	gen := o.gen
	o.mu.Unlock()
	for _, b := range t.begins {
		t.Begin = append(t.Begin, script.Field{Name: b.name, Blob: b.blob})
	}
	t.Marks = o.feedAll(t.Marks[:0], gen, t.marks)
	t.Touches = o.feedAll(t.Touches[:0], gen, t.touches)
	return script.NewBatch(o.keys(), self, &t.Batch)
}

// feedAll feeds members to the filter and returns them as the script takes them.
func (o *Ownership) feedAll(to []int64, gen int64, all []member) []int64 {
	for i := range all {
		o.add(gen, all[i].is, all[i].e)
		to = append(to, all[i].is)
	}
	return to
}

// add feeds a member to the filter's generation that gets its mark, unless the filter has it there.
func (o *Ownership) add(gen, member int64, e *entry) {
	if e != nil && e.gen.Load() == gen+1 {
		return
	}
	if feed := o.feed.Load(); feed != nil {
		_ = feed.Add(gen, filterKey(member)) // nobody asks the filter of a dead feed
	}
	if e != nil {
		e.gen.Store(gen + 1)
	}
}

// set names the fresh set that takes n more members. The mutex is held.
func (o *Ownership) set(n int) (gen int64, nth uint64) {
	g := o.sets[o.gen]
	if g == nil {
		g = &generation{}
		o.sets[o.gen] = g
		o.forgetSets()
	}
	if g.Newest == g.Folded || g.written+n > o.s.opts.setMembers() && g.written > 0 {
		g.next(o.forgets)
	}
	g.written += n
	return o.gen, g.Newest
}

// forgetSets drops generations that are out of every window. The mutex is held.
func (o *Ownership) forgetSets() {
	for gen := range o.sets {
		if gen < o.gen-int64(o.s.opts.Slices)-2 {
			delete(o.sets, gen)
		}
	}
}

// roundTrip sends batch writes and asks in one pipeline. It sends a batch write again if it named
// another generation, or if the lease had lapsed. It sends an ask again if members have moved to
// buckets that the ask had not named.
func (s *Store) roundTrip(ctx context.Context, turns []*batchWrite, asks []*ask) {
	for n := 1; ; n++ {
		s.round(ctx, turns, asks)
		asks = some(asks, (*ask).again)
		if n == resends {
			break
		}
		turns = some(turns, func(t *batchWrite) bool { return t.again(ctx) })
		if len(turns)+len(asks) == 0 {
			return
		}
	}
	for _, a := range asks {
		a.reply = script.Reply{Err: errors.New("owned: ask: sets are folded all the time")}
	}
}

// some returns a new list of the elements for which the function are returns true.
func some[T any](all []T, are func(T) bool) (list []T) {
	for _, one := range all {
		if are(one) {
			list = append(list, one)
		}
	}
	return list
}

// round is one pipeline.
func (s *Store) round(ctx context.Context, turns []*batchWrite, asks []*ask) {
	calls := make([]script.Call, 0, len(turns)+len(asks))
	for _, t := range turns {
		calls = append(calls, t.call())
	}
	for _, a := range asks {
		calls = append(calls, a.call())
	}
	sent := s.moment()
	replies := s.send(ctx, calls...)
	for i, t := range turns {
		t.take(&replies[i], sent)
	}
	for i, a := range asks {
		a.take(&replies[len(turns)+i])
	}
}

// again reports whether the batch write is worth sending again.
func (t *batchWrite) again(ctx context.Context) bool {
	switch {
	case t.reply.Err != nil:
		return false
	case t.reply.Answer == script.AnswerEdge:
		return true
	case t.reply.Answer == script.AnswerLapsed:
		return len(t.begins)+len(t.touches) > 0 && t.o.reacquire(ctx) == nil
	case t.reply.Answer == script.AnswerStale:
		// the partition may have been acquired again while the batch write was under way
		again, err := t.o.ours(ctx)
		t.reply.Err = err
		return again
	}
	return false
}

// take notes the answer.
func (t *batchWrite) take(r *script.Reply, sent instant) {
	o := t.o
	t.reply, t.sent = *r, sent.mono
	o.noteReply(r)
	o.noteSent(t)
	switch {
	case r.Err != nil, r.Answer == script.AnswerEdge, r.Answer == script.AnswerStale:
		t.back()
	case t.wrote() && r.Answer != script.AnswerLapsed:
		o.prolong(sent)
	}
	switch r.Answer {
	case script.AnswerDone:
		for _, b := range t.begins {
			b.at.Store(r.Now.Milliseconds())
		}
	case script.AnswerLapsed: // the script says "lapsed" before "behind"; seq shows the latter
		if r.Seq <= t.seq {
			o.lose(errBehind)
		}
	case script.AnswerEdge:
		o.edge(t.Gen, t.N, r.Gen)
	case script.AnswerStale:
		o.staleIn(t.epoch)
	case script.AnswerBehind:
		o.lose(errBehind)
	case script.AnswerAmnesia:
		o.lose(ErrAmnesia)
	}
}

// staleIn notes that the server has another epoch for the partition than the call had. The
// partition is then lost, unless we have acquired it again while the call was under way. An acquire
// under way may have raised the epoch, so staleIn waits until it ends. If that acquire gets no
// answer, a later call finds out whether the partition is lost.
func (o *Ownership) staleIn(epoch uint64) {
	o.again.Lock()
	defer o.again.Unlock()
	if o.self().Epoch == epoch && !o.unlearnt {
		o.lose(ErrLost)
	}
}

// edge moves on from a set that accepts no more writes, to the generation that the server is in. If
// a server was promoted whose clock and head are behind, that is an earlier generation. On that
// server nobody has written to the later generations.
func (o *Ownership) edge(gen int64, nth uint64, is int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if gen == o.gen && is < gen {
		o.gen = is
		return
	}
	if g := o.sets[gen]; gen == o.gen && g != nil && g.Newest == nth {
		g.next(o.forgets)
	}
}

// back puts back the ended fields that other batch writes had left, so that a later batch write
// removes them.
func (t *batchWrite) back() {
	if t.others == 0 {
		return
	}
	t.o.mu.Lock()
	defer t.o.mu.Unlock()
	t.o.over = append(t.o.over, t.Ended[:t.others]...)
}

// wrote reports whether the marks are on record and the ended fields are removed.
func (t *batchWrite) wrote() bool {
	if t.reply.Err != nil {
		return false
	}
	switch t.reply.Answer {
	case script.AnswerDone, script.AnswerShared, script.AnswerBehind, script.AnswerFull,
		script.AnswerLapsed:
		return true
	}
	return false
}

// began reports whether the begins are on record.
func (t *batchWrite) began() bool {
	return t.reply.Err == nil && t.reply.Answer == script.AnswerDone
}

// didTouch reports whether the touches are on record.
func (t *batchWrite) didTouch() bool { return t.wrote() && t.reply.Answer != script.AnswerLapsed }

// send sends calls in one pipeline. It returns when ctx ends.
func (s *Store) send(ctx context.Context, calls ...script.Call) []script.Reply {
	return s.runner.Run(ctx, calls)
}

// readPartition reads head and run of a partition. The head is nil when there is none.
func (s *Store) readPartition(ctx context.Context, n *names) (*script.State,
	[]script.Begun, error) {
	type hashes struct{ head, run map[string]string }
	got, err := script.Within(ctx, func() (h struct {
		hashes
		err error
	}) {
		pipe := s.client.Pipeline()
		head, run := pipe.HGetAll(ctx, n.head), pipe.HGetAll(ctx, n.run)
		_, h.err = script.Exec(ctx, s.client, pipe)
		h.head, h.run = head.Val(), run.Val()
		return h
	})
	if err == nil {
		err = got.err
	}
	if err != nil {
		return nil, nil, fmt.Errorf("owned: reading a partition: %w", err)
	}
	head, err := script.ReadHead(got.head)
	if err != nil {
		return nil, nil, err
	}
	run, err := script.ReadRun(got.run)
	return head, run, err
}
