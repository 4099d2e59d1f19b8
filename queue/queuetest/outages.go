package queuetest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/queue"
)

// slow takes 10 ms for each message, so that handlers are running when an outage begins.
func slow(ctx context.Context, _ *process, _ *queue.Delivery, effect func()) error {
	if err := pause(ctx, 10*time.Millisecond); err != nil {
		return err
	}
	effect()
	return nil
}

func checkRestart(tr *trial) {
	before, after := messages("before", tr.q.IDs*7/10), messages("after", tr.q.IDs*3/10)
	tr.send(1, before...)
	tr.start(script{workers: 8, handle: slow})
	tr.awaitTotal(tr.q.IDs / 10)
	tr.q.Restart(tr.TB)
	tr.send(1, after...)
	tr.through()
}

func checkStoreOut(tr *trial) {
	tr.send(1, messages("out", tr.q.IDs)...)
	p := tr.start(script{workers: 8, handle: slow})
	for _, when := range []int{tr.q.IDs / 10, tr.q.IDs / 2} {
		tr.awaitTotal(when)
		p.store.SetPlan(dropAll)
		_ = pause(context.Background(), tr.lease/3)
		p.store.SetPlan(nil)
	}
	tr.through()
}

func checkLeaseLost(tr *trial) {
	tr.send(1, messages("paused", tr.q.IDs)...)
	var running, lost atomic.Int32
	p := tr.start(script{workers: busy,
		handle: func(ctx context.Context, _ *process, _ *queue.Delivery, _ func()) error {
			running.Add(1)
			<-ctx.Done()
			if errors.Is(context.Cause(ctx), dedup.ErrLeaseLost) {
				lost.Add(1)
			}
			return nil // which proves nothing
		}})
	tr.await("messages are at work", func() bool { return running.Load() == busy })
	p.store.SetPlan(dropAll)
	tr.await("every claim is lost", func() bool { return lost.Load() == busy })
	p.kill()
	tr.start(script{workers: 8})
	tr.through()
}

// onServer puts the records of the row on a server.
func (tr *trial) onServer() Records {
	r := tr.q.Records(tr.TB)
	tr.connect, tr.store = r.Open, r.Open(tr.TB)
	return r
}

func checkRecordsKilled(tr *trial) {
	r := tr.onServer()
	tr.send(1, messages("killed", tr.q.IDs)...)
	tr.start(script{workers: 8, handle: slow})
	tr.start(script{workers: 8, handle: slow})
	for _, when := range []int{tr.q.IDs / 10, tr.q.IDs / 2} {
		tr.awaitTotal(when)
		r.Restart()
	}
	tr.through()
}

// checkRecordsFrozen freezes the server for less than a lease, and then for more, so that claims
// are lost.
func checkRecordsFrozen(tr *trial) {
	r := tr.onServer()
	tr.send(1, messages("frozen", tr.q.IDs)...)
	tr.start(script{workers: 8, handle: slow})
	tr.start(script{workers: 8, handle: slow})
	for i, freeze := range []time.Duration{tr.lease / 3, tr.lease * 3 / 2} {
		tr.awaitTotal((i + 1) * tr.q.IDs / 4)
		thaw := r.Freeze()
		_ = pause(context.Background(), freeze)
		thaw()
	}
	tr.through()
}
