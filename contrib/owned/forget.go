package owned

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/onceward/onceward/contrib/owned/internal/script"
	"github.com/onceward/onceward/dedup/driver"
)

// forgetTries bounds how often the head of a partition is read again because it has changed.
const forgetTries = 8

// Forget implements [driver.Store]. It asks the inner store and every partition on record. Each ID
// costs three or four round trips, and two more for each partition.
func (s *Store) Forget(ctx context.Context, ids []driver.ID, hold time.Duration) []error {
	errs := make([]error, len(ids))
	for i := range ids {
		if errs[i] = ctx.Err(); errs[i] != nil {
			continue
		}
		errs[i] = s.forget(ctx, ids[i], hold)
	}
	return errs
}

func (s *Store) forget(ctx context.Context, id driver.ID, hold time.Duration) error {
	if s.isLive(&id) {
		return driver.ErrInFlight
	}
	spots, err := s.everywhere(ctx)
	if err != nil {
		return err
	}
	if err := s.floor(ctx, id, hold); err != nil {
		return err
	}
	if err := s.inner.Forget(ctx, []driver.ID{id}, hold)[0]; err != nil {
		return err
	}
	for i := range spots {
		if err := s.erase(ctx, &spots[i], s.members.of(&id)); err != nil {
			return err
		}
	}
	if !s.forgotten(&id) {
		return driver.ErrInFlight
	}
	member := s.members.of(&id)
	for _, o := range s.sorted() {
		o.mu.Lock()
		o.clear(member)
		o.mu.Unlock()
	}
	return nil
}

// isLive reports whether an attempt here has the key under a live lease.
func (s *Store) isLive(id *driver.ID) bool {
	hash := s.table.hash(id)
	sh := s.table.shard(hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.find(hash, id)
	return e != nil && e.isLive(s.now())
}

// isLive reports whether this entry alone keeps the key from beginning, under a live lease.
func (e *entry) isLive(now time.Duration) bool {
	return (e.state == begun || e.state == asking) && e.until > now
}

// floor claims the key at the inner store, which may never have seen the key, so that the store
// grants a fence. When the inner store then forgets the key, it keeps the fence as a floor.
func (s *Store) floor(ctx context.Context, id driver.ID, hold time.Duration) error {
	var token driver.Token
	if _, err := rand.Read(token[:]); err != nil {
		return fmt.Errorf("owned: token: %w", err)
	}
	lease := s.opts.Lease / leaseRequests
	ans := s.inner.Claim(ctx,
		[]driver.ClaimRequest{{ID: id, Token: token, Lease: lease, Hold: hold}})[0]
	switch {
	case ans.Err != nil:
		return ans.Err
	case ans.Outcome == driver.InFlight:
		return driver.ErrInFlight
	case ans.Outcome != driver.Acquired:
		return nil
	}
	return s.inner.Finish(ctx, []driver.Finish{{
		ID: id, Token: token, Fence: ans.Record.Fence, State: driver.StateReleased,
		NotAttempted: true,
		Hold:         hold, Window: s.opts.Window,
	}})[0].Err
}

// erase removes the mark of the key from one partition.
func (s *Store) erase(ctx context.Context, at *partitionRecord, member int64) error {
	for range forgetTries {
		head, _, err := s.readPartition(ctx, &at.names)
		if err != nil {
			return err
		}
		if head == nil {
			return ErrAmnesia
		}
		o := s.holder(at.partitionKey)
		call := s.eraser(at, head, member, o)
		reply := s.send(ctx, call)[0]
		switch {
		case reply.Err != nil:
			return reply.Err
		case reply.Answer == script.AnswerStale:
			continue
		case reply.Answer == script.AnswerInFlight:
			return driver.ErrInFlight
		case reply.Answer == script.AnswerAmnesia:
			return ErrAmnesia
		}
		if o != nil {
			o.noteReply(&reply)
		}
		return nil
	}
	return errors.New("owned: Forget: the partition changes all the time")
}

// holder returns the Ownership of a partition that is held here, or nil.
func (s *Store) holder(at partitionKey) *Ownership {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if o := s.held[at]; o != nil && o.lostFor() == nil {
		return o
	}
	return nil
}

// eraser names every set in which a member may be.
func (s *Store) eraser(at *partitionRecord, head *script.State, member int64,
	o *Ownership) script.Call {
	e := script.Forget{ID: member, Gen: head.Gen, Newest: head.Gens[head.Gen].Newest}
	if o != nil {
		e.Token = o.token
	}
	bucket := s.members.bucket(member)
	for gen, sets := range head.Gens {
		for n := sets.Folded + 1; n <= sets.Newest; n++ {
			e.Fresh = append(e.Fresh, script.Set{Key: at.fresh(gen, n), Gen: gen})
		}
		if sets.Folded > 0 || sets.Kept > 0 || sets.Newest > 0 {
			e.Buckets = append(e.Buckets, script.Set{Key: at.bucket(gen, bucket), Gen: gen})
		}
	}
	return script.NewForget(script.Keys{Head: at.head, Own: at.own, Run: at.run},
		&e)
}

// forgotten removes what the table kept of a key. It returns false, and leaves the entry, if the
// key has begun meanwhile or is about to begin. The filter does not find such a key new any more,
// and the inner store does not know the key. So without the entry, another claim would be granted
// while the handler still runs. If the inner store has granted a claim since it forgot the key,
// that store decides.
func (s *Store) forgotten(id *driver.ID) bool {
	hash := s.table.hash(id)
	sh := s.table.shard(hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	switch e, now := sh.find(hash, id), s.now(); {
	case e == nil, e.state == claimed && e.until > now:
	case e.isLive(now):
		return false
	case e.state != asking:
		sh.expire(e)
	}
	return true
}
