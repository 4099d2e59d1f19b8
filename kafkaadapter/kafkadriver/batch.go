package kafkadriver

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/internal/pipeline"
)

// alone reports whether the batch handler gets a message in a call of its own: its batch has failed
// before, or it was claimed before. So a poison message does not keep its neighbors from their
// effects forever.
func alone(it *item) bool { return it.tries > 0 || it.msg.Attempt > 1 || it.before > 0 }

// runBatch runs the batch handler. Its context ends when one of the claims ends: a transaction that
// is open for all of them must not be committed then.
func (p *Partition) runBatch(ctx context.Context, tasks []task) {
	run, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for _, t := range tasks {
		t.Item.begun = true
		if claimed := t.Item.run; claimed != nil {
			defer context.AfterFunc(claimed, func() { cancel(context.Cause(claimed)) })()
		}
	}
	returned := false
	defer func() {
		if !returned {
			for _, t := range tasks {
				p.letGo(t.Item)
			}
		}
	}()
	errs := p.handleBatch(run, tasks)
	returned = true
	inTime := run.Err() == nil
	for i, t := range tasks {
		p.handledInBatch(ctx, t, inTime, errs[i], len(errs))
		tasks[i] = task{} // handed over
	}
}

// handledInBatch does what handled does, for one message of a batch. A failure of several messages
// is not counted: which message caused it is not known until it has run alone.
func (p *Partition) handledInBatch(ctx context.Context, t task, inTime bool, err error, size int) {
	if err == nil || size == 1 || dedup.IsPermanent(err) && inTime {
		p.handled(ctx, t, inTime, err)
		return
	}
	if t.Item.claim == nil {
		t.Item.msg.Attempt--
		t.Settle(p.retryAfter(t.Item, err))
		return
	}
	p.ends.Add(completion{task: t, claim: t.Item.claim, err: retryable(err), notAttempted: true})
}

// handleBatch calls the batch handler with Attempts.Timeout, and returns an error for each message.
func (p *Partition) handleBatch(ctx context.Context, tasks []task) (errs []error) {
	ctx, cancel := p.limit(ctx)
	defer cancel()
	messages := make([]*kafkaadapter.Message, len(tasks))
	for i, t := range tasks {
		messages[i] = t.Item.msg
		defer p.cfg.suspects.end(t.Item)
	}
	began, returned := time.Now(), false
	each := func(err error) []error { return slices.Repeat([]error{err}, len(tasks)) }
	defer func() {
		if v := recover(); v != nil {
			errs = each(p.panicked("batch handler", tasks[0].Item, v))
		} else if !returned {
			errs = each(pipeline.ErrNoDecision) // it ended the goroutine
		}
		if hook := p.cfg.Observer.Handled; hook != nil {
			for i, m := range messages {
				hook(m, time.Since(began), errs[i])
			}
		}
	}()
	errs = p.cfg.BatchHandler(ctx, messages)
	returned = true
	switch {
	case errs == nil:
		return make([]error, len(tasks))
	case len(errs) != len(tasks):
		return each(fmt.Errorf("kafkaadapter: batch handler returned %d errors for %d messages",
			len(errs), len(tasks)))
	}
	if ctx.Err() != nil {
		errs = slices.Clone(errs) // they are the handler's
		for i, err := range errs {
			errs[i] = retryable(err)
		}
	}
	return errs
}
