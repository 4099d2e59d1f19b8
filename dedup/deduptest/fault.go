package deduptest

import (
	"errors"
	"math/rand/v2"
)

// ErrInjected is wrapped by every error that [Faulty] makes.
var ErrInjected = errors.New("deduptest: injected fault")

// Op is a method of [dedup.Store].
type Op string

// The methods of a store.
const (
	OpClaim  Op = "Claim"
	OpRenew  Op = "Renew"
	OpFinish Op = "Finish"
	OpLookup Op = "Lookup"
	OpForget Op = "Forget"
)

// Kind is what happens to a call.
type Kind string

const (
	// Pass leaves the call alone. It is the zero value.
	Pass Kind = ""
	// DropRequest drops the items from Fault.Item on before they reach the store: a connection that
	// broke while the batch was written. They are not executed and carry an error.
	DropRequest Kind = "drop_request"
	// DropReply executes the whole batch and loses the answers from Fault.Item on: a
	// connection that broke while they were read.
	DropReply Kind = "drop_reply"
	// FailItem keeps the one item Fault.Item from the store; its neighbors pass.
	FailItem Kind = "fail_item"
	// Hang executes nothing and returns when ctx ends: a server that does not answer.
	// It needs a ctx that ends.
	Hang Kind = "hang"
	// HangReply executes the whole batch and returns, without an answer, when ctx ends.
	HangReply Kind = "hang_reply"
)

// Fault is what happens to one call. The zero Fault is [Pass].
type Fault struct {
	// Kind of the fault.
	Kind Kind
	// Item is the index of the first item, or of the only one, that suffers. If Item is at or
	// beyond the end of the batch, no item suffers. Default 0.
	Item int
}

// Call describes a call to a [Plan].
type Call struct {
	// Op is the method.
	Op Op
	// Number of this call among those of its method, from 1.
	Number int
	// Items in the batch.
	Items int
}

// Plan decides what happens to each call. [Faulty] asks it for one call at a time, in
// the order in which they arrive, so a Plan needs no locking of its own.
type Plan func(Call) Fault

// Script lets the calls of one method meet the given faults in turn; the calls after
// them, and those of all other methods, pass.
func Script(op Op, faults ...Fault) Plan {
	return func(call Call) Fault {
		if call.Op == op && call.Number <= len(faults) {
			return faults[call.Number-1]
		}
		return Fault{}
	}
}

// Seeded makes each call suffer with the given probability, from 0 to 1: its request
// or its reply is lost, from the start or from some item on, or a single item fails.
// Nothing hangs. One seed always gives one sequence of faults; which call of several
// at a time meets which fault is up to the scheduler.
func Seeded(seed uint64, rate float64) Plan {
	rng := rand.New(rand.NewPCG(seed, 0))
	kinds := [...]Kind{DropRequest, DropReply, FailItem}
	return func(call Call) Fault {
		hit, kind, from, cut := rng.Float64() < rate, kinds[rng.IntN(len(kinds))], rng.Float64(),
			rng.IntN(2) == 0
		if !hit {
			return Fault{}
		}
		if !cut && kind != FailItem {
			from = 0
		}
		return Fault{Kind: kind, Item: int(from * float64(call.Items))}
	}
}
