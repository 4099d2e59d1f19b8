package kafkadriver

import (
	"context"
	"sync"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/internal/pipeline"
)

const (
	// handover is how long giving a partition up may take beyond Tuning.Drain: drainGrace,
	// CommitTimeout, and some room. With Config.Own see [Engine.Handover].
	handover = 3 * time.Second
	// CommitTimeout bounds each last commit. A commit that is given up costs redeliveries.
	CommitTimeout = 2 * time.Second
	// drainGrace is the time that canceled handlers have to return.
	drainGrace = 500 * time.Millisecond
	// releaseTimeout bounds the release of claims. A claim that is not released lapses.
	releaseTimeout = 2 * time.Second
)

// giveUp ends the partition. Claims of messages that were not started are released at once. Running
// handlers may end within the drain budget and are canceled then. Finished messages are committed.
// A handler that still runs keeps its lease, renewed, for as long as it runs: Kafka fences only
// offsets, and the token of the claim fences the effect.
func (p *Partition) giveUp() {
	p.leaving.Store(true)
	p.parking.drop(p)
	unstarted := p.pending.take(-1, p.queues.Halt().Pending)
	var releasing sync.WaitGroup
	releasing.Go(func() { p.release(unstarted) })
	left := p.drain()
	releasing.Go(func() { p.release(left.Pending) })
	for _, it := range left.Running {
		p.cfg.suspects.end(it) // nobody waits for these any more
	}
	if p.cfg.Allow.TakeOver {
		for _, it := range left.Running {
			p.cfg.abandoned.add(it)
		}
	}

	ctx, cancel := context.WithTimeout(p.base, CommitTimeout)
	defer cancel()
	if err := p.at.Committer.Remove(ctx, p.at.Topic, p.at.Partition); err != nil {
		p.cfg.Logger.Warn("kafkaadapter: last commit of a partition is not known to be done",
			"topic", p.at.Topic, "partition", p.at.Partition, "error", err)
	}
	releasing.Wait()
	p.disown() // not earlier: the store refuses records of a former owner
	p.backpressure.Close()
	if hook := p.cfg.Observer.Revoked; hook != nil {
		hook(p.at.Topic, p.at.Partition, len(unstarted)+len(left.Pending), len(left.Running))
	}
}

// drain lets the running handlers end, cancels them when the budget is used up, and waits a moment
// for those that listen to their context.
func (p *Partition) drain() pipeline.Drained[*item] {
	budget, cancel := context.WithTimeout(p.base, p.cfg.Tuning.Drain)
	defer cancel()
	if p.at.Fenced != nil { // somebody else has the partition, or will before the drain is over
		var fence context.CancelCauseFunc
		budget, fence = context.WithCancelCause(budget)
		defer context.AfterFunc(p.at.Fenced, func() { fence(context.Cause(p.at.Fenced)) })()
	}
	if h := p.owner.last.Load(); h != nil { // the same for the owner
		var lose context.CancelCauseFunc
		budget, lose = context.WithCancelCause(budget)
		defer context.AfterFunc(h.Context(), func() { lose(context.Cause(h.Context())) })()
	}
	left := p.queues.Drain(budget)
	if len(left.Running) == 0 {
		return left
	}
	grace, cancel := context.WithTimeout(p.base, drainGrace)
	defer cancel()
	p.parking.drop(p)
	again := p.queues.Drain(grace)
	return pipeline.Drained[*item]{Pending: append(left.Pending, again.Pending...),
		Running: again.Running}
}

// release gives back the claims of messages that do not run, in one round trip.
func (p *Partition) release(items []*item) {
	held := make([]*item, 0, len(items))
	var claims []*dedup.Claim
	for _, it := range items {
		p.cfg.suspects.end(it)
		if c := p.queued.take(it); c != nil {
			held, claims = append(held, it), append(claims, c)
		}
	}
	p.releaseClaims(held, claims)
}

// yield gives back the claims of the messages behind one that waits.
func (p *Partition) yield(head *item) {
	p.releaseClaims(p.queued.takeBehind(head, p.cfg.order))
}

// releaseClaims is bounded in time. Claims that are not released by then lapse, because nobody
// renews them any more.
func (p *Partition) releaseClaims(items []*item, claims []*dedup.Claim) {
	defer func() {
		for _, it := range items {
			it.end()
			it.over.Store(true)
			if p.cfg.Allow.TakeOver {
				p.cfg.abandoned.remove(it)
			}
		}
	}()
	if len(claims) == 0 {
		return
	}
	done := make([]dedup.Completion, len(claims))
	for i, c := range claims {
		if items[i].landed { // under an earlier claim: nobody else is to run it
			done[i] = dedup.Completion{Claim: c, InTime: true}
			continue
		}
		done[i] = dedup.Completion{Claim: c, Err: ErrRevoked, NotAttempted: !items[i].begun}
	}
	ctx, cancel := context.WithTimeout(p.base, releaseTimeout)
	defer cancel()
	p.cfg.Deduper.CompleteBatch(ctx, done)
}

// abandoned are the messages whose handlers still run in this process although their partition was
// given up. When the partition comes back to this member, in a newer generation, their claims are
// not taken over. Otherwise each rebalance would start one more handler of a message that is merely
// slow.
type abandoned struct {
	mu    sync.Mutex
	items map[*item]struct{}
	ids   map[messageKey]int
}

// messageKey is the key of a message: two topics may have the same ids.
type messageKey struct{ scope, id string }

func keyOf(m *kafkaadapter.Message) messageKey { return messageKey{m.Scope, m.ID} }

// add notes a message that may still be at work.
func (a *abandoned) add(it *item) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if it.over.Load() { // it has ended meanwhile
		return
	}
	if a.items == nil {
		a.items, a.ids = make(map[*item]struct{}), make(map[messageKey]int)
	}
	a.items[it] = struct{}{}
	a.ids[keyOf(it.msg)]++
}

// remove forgets a message whose claim has ended; it.over is set.
func (a *abandoned) remove(it *item) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.items[it]; !ok {
		return
	}
	delete(a.items, it)
	if a.ids[keyOf(it.msg)]--; a.ids[keyOf(it.msg)] == 0 {
		delete(a.ids, keyOf(it.msg))
	}
}

func (a *abandoned) has(key messageKey) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ids[key] > 0
}

// takesOver reports whether the message may be taken over from an older generation.
func (p *Partition) takesOver(it *item) bool {
	return p.cfg.Allow.TakeOver && !p.cfg.abandoned.has(keyOf(it.msg))
}
