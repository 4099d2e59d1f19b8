package torture_test

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// standing is what a store may know of a key.
type standing uint8

const (
	free      standing = iota
	held               // by token, at least until expiry
	uncertain          // an owner that was in danger is gone
	done               // by token
)

// keyState is one that the model thinks possible.
type keyState struct {
	standing standing
	danger   bool   // of a key that is not done
	token    uint64 // of the owner, or of the one that ended it
	expiry   int64  // the earliest
	// beside is whose lease lies beside another's end (compact): a late owner has added the member,
	// and was killed before it looked at the lease. Others are told "done", which is true: an
	// effect has landed.
	beside uint64
}

// operation is one item of a call, from its being sent to its answer.
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

// tick is by how much a lease may end too early: servers count in milliseconds.
const tick = int64(5 * time.Millisecond)

// mayLapse reports whether the lease may have lapsed when the operation was executed.
func (s keyState) mayLapse(o *operation) bool {
	return s.standing == held && o.last()+tick >= s.expiry
}

// last is when the operation was executed at the latest.
func (o *operation) last() int64 {
	if o.back == 0 || o.code == saidUnknown {
		return math.MaxInt64 - tick
	}
	return o.back
}

// after are the states that may follow a state, given what was asked and answered; none says that
// this answer was not possible.
func after(s keyState, o *operation) []keyState {
	if o.back == 0 || o.code == saidUnknown {
		return append(executed(s, o), s) // or it never came there
	}
	switch o.op {
	case opClaim:
		return claimed1(s, o)
	case opMark:
		return marked1(s, o)
	}
	return changed(s, o)
}

// executed are the states after an operation of which nobody knows what was answered.
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

// claimed1 is a claim that was answered.
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
			if lapsed && !s.danger { // it has taken itself over
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

// lies reports whether the lease of the operation lies beside another's end.
func (s keyState) lies(o *operation) bool { return s.beside != 0 && s.beside == o.token }

// changed is a renewal or an end that was answered.
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
			// a layout that cannot tell what has lapsed from what is another's
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
			// sent again
			return []keyState{s}
		case !isHeld && (!ours || s.mayLapse(o)):
			return []keyState{s}
		}
	}
	return nil
}

// marked1 is a transaction with record and effect. It may have been repeated after a lost COMMIT,
// and find the mark that it has made itself.
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
