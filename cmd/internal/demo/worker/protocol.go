// Package worker is one consumer of the demo. It runs in a process of its own, so that it can be
// killed for real.
//
// Its parent writes JSON lines to its standard input: first a Config, then Points. A Point asks the
// worker to stop there in its next effect, where the parent kills it; the empty Point cancels that.
// If the input ends, the parent is gone, and the worker ends. The worker writes Events, one JSON
// line each, to its standard output. SIGTERM asks it to finish its messages, commit and leave.
package worker

import (
	"encoding/json"
	"io"
	"sync"
	"time"

	"github.com/onceward/onceward/dedup/driver"
)

// Composition says how a worker combines record and effect.
type Composition string

const (
	// Atomic commits the record in the transaction of the effect (sqladapter.MarkTx).
	Atomic Composition = "atomic"
	// Claimed claims in Redis, runs the effect, and records it in Redis.
	Claimed Composition = "claimed"
	// Naive is the usual SET NX with a time to live before the effect, and DEL if the effect fails.
	// It is here for comparison.
	Naive Composition = "naive"
)

// Point says where a worker is killed.
type Point string

const (
	// BeforeEffect is the point in the handler where the message is claimed or marked, but the
	// effect has not begun.
	BeforeEffect Point = "before effect"
	// AfterEffect is the point where the effect is committed, but the handler has not returned. In
	// the Claimed composition the record is not written yet, and only here can a crash make an
	// effect run again. In the Atomic composition the record is committed with the effect.
	AfterEffect Point = "after effect"
)

// Fault breaks a worker on purpose, to show that the demo can fail.
type Fault string

const (
	// SkipRecord runs the effect and pretends to have recorded it.
	SkipRecord Fault = "record"
	// SkipEffect sometimes records a message without its effect.
	SkipEffect Fault = "effect"
)

const (
	// Window is how long records are kept: longer than any run.
	Window = 10 * time.Minute
	// Session is the timeout of the group's sessions, after which the group notices a crash.
	Session = time.Second
)

// Config is the first line a worker reads.
type Config struct {
	Name        string // in the ledger and in events
	Composition Composition
	Kafka       []string // bootstrap addresses
	Topic       string   // also the group, and the namespace of keys and marks
	Redis       []string // one server, or nodes of a Cluster
	Ledger      string   // the file
	Lease       time.Duration
	Fault       Fault
	Observe     bool // whether to send HookCalled events
}

// EventKind says what has happened.
type EventKind string

const (
	// Delivered: a message came from the broker.
	Delivered EventKind = "delivered"
	// Skipped: the message is a duplicate; Cause says why.
	Skipped EventKind = "skipped"
	// Effected: the effect of the message is committed.
	Effected EventKind = "effect"
	// Waiting: another worker has the message in flight.
	Waiting EventKind = "waiting"
	// Assigned: the worker has a partition in this Generation of the group.
	Assigned EventKind = "assigned"
	// LeaseLost: a lease ran out while its handler was running.
	LeaseLost EventKind = "lease_lost"
	// Reached: the worker waits at Point of the message's effect.
	Reached EventKind = "reached"
	// Warning: Text says what went wrong; the worker continues.
	Warning EventKind = "warning"
	// HookCalled: a hook of the worker's dedup.Observer was called with Observed.
	HookCalled EventKind = "told"
)

// Event is a line that a worker writes.
type Event struct {
	Kind       EventKind    `json:"kind"`
	ID         string       `json:"id,omitempty"`
	Cause      driver.Cause `json:"cause,omitempty"`
	Point      Point        `json:"point,omitempty"`
	Generation int32        `json:"generation,omitempty"`
	Text       string       `json:"text,omitempty"`
	Observed   Observed     `json:"observed,omitzero"`
}

// sender writes each event in one write, so that a kill never cuts an event in two.
func sender(out io.Writer) func(Event) {
	var mu sync.Mutex
	encoder := json.NewEncoder(out)
	return func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		_ = encoder.Encode(e) // obey notices on standard input that the parent is gone
	}
}
