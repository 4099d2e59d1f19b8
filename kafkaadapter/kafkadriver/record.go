package kafkadriver

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter/internal/pipeline"
)

const (
	// endSenders is how many batches of completions, and of questions, are under way at once.
	endSenders = 2
	// endPatience bounds how long a batch of completions holds up the next one.
	endPatience = time.Second
	// doubtPause is how long messages wait while too many effects are not on record.
	doubtPause = 100 * time.Millisecond
)

var errCancelled = errors.New("kafkaadapter: handler was canceled")

// completion is a claim on its way to its end; there is one for every message.
type completion struct {
	task         task
	claim        *dedup.Claim
	err          error // of the handler
	inTime       bool
	notAttempted bool
	// parked: the message has been put aside, and needs no record to be done.
	parked bool
}

// how returns the request to the Deduper.
func (e *completion) how() dedup.Completion {
	return dedup.Completion{Claim: e.claim, Err: e.err, InTime: e.inTime,
		NotAttempted: e.notAttempted}
}

// endBatch ends claims in one round trip. It continues after the end of the session, because an
// effect that has happened must be recorded, until the lease ends. A completion whose result is not
// known within endPatience continues by itself, so that it holds up nobody else.
func (p *Partition) endBatch(batch []completion) {
	if p.cfg.Own != nil {
		batch = p.endable(batch)
	}
	s := newScratch()
	defer s.free()
	for i := range batch {
		s.ends = append(s.ends, batch[i].how())
	}
	ctx, cancel := context.WithTimeout(p.base, endPatience)
	errs := p.cfg.Deduper.CompleteBatch(ctx, s.ends)
	cancel()
	for i := range batch {
		e := &batch[i]
		var err error
		if errs != nil {
			err = errs[i]
		}
		if dedup.OutcomeUnknown(err) && e.err == nil {
			p.doubts.Add(1)
			go p.endAlone(*e)
			continue
		}
		decision, done := p.ended(e, err)
		s.tasks, s.decisions = append(s.tasks, e.task), append(s.decisions, decision)
		if done {
			s.done = append(s.done, e.task.Item)
		}
	}
	p.done(s.done...)
	pipeline.SettleAll(s.tasks, s.decisions)
}

// endable returns the completions that may be recorded now. The others wait by themselves, as
// effects in doubt.
func (p *Partition) endable(batch []completion) []completion {
	now := make([]completion, 0, len(batch))
	for _, e := range batch {
		if p.mayEnd(e) {
			now = append(now, e)
			continue
		}
		p.doubts.Add(1)
		go p.endAlone(e)
	}
	return now
}

// endAlone records an effect that is in doubt, until the lease ends.
func (p *Partition) endAlone(e completion) {
	p.awaitEnd(e)
	errs := p.cfg.Deduper.CompleteBatch(p.base, []dedup.Completion{e.how()})
	p.doubts.Add(-1)
	if errs == nil {
		errs = []error{nil}
	}
	decision, done := p.ended(&e, errs[0])
	if done {
		p.done(e.task.Item)
	}
	e.task.Settle(decision)
}

// ended decides what the end of a claim means for its message, and whether the message is done.
func (p *Partition) ended(e *completion, err error) (decision pipeline.Decision, done bool) {
	it := e.task.Item
	if e.notAttempted && errors.As(err, new(*dedup.InputError)) {
		p.letGo(it) // its irreversible part may have begun: that counts
	}
	if hook := p.cfg.Observer.Recorded; hook != nil && !e.parked && e.err == nil && err == nil {
		hook(it.msg, time.Since(it.landedAt))
	}
	switch {
	case e.parked, e.err == nil && err == nil:
		return pipeline.Done(), true
	case e.err != nil: // released, or it lapses
		p.drop(it)
		return p.retryAfter(it, e.err), false
	}
	// Another owner has taken the claim, or the store cannot be asked: only the store can say
	// whether the message is on record. Without its answer the offset must not move.
	p.warn("effect is not known to be recorded", it, err)
	if hook := p.cfg.Observer.Unrecorded; hook != nil {
		hook(it.msg, err)
	}
	p.drop(it)
	return p.retry(it), false
}

// scratch has the arrays of one exchange with the store. Nobody keeps them: the Deduper copies what
// it may have to send again after it has answered.
type scratch struct {
	requests  []dedup.Request
	ends      []dedup.Completion
	tasks     []task
	decisions []pipeline.Decision
	done      []*item
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func newScratch() *scratch {
	return scratches.Get().(*scratch) //nolint:errcheck,forcetypeassert // the pool has nothing else
}

func (s *scratch) free() {
	clear(s.requests)
	clear(s.ends)
	clear(s.tasks)
	clear(s.decisions)
	clear(s.done)
	s.requests, s.ends = s.requests[:0], s.ends[:0]
	s.tasks, s.decisions, s.done = s.tasks[:0], s.decisions[:0], s.done[:0]
	scratches.Put(s)
}
