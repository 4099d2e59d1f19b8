package kafkadriver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/internal/pipeline"
)

const (
	// ownTimeout bounds the release of an ownership. An ownership that is not released lapses.
	ownTimeout = time.Second
	// ownPauseMax is the longest wait before the partition is asked for again. Its owner may
	// release it at any moment, and none of its messages is handled here before.
	ownPauseMax = time.Second
)

// errRefused: the store says that its caller is wrong. Waiting does not help.
var errRefused = errors.New(
	"kafkaadapter: owned partitions are not configured as their store wants it")

// owner has the ownership of a partition, if there is one at the moment.
type owner struct {
	last atomic.Pointer[holding] // the one acquired last, lost or not

	mu       sync.Mutex
	acquired chan struct{} // closed by the next one
	failed   error         // why the partition is not asked for any more
}

// holding is an ownership, from its acquisition to its release.
type holding struct {
	kafkaadapter.Ownership
	count   int32           // of the topic's partitions when it was acquired
	run     context.Context // of handlers: ends when it is lost, and when the queues are drained
	end     func()          // frees run
	release sync.Once
}

func (h *holding) lost() bool { return h.Context().Err() != nil }

// now returns the current ownership, or nil.
func (o *owner) now() *holding {
	if h := o.last.Load(); h != nil && !h.lost() {
		return h
	}
	return nil
}

func (o *owner) set(h *holding) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last.Store(h)
	if o.acquired != nil {
		close(o.acquired)
		o.acquired = nil
	}
}

// wait waits for an ownership and returns it.
func (o *owner) wait(ctx context.Context) (*holding, error) {
	for {
		o.mu.Lock()
		if o.acquired == nil {
			o.acquired = make(chan struct{})
		}
		acquired := o.acquired
		o.mu.Unlock()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if h := o.now(); h != nil {
			return h, nil
		}
		select {
		case <-acquired:
		case <-ctx.Done():
		}
	}
}

// own keeps the partition owned until ctx ends. It returns an error that must stop the consumer.
//
// A partition that is lost is not ended: its handlers are canceled, nothing begins, and it is asked
// for again. Ending it would be worse. sarama ends the session with the first ConsumeClaim that
// returns, which takes all partitions from this member and makes the group rebalance. If the store
// was away for longer than the lease, all members would do so at once. If the group has given the
// partition away, it will say so.
func (p *Partition) own(ctx context.Context) error {
	since := time.Now()
	for n := 0; ctx.Err() == nil; n++ {
		h, err := p.acquire(ctx, since)
		switch {
		case err == nil:
			p.owner.set(h)
			began := time.Now()
			p.owned(n)
			select {
			case <-ctx.Done():
				return nil // it is released when everything has ended
			case <-h.Context().Done():
			}
			p.lost(ctx, h)
			if time.Since(began) > ownPauseMax {
				n = 0
			}
		case isRefusal(err):
			return p.errorf(fmt.Errorf("%w: %w", errRefused, err))
		case ctx.Err() == nil:
			p.notOwned(n, err)
		}
		if backoff.Sleep(ctx, p.cfg.Pause(n, ownPauseMax)) != nil {
			return nil
		}
		since = time.Now().Add(-ownPauseMax)
	}
	return nil
}

// acquire asks for the partition once. It passes a partition count that was asked for at the time
// since or later.
func (p *Partition) acquire(ctx context.Context, since time.Time) (*holding, error) {
	count, err := p.at.Counts.Of(ctx, p.at.Topic, since)
	if err != nil {
		return nil, fmt.Errorf("kafkaadapter: the number of partitions is not known: %w", err)
	}
	if count <= p.at.Partition {
		return nil, fmt.Errorf(
			"kafkaadapter: the broker that was asked knows of %d partitions, and has not heard of this one", count)
	}
	at := kafkaadapter.Assigned{Group: p.cfg.group, Topic: p.at.Topic, Partition: p.at.Partition,
		Count: count, Generation: p.at.Generation}
	o, err := p.cfg.Own.Acquire(ctx, at)
	switch {
	case err != nil:
		return nil, err
	case o == nil:
		return nil, &dedup.InputError{Field: "Own.Acquire",
			Reason: "returned neither an Ownership nor an error"}
	}
	return p.hold(o, count), nil
}

func (p *Partition) hold(o kafkaadapter.Ownership, count int32) *holding {
	h := &holding{Ownership: o, count: count}
	run, cancel := context.WithCancelCause(p.queues.Context())
	lost := func() {
		cancel(fmt.Errorf("%w: %w", dedup.ErrLeaseLost,
			cmp.Or(context.Cause(o.Context()), ErrRevoked)))
	}
	detach := context.AfterFunc(o.Context(), lost)
	h.run, h.end = run, func() {
		detach()
		lost() // the first cause counts: that of a drain, if there was one
	}
	return h
}

func (p *Partition) owned(n int) {
	if n > 0 {
		p.cfg.Logger.Info("kafkaadapter: the partition is owned", "topic", p.at.Topic, "partition",
			p.at.Partition)
	}
	p.backpressure.Release(pipeline.NotOwned)
}

func (p *Partition) notOwned(n int, err error) {
	p.backpressure.Hold(pipeline.NotOwned)
	if n == 0 {
		p.cfg.Logger.Warn("kafkaadapter: paused, the partition is not owned", "topic", p.at.Topic,
			"partition", p.at.Partition, "error", err)
	}
}

// lost releases an ownership that was lost, before another one is acquired.
func (p *Partition) lost(ctx context.Context, h *holding) {
	p.notOwned(0, context.Cause(h.Context()))
	p.releaseOwnership(context.WithoutCancel(ctx), h)
}

// disown releases the partition. Its messages have ended by then, or continue by themselves.
func (p *Partition) disown() {
	if h := p.owner.last.Load(); h != nil {
		p.releaseOwnership(p.base, h)
	}
}

func (p *Partition) releaseOwnership(ctx context.Context, h *holding) {
	h.release.Do(func() {
		ctx, cancel := context.WithTimeout(ctx, ownTimeout)
		defer cancel()
		lost := h.lost()
		if err := h.Release(ctx); err != nil && !lost {
			p.cfg.Logger.Warn("kafkaadapter: the partition was not released, and lapses",
				"topic", p.at.Topic, "partition", p.at.Partition, "error", err)
		}
		h.end()
	})
}

// isRefusal reports whether an error says that the caller, and not just one message, is wrong. The
// key is the only part of a question that comes from the message.
func isRefusal(err error) bool {
	var input *dedup.InputError
	return errors.As(err, &input) && input.Field != "Key"
}

// refused returns the reason for which the consumer cannot go on after an answer of the store, or
// nil. Answers about a partition that is not owned do not count.
func (p *Partition) refused(err error) error {
	if p.cfg.Own == nil || !isRefusal(err) || p.owner.now() == nil || p.ctx.Err() != nil {
		return nil
	}
	return p.errorf(fmt.Errorf("%w: %w", errRefused, err))
}

// handlers is the context for handlers that begin from now on.
func (p *Partition) handlers() context.Context {
	if h := p.owner.last.Load(); h != nil {
		return h.run
	}
	return p.queues.Context()
}

// Counts asks the brokers how many partitions topics have. Callers that ask at the same time share
// an answer. All methods are safe for concurrent use.
type Counts struct {
	ask    func(ctx context.Context, topic string) (int32, error)
	asking chan struct{} // holds one while somebody asks
	known  map[string]counted
}

// counted is an answer, with the time of its question.
type counted struct {
	n     int32
	asked time.Time
}

// NewCounts returns Counts that ask with this function. The function may go on after its context
// has ended: nobody waits for it then.
func NewCounts(ask func(ctx context.Context, topic string) (int32, error)) *Counts {
	return &Counts{ask: ask, asking: make(chan struct{}, 1), known: make(map[string]counted)}
}

// Of returns the number of partitions of a topic. It shares only an answer that was asked for at
// the time since or later.
func (c *Counts) Of(ctx context.Context, topic string, since time.Time) (int32, error) {
	select {
	case c.asking <- struct{}{}:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	if k, ok := c.known[topic]; ok && !k.asked.Before(since) {
		<-c.asking
		return k.n, nil
	}
	type answer struct {
		n   int32
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		defer func() { <-c.asking }()
		asked := time.Now()
		n, err := c.ask(ctx, topic)
		if err == nil && n < 1 {
			err = fmt.Errorf("topic %q has %d partitions", topic, n)
		}
		if err == nil {
			c.known[topic] = counted{n, asked}
		}
		answered <- answer{n, err}
	}()
	select {
	case a := <-answered:
		return a.n, a.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}
