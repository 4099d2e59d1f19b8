package owned_test

import (
	"context"
	"sync"
	"time"

	"github.com/onceward/onceward/contrib/owned"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// witness stands between a Deduper and its Store. It records how long each claim was held, and who
// granted it: if a filter has proven a key new, only the partition's store has its claim.
type witness struct {
	*owned.Store
	ledger *ledger

	mu     sync.Mutex
	proven map[driver.ID]bool
	held   map[driver.Token]*holding
	at     map[message]*holding // by part instead of key, and by offset
}

// holding is a claim that was given.
type holding struct {
	proven bool
	run    uint64 // its effect, once it has one
}

func newWitness(s *owned.Store, l *ledger) *witness {
	return &witness{Store: s, ledger: l, proven: map[driver.ID]bool{},
		held: map[driver.Token]*holding{}, at: map[message]*holding{}}
}

// filtered handles the Store's events while it answers.
func (w *witness) filtered(e *dedup.Event) {
	if e.Saved > 0 && e.Outcome == dedup.Acquired {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.proven[e.ID] = true
	}
}

// Claim implements [dedup.Store].
func (w *witness) Claim(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	_, claimed := w.FinishClaim(ctx, nil, reqs)
	return claimed
}

// Finish implements [dedup.Store].
func (w *witness) Finish(ctx context.Context, changes []driver.Finish) []driver.Answer {
	ended, _ := w.FinishClaim(ctx, changes, nil)
	return ended
}

// FinishClaim is both in one round trip.
func (w *witness) FinishClaim(ctx context.Context, changes []driver.Finish,
	reqs []driver.ClaimRequest) (ended, claimed []driver.Answer) {
	ended, claimed = w.Store.FinishClaim(ctx, changes, reqs)
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range changes {
		if ended[i].Err == nil {
			delete(w.held, changes[i].Token)
		}
	}
	for i := range reqs {
		r := &reqs[i]
		if claimed[i].Outcome == dedup.Acquired && claimed[i].Err == nil {
			h := w.held[r.Token]
			if h == nil {
				h = &holding{}
				w.held[r.Token] = h
			}
			h.proven = h.proven || w.proven[r.ID]
			w.at[message{uint64(r.Origin.Partition), r.Origin.Offset}] = h
		}
		delete(w.proven, r.ID)
	}
	return ended, claimed
}

// begins records which effect the claim of a message is for, and reports whether the key was proven
// new.
func (w *witness) begins(where partition, m message, run uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := message{uint64(where.part), m.offset}
	h := w.at[at]
	delete(w.at, at)
	if h == nil {
		return false
	}
	h.run = run
	return h.proven
}

// Renew implements [dedup.Store].
func (w *witness) Renew(ctx context.Context, renewals []driver.Renewal) []driver.Answer {
	sent := time.Now().UnixNano()
	answers := w.Store.Renew(ctx, renewals)
	var records []record
	w.mu.Lock()
	for i := range renewals {
		if h := w.held[renewals[i].Token]; h != nil && h.run > 0 && answers[i].Held {
			records = append(records, record{kind: renewed, seq: h.run, from: sent})
		}
	}
	w.mu.Unlock()
	if len(records) > 0 {
		w.ledger.write(records...)
	}
	return answers
}
