package main

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// world is an agency whose effects are counted. The first answers are lost, of these activities or
// of all.
func world(t *testing.T, lost int32, names ...string) *agency {
	t.Helper()
	a, err := newAgency(t.Context(), 10)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.close)
	a.runs.lost = func(name string, attempt int32) bool {
		return attempt <= lost && (len(names) == 0 || slices.Contains(names, name))
	}
	return a
}

// effects is what has happened outside.
type effects struct{ seats, charges, refunds, tickets int }

func (a *agency) want(t *testing.T, want effects) {
	t.Helper()
	free, err := a.free(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := (effects{10 - free, a.bank.charges, a.bank.refunds,
		len(a.airline.tickets)}); got != want {
		t.Errorf("%+v; want %+v, after %v", got, want, a.runs.runs)
	}
}

// TestEachActivityOnce: all run three times, for their answers are lost after the effect has
// landed.
func TestEachActivityOnce(t *testing.T) {
	a := world(t, 2)
	if ticket, err := a.book("trip"); err != nil || ticket != "LH1-001" {
		t.Error(ticket, err)
	}
	a.want(t, effects{seats: 1, charges: 1, tickets: 1})
	if want := map[string]int{"Reserve": 3, "Charge": 3,
		"Issue": 3}; !maps.Equal(a.runs.runs, want) {
		t.Errorf("ran %v; want %v", a.runs.runs, want)
	}
	// The same workflow again, as after a reset: another run, and the keys of the first.
	if ticket, err := a.book("trip"); err != nil || ticket != "LH1-001" {
		t.Error(ticket, err)
	}
	a.want(t, effects{seats: 1, charges: 1, tickets: 1})
	if _, err := a.book("another"); err != nil {
		t.Error(err)
	}
	a.want(t, effects{seats: 2, charges: 2, tickets: 2})
}

// TestCompensatedOnce: each step is undone once, although its compensation runs three times.
func TestCompensatedOnce(t *testing.T) {
	a := world(t, 2)
	a.airline.refuse = true
	if _, err := a.book("trip"); err == nil || !strings.Contains(err.Error(), errRefused.Error()) {
		t.Error(err)
	}
	a.want(t, effects{charges: 1, refunds: 1})
	if a.runs.runs["Refund"] != 3 || a.runs.runs["Release"] != 3 {
		t.Errorf("ran %v", a.runs.runs)
	}
}

// TestDeclined: nothing was taken, so nothing is given back.
func TestDeclined(t *testing.T) {
	a := world(t, 1)
	a.bank.decline = true
	if _, err := a.book("trip"); err == nil {
		t.Error("booked")
	}
	a.want(t, effects{})
}

// TestSoldOut: the step that failed for good has taken no seat, so none goes back.
func TestSoldOut(t *testing.T) {
	a := world(t, 0)
	if _, err := a.db.ExecContext(t.Context(), `UPDATE flight SET free = 0`); err != nil {
		t.Fatal(err)
	}
	if _, err := a.book("trip"); err == nil {
		t.Error("booked")
	}
	a.want(t, effects{seats: 10})
}

// TestAnswersOfTheOutsideLost: the bank has charged, and nobody has heard of it; it would charge
// again if it were told to.
func TestAnswersOfTheOutsideLost(t *testing.T) {
	a := world(t, 0)
	a.bank.lose, a.airline.lose = 1, 2
	if ticket, err := a.book("trip"); err != nil || ticket != "LH1-001" {
		t.Error(ticket, err)
	}
	a.want(t, effects{seats: 1, charges: 1, tickets: 1})
}

// TestGivenUp: the workflow gives up on a charge that the bank has made, of which neither heard; it
// is found and given back.
func TestGivenUp(t *testing.T) {
	a := world(t, 8, "Charge")
	a.bank.lose = 1
	if _, err := a.book("trip"); err == nil {
		t.Error("booked")
	}
	a.want(t, effects{charges: 1, refunds: 1})
	if a.runs.runs["Charge"] != 8 {
		t.Errorf("ran %v", a.runs.runs)
	}
}

// TestUndoneStaysUndone: the same workflow started again, after its seat has gone back, finds no
// seat to be its own.
func TestUndoneStaysUndone(t *testing.T) {
	a := world(t, 8, "Reserve")
	for range 2 {
		if _, err := a.book("trip"); err == nil {
			t.Error("booked")
		}
		a.want(t, effects{})
		a.runs.lost = func(string, int32) bool { return false }
	}
}

// TestInFlightElsewhere: while another worker has the charge, its activity is asked for again and
// again, and nothing is charged.
func TestInFlightElsewhere(t *testing.T) {
	a := world(t, 0)
	claim, err := a.once.Claim(t.Context(), "trip/charge")
	if err != nil {
		t.Fatal(err)
	}
	var tries atomic.Int32
	a.runs.begun = func(name string) {
		if name == "Charge" && tries.Add(1) == 3 {
			if err := claim.Complete(context.WithoutCancel(t.Context()),
				[]byte("receipt of another")); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := a.book("trip"); err != nil {
		t.Error(err)
	}
	a.want(t, effects{seats: 1, tickets: 1})
	if tries.Load() != 3 {
		t.Errorf("Charge was tried %d times", tries.Load())
	}
}

func TestRun(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	t.Log(out.String())
	if !strings.HasSuffix(out.String(),
		"activities ran 33 times: 2 seats taken, 3 charges, 1 refunds, 2 tickets\n") {
		t.Error(out.String())
	}
}
