package torture_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// recorder writes down each item that is sent to a store, and each answer. Between the two it kills
// the process, if that is the fate of the delivery.
type recorder struct {
	dedup.Store
	w *worker
	// behind says that a store with the leases is in front of this one. Nobody claims here, and the
	// calls are not part of a history that is checked.
	behind bool
}

// Limits are those of the store below.
func (r *recorder) Limits() driver.Limits { return driver.LimitsOf(r.Store) }

func short(t driver.Token) uint64 { return binary.LittleEndian.Uint64(t[:8]) | 1 }

// call notes items that are about to be sent.
func (r *recorder) call(n int, fill func(i int) (driver.ID, record)) ([]record, []*delivery) {
	calls, of := make([]record, n), make([]*delivery, n)
	for i := range calls {
		id, c := fill(i)
		of[i] = r.w.of(id)
		c.kind, c.run = called, r.w.ledger.next()
		if of[i] != nil {
			c.message, c.delivery = of[i].message, of[i].number
		}
		if r.behind {
			c.op, of[i] = opBehind, nil
		}
		calls[i] = c
	}
	r.w.ledger.write(calls...)
	return calls, of
}

// answer notes the answers of the store.
func (r *recorder) answer(calls []record, answers []driver.Answer) {
	notes := make([]record, len(calls))
	for i, c := range calls {
		a := &answers[i]
		note := record{kind: answered, op: c.op, run: c.run, message: c.message,
			delivery: c.delivery, token: c.token, code: saidEnded}
		if c.op == opClaim {
			note.code = said(a)
		}
		if a.Err != nil && !errors.Is(a.Err, dedup.ErrInFlight) {
			note.code = saidUnknown
		}
		note.flags = bit(a.Mine, flagMine) | bit(a.Held, flagHeld) | bit(a.Written, flagWritten)
		notes[i] = note
	}
	r.w.ledger.write(notes...)
}

func bit(is bool, f uint8) uint8 {
	if is {
		return f
	}
	return 0
}

func said(a *driver.Answer) uint8 {
	switch a.Outcome {
	case dedup.Unknown:
		return saidUnknown
	case dedup.Acquired:
		return saidAcquired
	case dedup.Duplicate:
		return saidDuplicate
	case dedup.InFlight:
		return saidInFlight
	case dedup.Uncertain:
		return saidUncertain
	case dedup.Mismatch:
	}
	return saidOther
}

// Claim implements dedup.Store.
func (r *recorder) Claim(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	calls, of := r.call(len(reqs), func(i int) (driver.ID, record) {
		q := &reqs[i]
		return q.ID, record{op: opClaim, token: short(q.Token), arg: int64(q.Lease),
			flags: bit(q.TakeUncertain, flagTakeUncertain)}
	})
	answers := r.Store.Claim(ctx, reqs)
	for _, d := range of {
		r.w.at(d, claimUnread)
	}
	r.answer(calls, answers)
	return answers
}

// Renew implements dedup.Store.
func (r *recorder) Renew(ctx context.Context, renewals []driver.Renewal) []driver.Answer {
	calls, _ := r.call(len(renewals), func(i int) (driver.ID, record) {
		c := &renewals[i]
		return c.ID, record{op: opRenew, token: short(c.Token), arg: int64(c.Lease),
			flags: bit(c.Irreversible, flagIrreversible)}
	})
	answers := r.Store.Renew(ctx, renewals)
	r.answer(calls, answers)
	return answers
}

// Finish implements dedup.Store.
func (r *recorder) Finish(ctx context.Context, changes []driver.Finish) []driver.Answer {
	calls, of := r.call(len(changes), func(i int) (driver.ID, record) {
		c := &changes[i]
		note := record{op: opFinish, token: short(c.Token),
			flags: bit(c.EffectApplied, flagApplied) | bit(c.NotStarted, flagNotStarted)}
		if c.State == driver.StateReleased {
			note.op = opRelease
		}
		return c.ID, note
	})
	for i, d := range of {
		if d != nil && d.fate == markTorn && changes[i].State == driver.StateSucceeded {
			go func() {
				<-time.After(time.Duration(rand.IntN(800)) * time.Microsecond)
				r.w.die(d)
			}()
		}
	}
	answers := r.Store.Finish(ctx, changes)
	for i, d := range of {
		if changes[i].State == driver.StateSucceeded {
			r.w.at(d, markUnread)
			r.w.at(d, markTorn)
		}
	}
	r.answer(calls, answers)
	return answers
}
