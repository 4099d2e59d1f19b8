package kafkaadapter

import (
	"context"
	"sync"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter/internal/flow"
)

const (
	// handover is what giving a partition up may take beyond Config.Drain: drainGrace,
	// commitTimeout, and some room.
	handover = 3 * time.Second
	// drainGrace is for handlers that return when they are cancelled.
	drainGrace = 500 * time.Millisecond
	// releaseTimeout bounds giving claims back: a lease that is not released lapses.
	releaseTimeout = 2 * time.Second
)

// giveUp ends the partition: what was not started is given back at once, what runs may
// end within the drain budget and is cancelled then, what is finished is committed. A
// handler that still runs keeps its lease, renewed, for as long as it runs: Kafka fences
// offsets, only the token can fence its effect.
func (p *partition) giveUp() {
	unstarted := append(p.lanes.Halt().Pending, p.pending.take(-1)...)
	var releasing sync.WaitGroup
	releasing.Go(func() { p.release(unstarted) })
	left := p.drain()
	releasing.Go(func() { p.release(left.Pending) })

	ctx, cancel := context.WithTimeout(p.base, commitTimeout)
	defer cancel()
	if err := p.committer.Remove(ctx, p.topic, p.number); err != nil {
		p.a.cfg.Logger.Warn("kafkaadapter: last commit of a partition is not known to be done", "topic", p.topic, "partition", p.number, "error", err)
	}
	releasing.Wait()
	p.gate.Close()
	if hook := p.a.cfg.Observer.Revoked; hook != nil {
		hook(p.topic, p.number, len(unstarted)+len(left.Pending), len(left.Running))
	}
}

// drain lets the running handlers end, cancels them when the budget is used up, and
// waits a moment for those that listen.
func (p *partition) drain() flow.Drained[*item] {
	budget, cancel := context.WithTimeout(p.base, p.a.cfg.Drain)
	defer cancel()
	left := p.lanes.Drain(budget)
	if len(left.Running) == 0 {
		return left
	}
	grace, cancel := context.WithTimeout(p.base, drainGrace)
	defer cancel()
	again := p.lanes.Drain(grace)
	return flow.Drained[*item]{Pending: append(left.Pending, again.Pending...), Running: again.Running}
}

// release gives back the claims of what does not run, in one round trip.
func (p *partition) release(items []*item) {
	var claims []*dedup.Claim
	for _, it := range items {
		if c := p.queued.take(it); c != nil {
			claims = append(claims, c)
		}
	}
	p.releaseClaims(items, claims)
}

// yield gives back the claims behind a message that waits.
func (p *partition) yield(head *item) {
	p.releaseClaims(p.queued.takeBehind(head, p.a.cfg.Order))
}

// releaseClaims is bounded in time. Claims that it does not reach lapse, for nobody
// renews them after it.
func (p *partition) releaseClaims(items []*item, claims []*dedup.Claim) {
	defer func() {
		for _, it := range items {
			it.end()
		}
	}()
	if len(claims) == 0 {
		return
	}
	done := make([]dedup.Completion, len(claims))
	for i, c := range claims {
		done[i] = dedup.Completion{Claim: c, Err: errRevoked}
	}
	ctx, cancel := context.WithTimeout(p.base, releaseTimeout)
	defer cancel()
	p.a.cfg.Deduper.CompleteBatch(ctx, done)
}
