// Package worker is one consumer of the demo, in a process of its own so that it can be
// killed for real.
//
// Its parent writes JSON lines to its standard input: first a Config, then Commands; the
// end of the input means that the parent is gone, and ends the worker. The worker writes
// Events, one JSON line each, to its standard output. SIGTERM asks it to finish what it
// runs, commit and leave.
package worker

import (
	"encoding/json"
	"io"
	"sync"
	"time"

	"github.com/onceward/onceward/cmd/internal/demo/ledger"
	"github.com/onceward/onceward/dedup/driver"
)

// Composition is how a worker puts record and effect together.
type Composition string

const (
	// Atomic commits the record in the transaction of the effect (sqladapter.MarkTx).
	Atomic Composition = "atomic"
	// Claimed claims in Redis, has the effect, and records it in Redis.
	Claimed Composition = "claimed"
	// Naive is the usual SET NX with a time to live before the effect, and DEL when the
	// effect fails. It is here to be compared with.
	Naive Composition = "naive"
)

// Point is where a worker is killed.
type Point string

const (
	// BeforeEffect is inside the handler, when the message is claimed or marked and the
	// effect has not begun.
	BeforeEffect Point = "before effect"
	// AfterEffect is when the effect is committed and the handler has not returned. In
	// the Claimed composition the record is not written then: the one place where a
	// crash makes an effect run again. In the Atomic one it is part of the effect.
	AfterEffect Point = "after effect"
)

// Fault breaks a worker on purpose, so that one can see the demo fail.
type Fault string

const (
	// NoFault is an honest worker.
	NoFault Fault = ""
	// SkipRecord has the effect and pretends to have recorded it.
	SkipRecord Fault = "record"
	// SkipEffect records now and then what had no effect.
	SkipEffect Fault = "effect"
)

// Config is the first line a worker reads.
type Config struct {
	Name        string // in ledger and events
	Composition Composition
	Kafka       []string // bootstrap addresses
	Topic       string
	Group       string
	Session     time.Duration // timeout of the group's sessions
	Redis       []string      // one server, or nodes of a Cluster
	Namespace   string        // of keys and marks
	Ledger      ledger.Location
	Window      time.Duration
	Lease       time.Duration
	Fault       Fault
	Observe     bool // asks for HookCalled events
}

// Command is a line that a worker reads later.
type Command struct {
	// Arm asks the worker to stop at this point of its next effect, to be killed there.
	Arm Point `json:",omitempty"`
	// Disarm takes it back.
	Disarm bool `json:",omitempty"`
}

// EventKind says what has happened.
type EventKind string

const (
	// Delivered: a message came from the broker.
	Delivered EventKind = "delivered"
	// Skipped: it is a duplicate, for Cause.
	Skipped EventKind = "skipped"
	// Effected: its effect is committed.
	Effected EventKind = "effect"
	// Waiting: it is in flight in another worker.
	Waiting EventKind = "waiting"
	// Assigned: the group has a new Generation, and the worker Partitions partitions.
	Assigned EventKind = "assigned"
	// LeaseLost: a lease ran out under a running handler.
	LeaseLost EventKind = "lease_lost"
	// Reached: the worker stands still at Point of the message's effect.
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
	Partitions int          `json:"partitions,omitempty"`
	Text       string       `json:"text,omitempty"`
	Observed   *Observed    `json:"observed,omitempty"`
}

// sender writes events, each with one write, so that a kill cuts none in the middle.
type sender struct {
	mu  sync.Mutex
	out io.Writer
}

func (s *sender) send(e Event) {
	line, err := json.Marshal(e)
	if err != nil {
		return // an Event is strings and numbers
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = s.out.Write(append(line, '\n')) // a parent that is gone is noticed on stdin
}
