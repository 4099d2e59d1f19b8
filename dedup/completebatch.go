package dedup

import (
	"context"
	"slices"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/internal/idtable"
	"github.com/onceward/onceward/dedup/internal/pause"
	"github.com/onceward/onceward/dedup/internal/slab"
)

// CompleteBatch ends many claims, in as many round trips as ClaimBatch, and returns nil when
// everything was written as asked. Otherwise it returns one error per item, in order: the one
// that Complete, Fail or Release would have returned, and nil for an item that was written.
func (d *Deduper) CompleteBatch(ctx context.Context, done []Completion) []error {
	if err := d.check(ctx); err != nil {
		return slices.Repeat([]error{err}, len(done))
	}
	d.life.Hold()
	defer d.life.Leave()
	errs := errorSlabs.Get(len(done))
	d.finish(ctx, done, errs, d.sendChanges)
	return unlessNil(errs)
}

// unlessNil returns errs, the errors of a batch, or nil when all of them are nil. They are from
// errorSlabs.
func unlessNil(errs []error) []error {
	for _, err := range errs {
		if err != nil {
			return errs
		}
	}
	errorSlabs.Put(errs)
	return nil
}

// Arrays of past batches, for reuse.
var (
	errorSlabs      slab.Pool[error]
	completionSlabs slab.Pool[completion]
	changeSlabs     slab.Pool[driver.Finish]
)

// finish writes the ends and fills errs. Items without an answer are sent again with the
// same token as long as they are worthTrying; after that their outcome stays unknown.
func (d *Deduper) finish(ctx context.Context, done []Completion, errs []error,
	send func(context.Context, []driver.Finish) []driver.Answer) {
	todo, changes := d.beginEnds(done, errs)
	begun, learnt := todo, len(todo) == 0
	defer func() {
		for i := range begun {
			begun[i].claim.finishing.Add(-1)
		}
		if learnt {
			changeSlabs.Put(changes)
		}
		completionSlabs.Put(begun)
	}()
	batch := changes
	for try := 0; len(todo) > 0; try++ {
		var all bool
		todo, all = d.finishOnce(ctx, todo, batch, errs, send)
		learnt = all && try == 0 // else the store may still be working on the changes
		if len(todo) == 0 || pause.Sleep(ctx, pause.Jitter(askBase, askAtMost, try)) != nil {
			break
		}
		todo = slices.DeleteFunc(todo, func(e completion) bool { return !d.worthTrying(&e, try+1) })
		batch = make([]driver.Finish, len(todo))
		for n, e := range todo {
			batch[n] = *e.change
			batch[n].MayOverwrite = false
		}
	}
	if d.cfg.Mode == Observe {
		for i, err := range errs {
			errs[i] = forgiven(err)
		}
	}
}

// beginEnds makes the ends that are to be sent, with their changes, and answers the
// others.
func (d *Deduper) beginEnds(done []Completion, errs []error) (todo []completion,
	changes []driver.Finish) {
	todo, changes = completionSlabs.Get(len(done)), changeSlabs.Get(len(done))
	n := 0
	seen := idtable.New(len(done))
	defer seen.Free()
	for i := range done {
		e := &todo[n]
		e.index, e.change = i, &changes[n]
		if send, err := d.beginEnd(&done[i], e); !send {
			errs[i], changes[n] = err, driver.Finish{}
			continue
		}
		if _, twice := seen.Add((*[16]byte)(&e.change.ID), i); twice {
			errs[i] = &InputError{Field: "Completion",
				Reason: "has the key of an earlier item of its batch"}
			*e, changes[n] = completion{}, driver.Finish{}
			continue
		}
		e.claim.finishing.Add(1)
		n++
	}
	return todo[:n], changes[:n]
}

// finishOnce sends the changes of todo. It returns what has to be sent again, and whether
// every item was answered.
func (d *Deduper) finishOnce(ctx context.Context, todo []completion, changes []driver.Finish,
	errs []error,
	send func(context.Context, []driver.Finish) []driver.Answer) (again []completion, all bool) {
	sent := d.cache.now()
	answers := send(ctx, changes)
	all = true
	for n := range todo {
		e, ans := &todo[n], &answers[n]
		if ans.Err == nil {
			errs[e.index] = d.settle(e, ans, sent)
			continue
		}
		all = false
		d.storeError(e.change.ID, ans.Err)
		errs[e.index] = unknown(ans.Err)
		if passesSoon(ans.Err) {
			again = append(again, *e)
		}
	}
	d.renewals.dropAll(todo)
	d.recycle(answers)
	return again, all
}
