// Package layered makes one [driver.Store] of two: a hot one with the claims and the recently
// finished keys, and a cold one with all that have succeeded. Redis in front of PostgreSQL is the
// usual pair: packages redisadapter and sqladapter/sqlstore.
//
//	store, err := layered.New(hot, cold, layered.Config{
//		HotWindow: 6 * time.Hour, LeaseTTL: 30 * time.Second,
//	})
//	if err != nil {
//		return err
//	}
//	d, err := dedup.New(store, dedup.Config{Namespace: "orders",
//		Window: 21 * 24 * time.Hour, LeaseTTL: 30 * time.Second})
//
// With a filter, such as that of package bloom, new keys need no lookup in the cold store. [Front]
// puts a filter in front of one store, and [Moving] moves a deployment from one store to another.
package layered

import (
	"context"
	"fmt"
	"math/bits"
	"reflect"
	"slices"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// Config says how New combines two stores. HotWindow and LeaseTTL have no default.
type Config struct {
	// HotWindow is how long the hot store remembers finished keys and their claims. Duplicates that
	// come later are found in the cold store. It is at least ten LeaseTTLs, and shorter than the
	// Window of the Dedupers.
	//
	// To raise it while a Filter is in use, unset the Filter in every process, raise HotWindow in
	// every process, and set the Filter again: a process with the shorter HotWindow would break
	// the promise that the Filter relies on.
	HotWindow time.Duration
	// LeaseTTL is that of the Dedupers over the store, or longer.
	LeaseTTL time.Duration
	// Filter saves the Lookup of the cold store for keys that it can prove absent. It must be fed
	// everything that the cold store holds, whoever wrote it, as package bloom's Filter is with
	// Filter.Follow. It must remember for the Window of the Dedupers. It proves a key new only
	// while it lags behind the store by less than HotWindow minus a LeaseTTL and one percent; its
	// lag includes the longest that a commit may hang. A program that writes to the cold store
	// without the hot one makes the filter wrong.
	//
	// It is asked only if the hot store has a method Remembers() time.Duration, which returns for
	// how long it has certainly kept everything that was written to it. redisadapter's Store has
	// it, with the amnesia guard. The filter is asked again after the claim was answered. It never
	// decides that a key is a duplicate, and a second attempt is always looked up. Default nil: the
	// cold store is always asked.
	Filter Filter
	// Observer gets Filtered and FilterState. The other hooks are called by a Deduper only.
	Observer dedup.Observer
}

// minLeases is the least number of leases in a hot window. A record may reach the cold store a
// lease late, and that must be little compared with the window.
const minLeases = 10

// New returns a store made of hot and cold. hot is any store with a window for each key, preferably
// a Redis with the layout Full; cold is usually a store of sqlstore. The error is an
// [*driver.InputError] for a bad field of cfg, a nil store, twice the same one, and a hot store
// that cannot remember for HotWindow.
//
// If the hot store does not know a key, its claim costs a Lookup in the cold one, unless the Filter
// can prove that there is no record. Success is written to cold, and then to hot for HotWindow.
// Releases and failures for good are kept by hot alone, for as long as the Deduper asks for.
// Completion.With is refused.
//
// All processes of one namespace must layer the same two stores, or none of them may layer any. A
// process that uses cold alone does not see the claims in hot, and runs effects at the same time as
// others. A claim that hot loses is lost, as it would be if hot were used alone; a success is still
// in cold.
func New(hot, cold driver.Store, cfg Config) (driver.Store, error) {
	if err := cfg.check(hot, cold); err != nil {
		return nil, err
	}
	l := &layers{waker: waker{hot}, hot: hot, cold: cold, warmFor: cfg.HotWindow,
		lease: cfg.LeaseTTL}
	if cfg.Filter != nil {
		l.stage = newFilterStage(hot, &cfg)
	}
	return withForgets(l, hot, cold), nil
}

// bad returns the error of an argument.
func bad(field, format string, args ...any) error {
	return &driver.InputError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

func (c *Config) check(hot, cold driver.Store) error {
	limits := driver.LimitsOf
	switch {
	case isNil(hot):
		return bad("Hot", "is nil")
	case isNil(cold):
		return bad("Cold", "is nil")
	case same(hot, cold):
		return bad("Hot", "is the cold store itself")
	case limits(hot).Window != 0:
		return bad("Hot",
			"has one window for all keys, and two are needed: HotWindow and the Window of the Dedupers")
	case c.LeaseTTL <= 0:
		return bad("layered.Config.LeaseTTL", "is %v; it must be positive", c.LeaseTTL)
	case c.HotWindow < minLeases*c.LeaseTTL:
		return bad("layered.Config.HotWindow", "is %v; at least %d LeaseTTLs (%v) are needed",
			c.HotWindow, minLeases, minLeases*c.LeaseTTL)
	case limits(hot).MaxHold != 0 && limits(hot).MaxHold < c.HotWindow:
		return bad("layered.Config.HotWindow",
			"is %v; the hot store keeps what is unfinished for %v at most", c.HotWindow,
			limits(hot).MaxHold)
	case c.Filter != nil && isNil(c.Filter):
		return bad("layered.Config.Filter", "is a nil %T", c.Filter)
	}
	return nil
}

// isNil reports whether value is nil, or a nil pointer, map, func, slice or channel.
func isNil(value any) bool {
	switch v := reflect.ValueOf(value); v.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Pointer, reflect.Map, reflect.Func, reflect.Slice, reflect.Chan:
		return v.IsNil()
	}
	return false
}

// same reports whether two stores are one.
func same(a, b driver.Store) bool {
	t := reflect.TypeOf(a)
	return t.Kind() == reflect.Pointer && t == reflect.TypeOf(b) && a == b
}

// layers is one [driver.Store] made of two. hot keeps every claim, and the finished keys for the
// hot window. cold keeps the keys that succeeded, for all of their window.
//
// The two must agree on the order of their writes. An end goes to cold first: should the process
// die in between, the claim lapses, the next one is a second attempt, and second attempts look into
// cold. A record is written to cold less than a lease after hot learned of its key; a later one is
// written to hot first. So a record of a key that hot has forgotten was written at least the hot
// window less a lease ago, and a filter that lags by less has it.
type layers struct {
	waker
	hot, cold      driver.Store
	warmFor, lease time.Duration // Config.HotWindow and LeaseTTL
	stage          *filterStage  // nil: cold is always asked
}

// withForgets adds Forgets, for caches, to a store made of two, if both of them have it.
func withForgets(store limited, a, b driver.Store) driver.Store {
	counts, ok1 := a.(driver.ForgetCounter)
	too, ok2 := b.(driver.ForgetCounter)
	if ok1 && ok2 {
		return &forgetting{store, counts, too}
	}
	return store
}

// limited is a store with limits.
type limited interface {
	driver.Store
	driver.Limiter
	driver.Waker
}

// forgetting is a store made of two that both count what is forgotten.
type forgetting struct {
	limited
	a, b driver.ForgetCounter
}

// Forgets returns a number that changes when the number of either store changes.
func (f *forgetting) Forgets(ctx context.Context) (uint64, error) {
	a, err := f.a.Forgets(ctx)
	if err != nil {
		return 0, err
	}
	b, err := f.b.Forgets(ctx)
	return a*0x9e3779b97f4a7c15 ^ bits.RotateLeft64(b, 31), err
}

// limitsOfBoth returns the limits of two stores that are used together.
func limitsOfBoth(a, b driver.Store) driver.Limits {
	limits, other := driver.LimitsOf(a), driver.LimitsOf(b)
	limits.Window = max(limits.Window, other.Window)
	if limits.MaxHold == 0 || other.MaxHold != 0 && other.MaxHold < limits.MaxHold {
		limits.MaxHold = other.MaxHold
	}
	if limits.MaxLease == 0 || other.MaxLease != 0 && other.MaxLease < limits.MaxLease {
		limits.MaxLease = other.MaxLease
	}
	limits.MinHold = max(limits.MinHold, other.MinHold)
	limits.NoResults = limits.NoResults || other.NoResults
	limits.NoFailures = limits.NoFailures || other.NoFailures
	return limits
}

// Limits are those of both stores, except for MinHold and MaxLease: hot has to remember all that is
// written to it for the hot window, and no lease may be longer than Config.LeaseTTL. The window is
// that of cold: hot has none of its own.
func (l *layers) Limits() driver.Limits {
	limits := limitsOfBoth(l.cold, l.hot)
	limits.MinHold, limits.MaxLease = l.warmFor, l.lease
	return limits
}

// Renew implements [driver.Store]. Claims are in hot alone, and so is Irreversible, for the whole
// window of the key.
func (l *layers) Renew(ctx context.Context, renewals []driver.Renewal) []driver.Answer {
	return l.hot.Renew(ctx, renewals)
}

// Lookup implements [driver.Store]. Recently finished keys are in hot, all that succeeded are in
// cold, and unfinished keys are in hot again.
func (l *layers) Lookup(ctx context.Context, ids []driver.ID) []driver.Answer {
	answers := answered(l.hot.Lookup(ctx, ids), len(ids))
	var rest []driver.ID
	var at []int
	for i := range answers {
		if ans := &answers[i]; ans.Err == nil && !done(ans.Record.State) {
			rest, at = append(rest, ids[i]), append(at, i)
		}
	}
	if len(rest) == 0 {
		return answers
	}
	for n, found := range answered(l.cold.Lookup(ctx, rest), len(rest)) {
		ans := &answers[at[n]]
		if found.Err != nil || done(found.Record.State) || ans.Record.State == driver.StateAbsent {
			*ans = found
		}
	}
	return answers
}

// Forget implements [driver.Store]. The record in cold goes first: as long as the hot record
// answers, nobody runs a key that is only half forgotten. After an error the record in cold may
// be gone; forgetting again is harmless.
func (l *layers) Forget(ctx context.Context, ids []driver.ID, hold time.Duration) []error {
	errs := make([]error, len(ids))
	var todo []driver.ID
	var at []int
	for i, ans := range answered(l.hot.Lookup(ctx, ids), len(ids)) {
		switch {
		case ans.Err != nil:
			errs[i] = ans.Err
		case ans.Record.State == driver.StateInProgress && ans.Record.Remaining > 0:
			errs[i] = driver.ErrInFlight
		default:
			todo, at = append(todo, ids[i]), append(at, i)
		}
	}
	for _, store := range []driver.Store{l.cold, l.hot} {
		if len(todo) == 0 {
			break
		}
		todo, at = forgetIn(ctx, store, todo, at, hold, errs)
	}
	return errs
}

// forgetIn forgets ids in one store, notes the errors in errs[at], and returns those without one.
func forgetIn(ctx context.Context, store driver.Store, ids []driver.ID, at []int,
	hold time.Duration,
	errs []error) (todo []driver.ID, left []int) {
	found := store.Forget(ctx, ids, hold)
	if len(found) != len(ids) {
		found = make([]error, len(ids))
		for i := range found {
			found[i] = dedup.ErrUnknown
		}
	}
	for n, err := range found {
		if errs[at[n]] = err; err == nil {
			todo, left = append(todo, ids[n]), append(left, at[n])
		}
	}
	return todo, left
}

// answered makes a store that breaks its contract harmless: nothing is known of its items.
func answered(answers []driver.Answer, want int) []driver.Answer {
	if len(answers) == want {
		return answers
	}
	return slices.Repeat([]driver.Answer{{Err: fmt.Errorf("%w: store gave %d answers for %d items",
		dedup.ErrUnknown, len(answers), want)}}, want)
}

// done reports whether a key has reached its end.
func done(s driver.State) bool { return s == driver.StateSucceeded || s == driver.StateFailed }
