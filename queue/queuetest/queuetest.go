// Package queuetest is the conformance suite for adapters of package queue: [Run] has an adapter
// handle messages while processes die, acknowledgements are lost, brokers restart and stores are
// away. Then it judges what happened: a message must have its effect, and may have it twice only
// where a kill or an outage explains it.
//
// Each row has 1,000 ids, unless Queue.IDs says otherwise. The test's log, which go test -v prints,
// ends with the table of what the rows have counted. It runs in real time: about half a minute with
// a Queue.AckWait of one second.
package queuetest

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/queue"
)

// Queue is a queue of a broker, for one row of the suite. It must be empty at first, and no other
// row may use it. The suite calls the functions of one Queue from one goroutine, and those of
// different Queues at the same time.
type Queue struct {
	// Send sends messages in their order, each with the payload [PayloadOf] its id. Two messages
	// with the same id must both be sent: a broker that drops copies by itself must be told not to.
	// Required.
	Send func(t testing.TB, messages ...Message)
	// Connect returns the source of one more process, and a function that cuts its connection as
	// kill -9 does, without sending anything more. That function is called at most once. Required.
	Connect func(t testing.TB) (src queue.Source, kill func())
	// Left is how many messages the broker still has: waiting, or delivered and not acknowledged.
	// Messages that were parked do not count. Required.
	Left func(t testing.TB) int
	// Parked returns the ids of the messages that Delivery.Park has kept. nil: the adapter has no
	// Park, and the suite sets [queue.Config].Park.
	Parked func(t testing.TB) []string
	// Restart stops the broker and starts it with its data. nil: the row is left out.
	Restart func(t testing.TB)
	// Records starts a server of records for one row, which kills or freezes it. nil: those rows
	// are left out.
	Records func(t testing.TB) Records
	// AckWait is the time after which this queue redelivers a message that was not acknowledged. 0:
	// it redelivers the message when its connection ends. Required for a broker with such a time;
	// make it as short as the broker allows, such as a second.
	AckWait time.Duration
	// IDs is how many ids the row has. Set it for a slow broker, to at least 100. Default 1,000.
	IDs int
	// Ordered says that the broker and the adapter keep the order of each Message.Key.
	Ordered bool
}

// Records is a server of records, which must lose nothing that it has acknowledged.
type Records struct {
	// Open returns a store on the server with connections of its own, as each process has.
	Open func(t testing.TB) dedup.Store
	// Restart kills the server and starts it again.
	Restart func()
	// Freeze stops the server, with its connections open, and returns a function that lets it
	// continue.
	Freeze func() (thaw func())
}

// Message is what Queue.Send sends.
type Message struct {
	// ID must arrive as Delivery.ID.
	ID string
	// Key must arrive as Delivery.Key if the Queue is Ordered. Empty: any key will do.
	Key string
}

// PayloadOf returns the payload of the message with an id.
func PayloadOf(id string) []byte { return []byte("payload of " + id) }

// row is one row of the fault table.
type row struct {
	name string
	// prevents says what happens to a user of an adapter that fails it.
	prevents string
	check    func(*trial)
	// needs reports whether the row can run on a queue. nil: on every queue.
	needs func(*Queue) bool
}

// alone are the rows that run while no other row runs: they restart the broker, or need all of it.
var alone = []row{
	{"broker_restarted", "a consumer that does not come back with its broker", checkRestart,
		func(q *Queue) bool { return q.Restart != nil }},
	{"storm", "what only many messages and many faults at once show", checkStorm, nil},
	// If other rows ran at the same time, calls of Extend would be late on a slow broker.
	{"long_work", "a message that is delivered again while its handler works", checkLongWork, nil},
}

// together are the other rows.
var together = []row{
	{"plain", "a message that is lost, is redelivered forever, or has another id", checkPlain, nil},
	{"unacknowledged_while_at_work", "a message that a crash loses, because it was acknowledged when it came",
		checkUnacknowledged, nil},
	{"duplicates_at_once", "an effect that happens twice because a message was sent twice",
		checkDuplicates, nil},
	{"handler_fails", "a message that is dropped when its handler fails", checkFails, nil},
	{"killed_before_the_effect", "a message that is lost with its process", checkKilledBefore, nil},
	{"killed_in_the_effect", "a message that is lost with its process", checkKilledIn, nil},
	{"killed_after_the_record", "an effect that happens again because its acknowledgement was not sent",
		checkKilledAfter, nil},
	{"ack_lost", "an effect that happens again because its acknowledgement was lost", checkAckLost, nil},
	{"nack_lost", "a message that is never redelivered", checkNackLost, nil},
	{"records_killed", "a message that runs unclaimed, or is dropped, while the records' server restarts",
		checkRecordsKilled, func(q *Queue) bool { return q.Records != nil }},
	{"records_frozen", "a message that runs unclaimed, or is dropped, while the records' server hangs",
		checkRecordsFrozen, func(q *Queue) bool { return q.Records != nil }},
	{"store_out", "a message that runs unclaimed, or is dropped, while the store is away", checkStoreOut, nil},
	{"lease_lost", "a message that is acknowledged by an owner who has lost it", checkLeaseLost, nil},
	{"poison_for_good", "a message that cannot be processed and is dropped, or tried forever",
		checkPoison, nil},
	{"poison_attempts", "a failing message that is tried forever", checkAttempts, nil},
	{"shutdown_at_work", "an effect that is cut short, or a message that is kept, by a deployment",
		checkShutdown, nil},
	{"order", "messages of a key whose effects come in another order", checkOrder,
		func(q *Queue) bool { return q.Ordered }},
	{"fetch", "a consumer that holds more than it asked for, or that does not stop", checkFetch, nil},
}

// Run runs the suite. open makes a new queue for each row, and is called from one goroutine. The
// rows that need the broker for themselves come first. The others run in parallel, as many as go
// test's -parallel says.
func Run(t *testing.T, open func(t testing.TB) Queue) {
	results := &table{rows: map[string]result{}}
	t.Cleanup(func() { results.log(t, slices.Concat(alone, together)) })
	for _, r := range alone {
		t.Run(r.name, func(t *testing.T) { r.prove(t, open(t), results) })
	}
	for _, r := range together {
		t.Run(r.name, func(t *testing.T) {
			q := open(t)
			t.Parallel()
			r.prove(t, q, results)
		})
	}
}

// prove runs a row on a queue of its own.
func (r *row) prove(t testing.TB, q Queue, results *table) {
	t.Helper()
	if q.Send == nil || q.Connect == nil || q.Left == nil {
		t.Fatal("queuetest: Queue.Send, Connect or Left is nil")
	}
	q.IDs = cmp.Or(q.IDs, many)
	if r.needs != nil && !r.needs(&q) {
		t.Logf("queuetest: left out, the queue cannot have it")
		return
	}
	defer func() {
		if t.Failed() {
			t.Logf("queuetest: prevents: %s", r.prevents)
		}
	}()
	tr := newTrial(t, q)
	defer tr.end()
	r.check(tr)
	results.keep(r.name, tr)
}
