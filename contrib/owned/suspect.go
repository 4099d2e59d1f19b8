package owned

import "context"

// openAttempt is a key that was begun and is not known to have ended. Either an earlier owner has
// begun it, or an attempt of this process whose lease has lapsed.
type openAttempt struct {
	of []batchSlot // its places in begins
}

// runs is how many attempts began. Of earlier owners, it counts the epochs.
func (s *openAttempt) runs() (n int) {
	for i, in := range s.of {
		if in.of.from == 0 || !fromEpoch(s.of[:i], in.of.from) {
			n++
		}
	}
	return n
}

func fromEpoch(all []batchSlot, epoch uint64) bool {
	for _, in := range all {
		if in.of.from == epoch {
			return true
		}
	}
	return false
}

// suspect notes one more attempt that is not known to have ended. The mutex is held.
func (o *Ownership) suspect(member int64, in batchSlot) {
	s := o.suspects[member]
	if s == nil {
		s = &openAttempt{}
		o.suspects[member] = s
		o.suspected.Add(1)
	}
	s.of = append(s.of, in)
}

// clear forgets that a key was a suspect, because the key has ended. The mutex is held.
func (o *Ownership) clear(member int64) {
	if s := o.suspects[member]; s != nil {
		o.dismiss(member, s, func(*begin) bool { return true })
	}
}

// dismiss removes a suspect from each of its batches for which over returns true. The mutex is
// held.
func (o *Ownership) dismiss(member int64, s *openAttempt, over func(b *begin) bool) {
	left := s.of[:0]
	for _, in := range s.of {
		if over(in.of) {
			o.settle(in)
			continue
		}
		left = append(left, in)
	}
	clear(s.of[len(left):])
	if s.of = left; len(left) == 0 {
		delete(o.suspects, member)
		o.suspected.Add(-1)
	}
}

// acquit forgets the attempts that began a Hold ago, by the server's clock. The next batch write
// removes their fields. Otherwise, in a shared source, other partitions would see these keys as
// begun for as long as we live.
func (o *Ownership) acquit() {
	if o.suspected.Load() == 0 {
		return
	}
	over := o.clock.Load() - o.s.opts.Hold.Milliseconds()
	o.mu.Lock()
	defer o.mu.Unlock()
	for member, s := range o.suspects {
		o.dismiss(member, s, func(b *begin) bool { return b.at.Load() <= over })
	}
}

// recall reads again what earlier owners had begun, if something was forgotten since the last
// reading: a key that another process has forgotten is not a suspect any more.
func (o *Ownership) recall(ctx context.Context) error {
	o.mu.Lock()
	forgets, recalled := o.forgets, o.recalled
	o.mu.Unlock()
	if forgets == recalled || o.suspected.Load() == 0 {
		return nil
	}
	head, run, err := o.s.readPartition(ctx, &o.names)
	if err != nil {
		return err
	}
	type listed struct {
		field  string
		member int64
	}
	on := make(map[listed]bool)
	for _, b := range run {
		for _, member := range b.IDs {
			on[listed{b.Name, member}] = true
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if head == nil || head.Epoch != o.epoch {
		return nil // the next batch write finds out
	}
	o.recalled = forgets
	for member, s := range o.suspects {
		o.dismiss(member, s, func(b *begin) bool {
			return b.from != 0 && !on[listed{b.name, member}]
		})
	}
	return nil
}

// runs returns how many attempts of a key the inner store does not know.
func (o *Ownership) runs(member int64) int {
	if o.suspected.Load() == 0 {
		return 0
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if s := o.suspects[member]; s != nil {
		return s.runs()
	}
	return 0
}
