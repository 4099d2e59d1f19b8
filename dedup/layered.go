package dedup

import (
	"context"
	"math/bits"
	"time"
)

// layered is one [Store] made of two. leases keeps every claim, and for the hot window the
// finished keys. store keeps the keys that succeeded for all of its window. See
// Config.Leases.
//
// The two must agree on the order of their writes. An end goes to store first: should the
// process die in between, the claim lapses, the next one is a second attempt, and second
// attempts look into store. A record is written to store less than a lease after leases
// learned of its key; a later one is written to leases first. So a record of a key that
// leases has forgotten was written at least the hot window less a lease ago, and a filter
// that lags by less has it.
type layered struct {
	leases, store Store
	hot, lease    time.Duration // Config.HotWindow and LeaseTTL
	front         *front        // nil: store is always asked
}

// layeredForgets is two layers that both tell caches of what is forgotten.
type layeredForgets struct {
	*layered
	leases, store ForgetCounter
}

// newLayered puts cfg.Leases in front of store. cfg is complete.
func newLayered(store Store, cfg *Config) (Store, error) {
	if same(store, cfg.Leases) {
		return nil, &InputError{Field: "Config.Leases", Reason: "is the store itself"}
	}
	l := &layered{leases: cfg.Leases, store: store, hot: cfg.HotWindow, lease: cfg.LeaseTTL}
	if cfg.Filter != nil {
		l.front = newFront(cfg)
	}
	a, ok1 := cfg.Leases.(ForgetCounter)
	b, ok2 := store.(ForgetCounter)
	if ok1 && ok2 {
		return &layeredForgets{l, a, b}, nil
	}
	return l, nil
}

// Limits are those of both; leases have no window.
func (l *layered) Limits() Limits {
	limits, leases := LimitsOf(l.store), LimitsOf(l.leases)
	if limits.MaxHold == 0 || leases.MaxHold != 0 && leases.MaxHold < limits.MaxHold {
		limits.MaxHold = leases.MaxHold
	}
	limits.NoResults = limits.NoResults || leases.NoResults
	limits.NoFailures = limits.NoFailures || leases.NoFailures
	return limits
}

// Forgets is another number when that of either store is.
func (l *layeredForgets) Forgets(ctx context.Context) (uint64, error) {
	a, err := l.leases.Forgets(ctx)
	if err != nil {
		return 0, err
	}
	b, err := l.store.Forgets(ctx)
	return a*0x9e3779b97f4a7c15 ^ bits.RotateLeft64(b, 31), err
}

// Renew implements [Store]: claims are in leases alone, and so is danger, for all of its
// window.
func (l *layered) Renew(ctx context.Context, renewals []Renewal) []Answer {
	return l.leases.Renew(ctx, renewals)
}

// Lookup implements [Store]. Recently finished keys are in leases, all that succeeded are in
// store, and unfinished keys are in leases again.
func (l *layered) Lookup(ctx context.Context, ids []ID) []Answer {
	answers := answered(l.leases.Lookup(ctx, ids), len(ids))
	var rest []ID
	var at []int
	for i := range answers {
		if ans := &answers[i]; ans.Err == nil && !ans.Record.State.terminal() {
			rest, at = append(rest, ids[i]), append(at, i)
		}
	}
	if len(rest) == 0 {
		return answers
	}
	for n, found := range answered(l.store.Lookup(ctx, rest), len(rest)) {
		ans := &answers[at[n]]
		if found.Err != nil || found.Record.State.terminal() || ans.Record.State == StateAbsent {
			*ans = found
		}
	}
	return answers
}

// Forget implements [Store]. The record in store goes first: as long as the hot record
// answers, nobody runs a key that is only half forgotten. After an error the record in store
// may be gone; forgetting again is harmless.
func (l *layered) Forget(ctx context.Context, ids []ID, hold time.Duration) []error {
	errs := make([]error, len(ids))
	var todo []ID
	var at []int
	for i, ans := range answered(l.leases.Lookup(ctx, ids), len(ids)) {
		switch {
		case ans.Err != nil:
			errs[i] = ans.Err
		case ans.Record.State == StateInProgress && ans.Record.Remaining > 0:
			errs[i] = ErrInFlight
		default:
			todo, at = append(todo, ids[i]), append(at, i)
		}
	}
	for _, store := range []Store{l.store, l.leases} {
		if len(todo) == 0 {
			break
		}
		todo, at = forgetIn(ctx, store, todo, at, hold, errs)
	}
	return errs
}

// forgetIn forgets ids, notes what went wrong in errs[at], and returns what is left.
func forgetIn(ctx context.Context, store Store, ids []ID, at []int, hold time.Duration,
	errs []error) (todo []ID, left []int) {
	found := store.Forget(ctx, ids, hold)
	if len(found) != len(ids) {
		found = make([]error, len(ids))
		for i := range found {
			found[i] = ErrUnknown
		}
	}
	for n, err := range found {
		if errs[at[n]] = err; err == nil {
			todo, left = append(todo, ids[n]), append(left, at[n])
		}
	}
	return todo, left
}
