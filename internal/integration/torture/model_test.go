package torture_test

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// standing is the state of a key in a store.
type standing uint8

const (
	free      standing = iota
	held               // by token, at least until expiry
	uncertain          // an owner died in its irreversible part
	done               // by token
)

// keyState is a state that the model thinks possible.
type keyState struct {
	standing standing
	danger   bool   // of a key that is not done
	token    uint64 // of the owner, or of the claim that ended it
	expiry   int64  // the earliest time
	// beside is the token of a lease that is there although another owner has completed the key. In
	// the layout Compact, a late owner adds the member before it looks at the lease, and may be
	// killed in between. Other claims are answered "done", which is true: an effect has happened.
	beside uint64
}

// operation is one item of a call, from the request to the answer.
type operation struct {
	child      int
	op         op
	token      uint64
	lease      int64
	asked      uint8 // flags
	code       uint8
	said       uint8 // flags
	call, back int64 // back is 0 where there was no answer
}

// tick is how much too early a lease may end: servers count in milliseconds.
const tick = int64(5 * time.Millisecond)

// mayLapse reports whether the lease may have ended when the operation was executed.
func (s keyState) mayLapse(o *operation) bool {
	return s.standing == held && o.last()+tick >= s.expiry
}

// last is the latest time at which the operation was executed.
func (o *operation) last() int64 {
	if o.back == 0 || o.code == saidUnknown {
		return math.MaxInt64 - tick
	}
	return o.back
}

// after returns the states that may follow a state, given the request and the answer. No states
// mean that this answer was not possible.
func after(s keyState, o *operation) []keyState {
	if o.back == 0 || o.code == saidUnknown {
		return append(executed(s, o), s) // or the request never arrived
	}
	switch o.op {
	case opClaim:
		return claimed1(s, o)
	case opMark:
		return marked1(s, o)
	}
	return changed(s, o)
}

// executed returns the states after an operation whose answer nobody knows.
func executed(s keyState, o *operation) []keyState {
	var all []keyState
	try := func(code, flags uint8) {
		known := *o
		known.code, known.said, known.back = code, flags, math.MaxInt64-tick
		all = append(all, after(s, &known)...)
	}
	switch o.op {
	case opClaim:
		try(saidAcquired, 0)
		try(saidAcquired, flagMine)
	case opMark:
		try(saidAcquired, flagRan)
	default:
		try(saidEnded, flagHeld|flagWritten)
		try(saidEnded, flagWritten)
	}
	return all
}

// claimed1 returns the states after an answered claim.
func claimed1(s keyState, o *operation) []keyState {
	lapsed := s.mayLapse(o)
	switch o.code {
	case saidAcquired:
		won := keyState{standing: held, danger: s.danger, token: o.token, expiry: o.call + o.lease}
		switch {
		case s.standing == held && s.token == o.token:
			if o.said&flagMine != 0 {
				return []keyState{s}
			}
			if lapsed && !s.danger { // it has taken over its own claim
				return []keyState{won}
			}
		case s.standing == free, lapsed && !s.danger:
			return []keyState{won}
		case (s.standing == uncertain || lapsed && s.danger) && o.asked&flagTakeUncertain != 0:
			won.danger = true
			return []keyState{won}
		}
	case saidDuplicate:
		if s.standing == done {
			return []keyState{s}
		}
	case saidInFlight:
		if s.standing == held && s.token != o.token {
			return []keyState{s}
		}
	case saidUncertain:
		if s.standing == uncertain || lapsed && s.danger {
			return []keyState{{standing: uncertain, danger: true, token: s.token}}
		}
	}
	return nil
}

// lies reports whether the operation's lease is the one next to another's end.
func (s keyState) lies(o *operation) bool { return s.beside != 0 && s.beside == o.token }

// changed returns the states after an answered renewal or end.
func changed(s keyState, o *operation) []keyState {
	ours := s.standing == held && s.token == o.token
	isHeld, written := o.said&flagHeld != 0, o.said&flagWritten != 0
	switch o.op {
	case opRenew:
		if isHeld && ours {
			s.expiry = o.call + o.lease
			s.danger = s.danger || o.asked&flagIrreversible != 0
			return []keyState{s}
		}
		if !isHeld && (!ours || s.mayLapse(o)) {
			return []keyState{s}
		}
		// compact: the lease is dropped after the member is added
		if isHeld && s.standing == done && (s.token == o.token || s.lies(o)) {
			return []keyState{s}
		}
	case opFinish:
		ended := keyState{standing: done, token: o.token}
		if !ours && s.standing == held && !isHeld {
			ended.beside = s.token
		}
		switch {
		case isHeld && s.standing == done && s.lies(o):
			return []keyState{ended}
		case written && isHeld && ours, written && s.standing == done && s.token == o.token,
			written && !isHeld && o.asked&flagApplied != 0 && s.standing != done:
			return []keyState{ended}
		case !written && !ours:
			return []keyState{s}
		case !written && s.mayLapse(o):
			// a layout that cannot tell a lease that has ended from one of another owner
			return []keyState{s}
		}
	case opRelease:
		released := keyState{standing: free, token: o.token}
		if s.danger && o.asked&flagNotStarted == 0 {
			released = keyState{standing: uncertain, danger: true, token: o.token}
		}
		switch {
		case isHeld && ours:
			return []keyState{released}
		case isHeld && s.standing == done && s.lies(o):
			return []keyState{s}
		case isHeld && (s.standing == free || s.standing == uncertain) && s.token == o.token:
			// a repeated request
			return []keyState{s}
		case !isHeld && (!ours || s.mayLapse(o)):
			return []keyState{s}
		}
	}
	return nil
}

// marked1 returns the states after a transaction with record and effect. If a COMMIT was lost, the
// transaction may have been repeated, and then it finds its own mark.
func marked1(s keyState, o *operation) []keyState {
	now := keyState{standing: done}
	switch {
	case o.code == saidAcquired && s.standing == free, o.code == saidDuplicate &&
		s.standing == done,
		o.code == saidDuplicate && s.standing == free && o.said&flagRan != 0:
		return []keyState{now}
	}
	return nil
}

var model = func() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{keyState{}} },
		Step: func(state, input, _ any) (all []any) {
			s, _ := state.(keyState)
			o, _ := input.(*operation)
			for _, next := range after(s, o) {
				all = append(all, next)
			}
			return all
		},
	}
	return m.ToModel()
}()

// check asks Porcupine about the history of one key.
func check(ops []*operation, limit time.Duration) porcupine.CheckResult {
	slices.SortStableFunc(ops, func(a, b *operation) int { return cmp.Compare(a.call, b.call) })
	var all []porcupine.Operation
	for _, o := range ops {
		back := o.back
		if back == 0 || o.code == saidUnknown {
			back = math.MaxInt64
		}
		all = append(all, porcupine.Operation{ClientId: o.child, Input: o, Call: o.call,
			Return: back})
	}
	return porcupine.CheckOperationsTimeout(model, all, limit)
}
