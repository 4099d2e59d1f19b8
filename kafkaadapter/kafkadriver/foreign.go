package kafkadriver

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/kafkaadapter/internal/pipeline"
)

// unownedPause is about how long a message waits while its partition is not owned.
const unownedPause = 500 * time.Millisecond

// foreign reports whether a message lies in another partition than its key says, where nobody would
// look for its record. A message without a key may lie anywhere.
func (p *Partition) foreign(it *item, count int32) bool {
	switch {
	case count == 1 || it.bad != nil:
		return false
	case it.msg.Key == nil:
		return true
	}
	return p.cfg.Own.Partitioner(it.msg.Key, count) != p.at.Partition
}

// place waits until the partition is owned. If messages are misplaced, it also waits until
// Misplaced has succeeded: from then on, nobody takes a message for new only because its record is
// not in the partition of its key. Only then may the store be asked about the messages.
func (p *Partition) place(ctx context.Context, items []*item) error {
	if p.cfg.Own == nil {
		return nil
	}
	for n := 0; ; n++ {
		h, err := p.owner.wait(ctx)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(items, func(it *item) bool { return p.foreign(it, h.count) }) {
			return nil
		}
		if err = h.Misplaced(ctx); err == nil {
			return nil
		}
		if err = p.outage(ctx, n, err); err != nil {
			return err
		}
	}
}

// placed is like place, for messages whose turn it is. It does not wait: it puts off the messages
// that the store must not be asked about now, and returns the others.
func (p *Partition) placed(batch []task) []task {
	if p.cfg.Own == nil {
		return batch
	}
	h := p.owner.now()
	ready, foreign := make([]task, 0, len(batch)), []task(nil)
	for _, t := range batch {
		switch {
		case h == nil:
			p.putOffUnowned(t)
		case p.foreign(t.Item, h.count):
			foreign = append(foreign, t)
		default:
			ready = append(ready, t)
		}
	}
	if len(foreign) == 0 {
		return ready
	}
	if err := p.misplaced(h); err != nil {
		p.warn("messages of another partition wait", foreign[0].Item, err)
		for _, t := range foreign {
			p.putOffUnowned(t)
		}
		return ready
	}
	return append(ready, foreign...)
}

func (p *Partition) misplaced(h *holding) error {
	ctx, cancel := context.WithTimeout(p.base, endPatience)
	defer cancel()
	return h.Misplaced(ctx)
}

// putOffUnowned makes a message that holds no claim wait. The wait has no backoff, because
// acquiring the partition has one.
func (p *Partition) putOffUnowned(t task) {
	t.Item.notBusy()
	p.cfg.suspects.end(t.Item)
	t.Settle(pipeline.RetryAfter(unownedPause/2 + rand.N(unownedPause)))
}

// mayEnd reports whether a record that is about to be written will be found. Members look for a
// record outside the partition of its key only for a time after a misplaced message was reported.
// Since the message was reported first, its handler may have taken long, so mayEnd reports it
// again.
func (p *Partition) mayEnd(e completion) bool {
	h := p.owner.now()
	if h == nil || e.err != nil && !e.parked || !p.foreign(e.task.Item, h.count) {
		return true // not owned any more, or nothing to record, or not misplaced
	}
	if err := p.misplaced(h); err != nil {
		p.warn("effect of a message of another partition is not recorded yet", e.task.Item, err)
		return false
	}
	return true
}

// awaitEnd waits until mayEnd is true.
func (p *Partition) awaitEnd(e completion) {
	if p.cfg.Own == nil {
		return
	}
	for n := 0; !p.mayEnd(e); n++ {
		_ = backoff.Sleep(p.base, p.cfg.retry.Delay(n, 0, nil))
	}
}
