package main

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// world is an agency whose effects are counted. The first lost answers of the named activities, or
// of all activities, do not arrive.
func world(t *testing.T, lost int32, names ...string) *agency {
	t.Helper()
	a, err := newAgency(t.Context(), 10)
	require.NoError(t, err)
	t.Cleanup(a.close)
	a.runs.lost = func(name string, attempt int32) bool {
		return attempt <= lost && (len(names) == 0 || slices.Contains(names, name))
	}
	return a
}

// effects has the numbers of effects outside of the workflow.
type effects struct{ seats, charges, refunds, tickets int }

func (a *agency) want(t *testing.T, want effects) {
	t.Helper()
	free, err := a.free(t.Context())
	require.NoError(t, err)
	assert.Equal(t, want,
		(effects{10 - free, a.bank.charges, a.bank.refunds,
			len(a.airline.tickets)}), "after %v", a.runs.runs)
}

// TestEachActivityOnce: each activity runs three times, because its answers are lost after the
// effect has landed.
func TestEachActivityOnce(t *testing.T) {
	a := world(t, 2)
	ticket, err := a.book("trip")
	assert.NoError(t, err)
	assert.Equal(t, "LH1-001", ticket)
	a.want(t, effects{seats: 1, charges: 1, tickets: 1})
	assert.Equal(t, map[string]int{"Reserve": 3, "Charge": 3, "Issue": 3}, a.runs.runs, "ran")
	// The same workflow runs again, as after a reset, with the same keys.
	ticket, err = a.book("trip")
	assert.NoError(t, err)
	assert.Equal(t, "LH1-001", ticket)
	a.want(t, effects{seats: 1, charges: 1, tickets: 1})
	_, err = a.book("another")
	assert.NoError(t, err)
	a.want(t, effects{seats: 2, charges: 2, tickets: 2})
}

// TestCompensatedOnce: each step is undone once, although its compensation runs three times.
func TestCompensatedOnce(t *testing.T) {
	a := world(t, 2)
	a.airline.refuse = true
	_, err := a.book("trip")
	assert.ErrorContains(t, err, errRefused.Error())
	a.want(t, effects{charges: 1, refunds: 1})
	assert.False(t, a.runs.runs["Refund"] != 3 || a.runs.runs["Release"] != 3, "ran %v",
		a.runs.runs)
}

// TestDeclined: nothing was charged, so nothing is refunded.
func TestDeclined(t *testing.T) {
	a := world(t, 1)
	a.bank.decline = true
	_, err := a.book("trip")
	assert.Error(t, err, "booked")
	a.want(t, effects{})
}

// TestSoldOut: the step that failed for good has not taken a seat, so it gives none back.
func TestSoldOut(t *testing.T) {
	a := world(t, 0)
	_, err := a.db.ExecContext(t.Context(), `UPDATE flight SET free = 0`)
	require.NoError(t, err)
	_, err = a.book("trip")
	assert.Error(t, err, "booked")
	a.want(t, effects{seats: 10})
}

// TestAnswersOfTheOutsideLost: the bank has charged, but its answer is lost. It would charge again
// for a second request.
func TestAnswersOfTheOutsideLost(t *testing.T) {
	a := world(t, 0)
	a.bank.lose, a.airline.lose = 1, 2
	ticket, err := a.book("trip")
	assert.NoError(t, err)
	assert.Equal(t, "LH1-001", ticket)
	a.want(t, effects{seats: 1, charges: 1, tickets: 1})
}

// TestGivenUp: the bank has charged, but the workflow does not learn that and gives up. The charge
// is found and refunded.
func TestGivenUp(t *testing.T) {
	a := world(t, 8, "Charge")
	a.bank.lose = 1
	_, err := a.book("trip")
	assert.Error(t, err, "booked")
	a.want(t, effects{charges: 1, refunds: 1})
	assert.Equal(t, 8, a.runs.runs["Charge"], "ran %v", a.runs.runs)
}

// TestUndoneStaysUndone: after its seat was given back, the same workflow starts again. It does not
// take a seat.
func TestUndoneStaysUndone(t *testing.T) {
	a := world(t, 8, "Reserve")
	for range 2 {
		_, err := a.book("trip")
		assert.Error(t, err, "booked")
		a.want(t, effects{})
		a.runs.lost = func(string, int32) bool { return false }
	}
}

// TestInFlightElsewhere: another worker holds the claim of the charge. The activity is tried until
// that worker has completed it, and charges nothing itself.
func TestInFlightElsewhere(t *testing.T) {
	a := world(t, 0)
	claim, err := a.once.Claim(t.Context(), "trip/charge")
	require.NoError(t, err)
	var tries atomic.Int32
	a.runs.begun = func(name string) {
		if name == "Charge" && tries.Add(1) == 3 {
			assert.NoError(t,
				claim.Complete(context.WithoutCancel(t.Context()), []byte("receipt of another")))
		}
	}
	_, err = a.book("trip")
	assert.NoError(t, err)
	a.want(t, effects{seats: 1, tickets: 1})
	assert.EqualValues(t, 3, tries.Load(), "tries of Charge")
}

func TestRun(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out))
	t.Log(out.String())
	assert.True(t,
		strings.HasSuffix(out.String(),
			"activities ran 33 times: 2 seats taken, 3 charges, 1 refunds, 2 tickets\n"),
		out.String())
}
