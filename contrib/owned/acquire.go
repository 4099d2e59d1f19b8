package owned

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/onceward/onceward/bloom"
	"github.com/onceward/onceward/contrib/owned/internal/script"
)

// remaps bounds how often one Acquire reads the map again because it has changed.
const remaps = 8

// Acquire takes a partition: it raises the epoch, and reads what earlier owners had begun. You can
// use the partition at once. Its marks are loaded in the background, and until that is done every
// key is claimed at the inner store. Acquire takes three or four round trips, more when the mapping
// changes. It does not wait: if the partition is held, even by this Store, it returns a
// [*HeldError].
//
// It returns [ErrAmnesia] if the partition has no record, or if Redis has lost marks of it. It
// returns [ErrCount] if Partition.Count is below the count on record. It returns [ErrMapping], and
// changes nothing, if the mapping is not the one on record while a partition of the source is held.
// A bad field is a [*dedup.InputError]. Any other error says that Redis could not be asked: try
// again. If the call has acquired the partition nevertheless, the partition lapses after
// Options.Lease.
func (s *Store) Acquire(ctx context.Context, p Partition) (*Ownership, error) {
	if ctx == nil {
		return nil, input("Context", "is nil")
	}
	p, err := p.complete()
	if err != nil {
		return nil, err
	}
	o, err := s.newOwnership(p)
	if err != nil {
		return nil, err
	}
	if err := s.reserve(o); err != nil {
		return nil, err
	}
	if err := o.begin(ctx); err != nil {
		o.end(err)
		s.unreserve(o)
		return nil, err
	}
	if err := s.hold(o); err != nil {
		return nil, errors.Join(err, o.Release(ctx))
	}
	return o, nil
}

func (s *Store) newOwnership(p Partition) (*Ownership, error) {
	o := &Ownership{
		s: s, part: p, names: newNames(s.opts.Prefix, p.Source, p.Number),
		settled: make(chan struct{}), sets: make(map[int64]*generation),
		suspects: make(map[int64]*openAttempt), begins: make(map[*begin]struct{}),
	}
	if _, err := rand.Read(o.token[:]); err != nil {
		return nil, fmt.Errorf("owned: token: %w", err)
	}
	filter, err := bloom.New(s.opts.filter(o.serverClock, o.notifyFilter))
	if err != nil {
		return nil, fmt.Errorf("owned: filter: %w", err)
	}
	o.filter.Store(filter)
	o.ctx, o.end = context.WithCancelCause(context.Background())
	return o, nil
}

// serverClock is the filter's clock. It returns the server's time as the last reply gave it.
func (o *Ownership) serverClock() time.Duration {
	return time.Duration(o.clock.Load()) * time.Millisecond
}

// begin acquires the partition, and reads its record.
func (o *Ownership) begin(ctx context.Context) error {
	reply, err := o.acquire(ctx)
	if err != nil {
		return err
	}
	o.feed.Store(o.filter.Load().Begin(bloom.Source{Name: o.sourceName(), Epoch: reply.Epoch,
		Seq: reply.Seq}))
	if err := o.read(ctx); err != nil {
		return err
	}
	o.logShared()
	return nil
}

// sourceName returns the name of the partition in snapshots.
func (o *Ownership) sourceName() string {
	return fmt.Sprintf("%s/%d", o.part.Source, o.part.Number)
}

// acquire raises the epoch.
func (o *Ownership) acquire(ctx context.Context) (script.Reply, error) {
	for range remaps {
		m, err := o.s.registry.mapped(ctx, &o.part)
		if err != nil {
			return script.Reply{}, err
		}
		o.mu.Lock()
		o.mapver = m.version
		self := o.selfLocked()
		o.mu.Unlock()
		sent := o.s.moment()
		reply := o.s.send(ctx, script.NewAcquire(o.keys(), self, script.Claim{
			Hold: o.s.opts.Hold, Generation: o.part.Generation,
			TakeOver: o.s.opts.TakeOverOlderGeneration,
		}))[0]
		if reply.Err == nil && reply.Answer == script.AnswerRemapped {
			if err := o.s.registry.level(ctx, &o.part, m, reply.MapVersion); err != nil {
				return script.Reply{}, err
			}
			continue
		}
		return reply, o.acquired(&reply, sent)
	}
	return script.Reply{}, errors.New("owned: Acquire: the mapping changes all the time")
}

// acquired notes the reply to an acquire.
func (o *Ownership) acquired(r *script.Reply, sent instant) error {
	switch {
	case r.Err != nil:
		return fmt.Errorf("owned: Acquire: %w", r.Err)
	case r.Answer == script.AnswerHeld:
		return &HeldError{Remaining: r.Left}
	case r.Answer == script.AnswerAmnesia:
		return ErrAmnesia
	case r.Answer != script.AnswerAcquired && r.Answer != script.AnswerMine:
		return fmt.Errorf("owned: Acquire: script answered %q", r.Answer)
	}
	o.mu.Lock()
	o.epoch, o.seq = r.Epoch, r.Seq
	o.mu.Unlock()
	o.noteReply(r)
	o.prolong(sent)
	return nil
}

// read reads the partition's record. The epoch was raised before, so nobody else adds to the record
// any more. No claim is granted before the record was read, because a key that an earlier owner had
// begun would look new.
func (o *Ownership) read(ctx context.Context) error {
	head, run, err := o.s.readPartition(ctx, &o.names)
	switch {
	case err != nil:
		return err
	case head == nil || head.Lost:
		return ErrAmnesia
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if head.Epoch != o.epoch {
		return ErrLost
	}
	o.head = head
	o.gen = max(o.gen, head.Gen)
	o.sharedUntil = max(o.sharedUntil, head.SharedUntil)
	for gen, sets := range head.Gens {
		o.sets[gen] = newGeneration(sets, o.s.opts.setMembers())
	}
	for _, b := range run {
		o.takeOver(&b)
	}
	o.recalled = head.Forgets
	return nil
}

// newGeneration makes the next mark begin a new set. We add nothing to the sets of earlier owners,
// so that the loader can count them. The parameter full is how many members a set gets.
func newGeneration(sets script.Gen, full int) *generation {
	return &generation{Gen: sets, folding: sets.Folded > 0 || sets.Kept > 0, written: full}
}

// takeOver notes the keys that an earlier owner had begun as suspects; b is their batch. The mutex
// is held.
func (o *Ownership) takeOver(b *script.Begun) {
	batch := &begin{name: b.Name, from: b.Epoch}
	batch.fill(len(b.IDs))
	batch.ready.Store(true)
	batch.at.Store(b.At.Milliseconds())
	for place, member := range b.IDs {
		o.suspect(member, batchSlot{of: batch, place: place})
	}
}

// reacquire takes the partition again when its lease has lapsed. The filter stays as it is under
// two conditions. First, nobody else had the partition: the epoch before this call is ours. Second,
// the server still has every batch write that it had answered: each of them, and this call, raises
// seq by one. Otherwise the partition is lost. If this call gets no answer, it may still have
// raised the epoch for us. So a caller whose call is then answered "stale" acquires again.
func (o *Ownership) reacquire(ctx context.Context) error {
	before := o.self().Epoch
	o.again.Lock()
	defer o.again.Unlock()
	if err := o.lostFor(); err != nil {
		return err
	}
	if o.gaveUp {
		return ErrReleased
	}
	if o.self().Epoch != before {
		return nil // another call here has acquired it meanwhile
	}
	sent, self := o.s.moment(), o.self()
	reply := o.s.send(ctx, script.NewAcquire(o.keys(), self, script.Claim{
		Hold: o.s.opts.Hold, Generation: o.part.Generation,
		TakeOver: o.s.opts.TakeOverOlderGeneration, Mine: before,
	}))[0]
	o.unlearnt = reply.Err != nil
	if reply.Err == nil && (reply.Answer == script.AnswerAcquired ||
		reply.Answer == script.AnswerMine) {
		o.given = reply.Epoch
	}
	switch {
	case reply.Err != nil:
		return reply.Err
	case (reply.Answer == script.AnswerAcquired || reply.Answer == script.AnswerMine) &&
		reply.Seq <= self.Seq:
		o.lose(errBehind)
		return errBehind
	case reply.Answer == script.AnswerAcquired && reply.Before == before:
		return o.unbroken(&reply, sent)
	case reply.Answer == script.AnswerMine && reply.Epoch == before:
		return o.acquired(&reply, sent) // it had not lapsed
	case reply.Answer == script.AnswerMine: // an earlier call acquired it, and its answer was lost
		head, _, err := o.s.readPartition(ctx, &o.names)
		if err != nil {
			o.unlearnt = true
			return err
		}
		if head != nil && head.Epoch == reply.Epoch && head.Since <= before {
			return o.unbroken(&reply, sent)
		}
	case reply.Answer == script.AnswerAmnesia:
		o.lose(ErrAmnesia)
		return ErrAmnesia
	}
	o.lose(ErrLost)
	return ErrLost
}

// unbroken notes that nobody else has had the partition since it was ours.
func (o *Ownership) unbroken(r *script.Reply, sent instant) error {
	o.s.opts.Logger.Warn("owned: the lease of a partition had lapsed, and nobody was there",
		"source", o.part.Source, "partition", o.part.Number)
	return o.acquired(r, sent)
}

// ours reports whether a call that was answered "stale" is worth sending again. If the last try to
// acquire the partition again got no answer, ours tries once more. Its error is the reason why
// there is still no answer.
func (o *Ownership) ours(ctx context.Context) (again bool, err error) {
	o.again.Lock()
	unlearnt := o.unlearnt
	o.again.Unlock()
	if unlearnt {
		err = o.reacquire(ctx)
	}
	if o.lostFor() != nil {
		return false, nil
	}
	return err == nil, err
}
