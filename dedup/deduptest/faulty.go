package deduptest

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/onceward/onceward/dedup/driver"
)

// Faulty is a [driver.Store] that loses requests and replies on their way to another
// one, as a [Plan] says. Put it under a Deduper to see whether it recovers: a claim
// whose reply was lost must never be taken for somebody else's.
//
// It is safe for concurrent use as far as the store below is.
type Faulty struct {
	store driver.Store

	mu    sync.Mutex
	plan  Plan
	stats Stats
}

// Stats counts what a [Faulty] store has seen and done.
type Stats struct {
	// Calls of each method.
	Calls map[Op]int
	// Faults of each kind that hit at least one item.
	Faults map[Kind]int
	// LostRequests counts items that never reached the store.
	LostRequests int
	// LostReplies counts items that were executed and whose answer was lost.
	LostReplies int
}

// NewFaulty puts plan between its callers and store. A nil plan passes everything.
func NewFaulty(store driver.Store, plan Plan) *Faulty {
	return &Faulty{store: store, plan: plan,
		stats: Stats{Calls: map[Op]int{}, Faults: map[Kind]int{}}}
}

// SetPlan replaces the plan from the next call on; nil heals the store. Calls keep being numbered
// as before.
func (f *Faulty) SetPlan(plan Plan) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plan = plan
}

// Stats returns a copy of the counts so far.
func (f *Faulty) Stats() Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	stats := f.stats
	stats.Calls, stats.Faults = maps.Clone(stats.Calls), maps.Clone(stats.Faults)
	return stats
}

// Limits are those of the store below.
func (f *Faulty) Limits() driver.Limits { return driver.LimitsOf(f.store) }

// Claim implements [driver.Store].
func (f *Faulty) Claim(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	return through(ctx, f, OpClaim, reqs, f.store.Claim, unlearnt)
}

// Renew implements [driver.Store].
func (f *Faulty) Renew(ctx context.Context, renewals []driver.Renewal) []driver.Answer {
	return through(ctx, f, OpRenew, renewals, f.store.Renew, unlearnt)
}

// Finish implements [driver.Store].
func (f *Faulty) Finish(ctx context.Context, changes []driver.Finish) []driver.Answer {
	return through(ctx, f, OpFinish, changes, f.store.Finish, unlearnt)
}

// Lookup implements [driver.Store].
func (f *Faulty) Lookup(ctx context.Context, ids []driver.ID) []driver.Answer {
	return through(ctx, f, OpLookup, ids, f.store.Lookup, unlearnt)
}

// Forget implements [driver.Store].
func (f *Faulty) Forget(ctx context.Context, ids []driver.ID, hold time.Duration) []error {
	send := func(ctx context.Context, ids []driver.ID) []error {
		return f.store.Forget(ctx, ids, hold)
	}
	return through(ctx, f, OpForget, ids, send, func(err error) error { return err })
}

func unlearnt(err error) driver.Answer { return driver.Answer{Err: err} }

// through sends one batch through the fault that the plan has for it.
func through[Item, Reply any](
	ctx context.Context, f *Faulty, op Op, items []Item,
	send func(context.Context, []Item) []Reply, lose func(error) Reply,
) []Reply {
	fault := f.next(op, len(items))
	// Items from cut on have no answer; those from reached on are not executed either.
	cut, reached := len(items), len(items)
	switch fault.Kind {
	case Pass:
		return send(ctx, items)
	case DropRequest:
		cut, reached = fault.Item, fault.Item
	case DropReply:
		cut = fault.Item
	case FailItem:
		return around(ctx, items, fault.Item,
			send, lose(fmt.Errorf("%w: item refused", ErrInjected)))
	case Hang:
		cut, reached = 0, 0
	case HangReply:
		cut = 0
	}
	var replies []Reply
	if reached > 0 {
		replies = send(ctx, items[:reached:reached])
	}
	err := fmt.Errorf("%w: %s", ErrInjected, fault.Kind)
	if fault.Kind == Hang || fault.Kind == HangReply {
		<-ctx.Done()
		err = fmt.Errorf("%w: %s: %w", ErrInjected, fault.Kind, context.Cause(ctx))
	}
	replies = replies[:cut:cut]
	for range len(items) - cut {
		replies = append(replies, lose(err))
	}
	return replies
}

// around sends everything but one item.
func around[Item, Reply any](
	ctx context.Context, items []Item, skip int, send func(context.Context, []Item) []Reply,
	lost Reply,
) []Reply {
	rest := append(items[:skip:skip], items[skip+1:]...)
	var replies []Reply
	if len(rest) > 0 {
		replies = send(ctx, rest)
	}
	return append(append(replies[:skip:skip], lost), replies[skip:]...)
}

// next asks the plan about one call and counts it.
func (f *Faulty) next(op Op, items int) Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stats.Calls[op]++
	if f.plan == nil {
		return Fault{}
	}
	fault := f.plan(Call{Op: op, Number: f.stats.Calls[op], Items: items})
	hanging := fault.Kind == Hang || fault.Kind == HangReply
	if hanging {
		fault.Item = 0
	}
	if fault.Kind == Pass || fault.Item < 0 || fault.Item >= items && !hanging {
		return Fault{}
	}
	f.stats.Faults[fault.Kind]++
	switch fault.Kind {
	case FailItem:
		f.stats.LostRequests++
	case DropRequest, Hang:
		f.stats.LostRequests += items - fault.Item
	default:
		f.stats.LostReplies += items - fault.Item
	}
	return fault
}
