package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// The ways in which a caller handles an error. Park is for errors of which no predicate is true.
const (
	ack     = "acknowledge"
	again   = "retry"
	unknown = "unknown"
	park    = "park or stop"
)

// decisions lists the predicates that are true of err, or only park if none is.
func decisions(err error) (all []string) {
	for name, holds := range map[string]func(error) bool{ack: dedup.CanAck, again: dedup.CanRetry,
		unknown: dedup.OutcomeUnknown} {
		if holds(err) {
			all = append(all, name)
		}
	}
	if len(all) == 0 {
		return []string{park}
	}
	return all
}

// TestWhatToDoAboutEachError: every error that the package returns says one thing to its
// caller. If two predicates were true at once, a caller that asks in another order than the next
// caller would acknowledge a message that is not done.
func TestWhatToDoAboutEachError(t *testing.T) {
	errOwn := errors.New("bank is down")
	for name, row := range map[string]struct {
		err  func(*testing.T) error
		want string
	}{
		"the handler's own":     {ends(errOwn, nil), again},
		"a failure for good":    {ends(dedup.Permanent(errOwn), nil), ack},
		"its replay":            {replayed(ends(dedup.Permanent(errOwn), nil)), ack},
		"another key's failure": {ends(&dedup.FailedError{}, nil), ack},
		"no result":             {replayed(testNoResult), ack},
		"another key's ErrNoResult": {ends(fmt.Errorf("inner: %w", dedup.ErrNoResult), nil),
			park},
		"a failure for that":               {ends(dedup.Permanent(dedup.ErrNoResult), nil), ack},
		"another key's unknown outcome":    {ends(dedup.ErrUnknown, nil), unknown},
		"another key's mismatch, for good": {ends(dedup.Permanent(dedup.ErrMismatch), nil), park},
		"bad input, for good":              {ends(dedup.Permanent(&dedup.InputError{}), nil), park},
		"a success that lost its lease":    {ends(nil, loses), again},
		"a failure that lost its lease":    {ends(dedup.Permanent(errOwn), loses), again},
		"an error that lost its lease":     {ends(context.Canceled, loses), again},
		"a success without a reply":        {ends(nil, lost(errNet)), unknown},
		"a failure without a reply":        {ends(dedup.Permanent(errOwn), lost(errNet)), unknown},
		"a release without a reply":        {ends(errOwn, lost(errNet)), again},
		"a success that is refused": {ends(nil, lost(&dedup.InputError{Field: "Window"})),
			park},
		"a failure that is refused": {ends(dedup.Permanent(errOwn),
			lost(&dedup.InputError{Field: "State"})), park},
		"a success over a foreign record": {ends(nil, lost(driver.ErrUnreadable)), park},
		"a failure over a foreign record": {ends(dedup.Permanent(errOwn),
			lost(driver.ErrUnreadable)), park},
		"a handler that was cancelled": {ends(context.Canceled, nil), park},
		"a handler out of time":        {ends(context.DeadlineExceeded, nil), again},
		"in flight":                    {inFlight, again},
		"another payload":              {mismatch, park},
		"uncertain":                    {asked(nil), park},
		"uncertain, and asked about":   {asked(answering(dedup.Resolution{})), again},
		"uncertain, and nobody will know": {asked(resolving(fruitless(dedup.Permanent(errOwn)))),
			park},
		"uncertain for an unknown outcome": {asked(resolving(fruitless(dedup.ErrUnknown))), again},
		"uncertain for another's result":   {asked(resolving(fruitless(dedup.ErrNoResult))), again},
		"uncertain for a lost lease": {asked(resolving(fruitless(dedup.ErrLeaseLost))),
			again},
		"a store that is down":    {refused(errNet), unknown},
		"a store that is full":    {refused(driver.ErrStoreFull), unknown},
		"a claim that is refused": {refused(&dedup.InputError{Field: "Hold"}), park},
		"an unreadable record":    {refused(driver.ErrUnreadable), park},
		"a value of another type": {otherType, park},
		"a caller that has left":  {leaves, unknown},
		"a bad key":               {badKey, park},
		"closed":                  {closed, park},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				err := row.err(t)
				require.Error(t, err)
				assert.Equal(t, []string{row.want}, decisions(err), err)
			})
		})
	}
	assert.Equal(t, []string{ack}, decisions(nil))
}

// TestAtMostOneDecision: an error that is made of two others also says one thing only.
func TestAtMostOneDecision(t *testing.T) {
	atoms := []error{
		errors.New("own"), dedup.ErrInFlight, dedup.ErrMismatch, dedup.ErrUncertain,
		dedup.ErrUnknown, dedup.ErrLeaseLost,
		dedup.ErrClosed, dedup.ErrNoResult, driver.ErrStoreFull, driver.ErrUnreadable,
		&dedup.InputError{}, &dedup.FailedError{}, context.Canceled, context.DeadlineExceeded,
	}
	for _, a := range atoms {
		for _, b := range atoms {
			for _, err := range []error{
				errors.Join(a, b), fmt.Errorf("%w: %w", a, b), dedup.Permanent(errors.Join(a, b)),
				errors.Join(dedup.Permanent(a), b), dedup.NotStarted(errors.Join(a, b)),
			} {
				assert.Len(t, decisions(err), 1, "%v and %v in a %T", a, b, err)
			}
		}
	}
}

// TestRefusalSaysItsFieldOnce: when a store certainly refuses a request, the error is not
// ErrUnknown, and its text does not say that the outcome is unknown.
func TestRefusalSaysItsFieldOnce(t *testing.T) {
	err := refused(&dedup.InputError{Field: "Window", Reason: "is 2h0m0s"})(t)
	assert.EqualError(t, err, "dedup: Window is 2h0m0s")
	assert.NotErrorIs(t, err, dedup.ErrUnknown)
}

// ends returns the error of a Do whose handler injects fault and then returns err.
func ends(err error, fault func(*testing.T, *hooked)) func(*testing.T) error {
	return func(t *testing.T) error {
		store := hook()
		_, got := do(t, newDeduper(t, store, nil), "k", func(context.Context) (string, error) {
			if fault != nil {
				fault(t, store)
			}
			return "v", err
		})
		return got
	}
}

func lost(err error) func(*testing.T, *hooked) {
	return func(_ *testing.T, store *hooked) {
		store.setBefore(only("Finish", func(call) error { return err }))
	}
}

// loses lets another worker mark the key while the handler sleeps for two leases.
func loses(t *testing.T, store *hooked) {
	store.setBefore(only("Renew", func(call) error { return errNet }))
	time.Sleep(2 * lease)
	_, err := newDeduper(t, store, nil).Mark(t.Context(), "k")
	require.NoError(t, err)
}

// replayed returns the error of a second call for the same key.
func replayed(first func(*testing.T) error) func(*testing.T) error {
	return func(t *testing.T) error {
		store := hook()
		d := newDeduper(t, store, func(c *dedup.Config) { c.ResultLimit = 1 })
		_, err := do(t, d, "k", func(context.Context) (string, error) {
			return "too long", first(t)
		})
		require.True(t, dedup.CanAck(err), err)
		_, err = do(t, d, "k", mustNotRun(t))
		return err
	}
}

func testNoResult(*testing.T) error { return nil }

func inFlight(t *testing.T) error {
	store := hook()
	acquire(t, newDeduper(t, store, nil), "k")
	_, err := do(t, newDeduper(t, store, nil), "k", mustNotRun(t))
	return err
}

func mismatch(t *testing.T) error {
	d := newDeduper(t, hook(), nil)
	acquire(t, d, "k", dedup.WithFingerprint([]byte("a")))
	_, err := do(t, d, "k", mustNotRun(t))
	require.ErrorIs(t, err, dedup.ErrInFlight)
	_, err = dedup.Do(t.Context(), d, "k", mustNotRun(t), dedup.WithFingerprint([]byte("b")))
	return err
}

func asked(change func(*dedup.Config)) func(*testing.T) error {
	return func(t *testing.T) error {
		store := hook()
		uncertainKey(t, newDeduper(t, store, nil), store, "k")
		_, err := do(t, newDeduper(t, store, change), "k", mustNotRun(t))
		return err
	}
}

func fruitless(err error) func(context.Context, string, dedup.Record) (dedup.Resolution, error) {
	return func(context.Context, string, dedup.Record) (dedup.Resolution, error) {
		return dedup.Resolution{}, err
	}
}

func refused(err error) func(*testing.T) error {
	return func(t *testing.T) error {
		store := hook()
		store.setBefore(only("Claim", func(call) error { return err }))
		_, err := do(t, newDeduper(t, store, nil), "k", mustNotRun(t))
		return err
	}
}

func otherType(t *testing.T) error {
	d := newDeduper(t, hook(), nil)
	_, err := do(t, d, "k", returns("not JSON"))
	require.NoError(t, err)
	_, err = dedup.Do(t.Context(), d, "k", func(context.Context) (int, error) {
		return 0, errors.New("ran")
	})
	return err
}

func leaves(t *testing.T) error {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := dedup.Do(ctx, newDeduper(t, hook(), nil), "k", mustNotRun(t))
	return err
}

func badKey(t *testing.T) error {
	_, err := do(t, newDeduper(t, hook(), nil), "", mustNotRun(t))
	return err
}

func closed(t *testing.T) error {
	d := newDeduper(t, hook(), nil)
	require.NoError(t, d.Close(t.Context()))
	_, err := do(t, d, "k", mustNotRun(t))
	return err
}
