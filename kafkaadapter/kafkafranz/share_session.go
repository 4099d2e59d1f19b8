package kafkafranz

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

const (
	// shareSenders is how many batches of claims, and of completions, are under way at once.
	shareSenders = 2
	// endPatience bounds how long a batch of completions holds up the next one.
	endPatience = time.Second
	// drainGrace is the time that canceled handlers have to return.
	drainGrace = 500 * time.Millisecond
	// lastPark bounds parking a message that would be lost with the end of Run.
	lastPark = 5 * time.Second
)

// shareSession is one client of a share group, from its making to its closing.
type shareSession struct {
	*Share
	client *kgo.Client
	// how long a connection may be idle before kgo closes it, and the broker gives its locks away
	idle  time.Duration
	slots chan struct{} // one for every handler that runs
	asks  *kafkadriver.Gather[*delivery]
	ends  *kafkadriver.Gather[completion]

	unknown unknownTopics // of run's goroutine
	gone    string        // topic for which another client is to be made

	base   context.Context         // has the values of Run's context, and outlives it
	ctx    context.Context         // of the polls: nothing begins after it
	stop   context.CancelCauseFunc // ends it
	hard   context.Context         // of the handlers, which may go on for the drain
	cancel context.CancelCauseFunc // ends them

	mu     sync.Mutex
	failed error // why Run cannot go on
}

func (s *Share) open(ctx context.Context, opts []kgo.Opt) (*shareSession, error) {
	n := &shareSession{Share: s, slots: make(chan struct{}, s.engine.Tuning.Workers),
		base: context.WithoutCancel(ctx)}
	n.asks = kafkadriver.NewGather(s.engine.Tuning.BatchMax, shareSenders, n.claim)
	n.ends = kafkadriver.NewGather(s.engine.Tuning.BatchMax, shareSenders, n.end)
	if err := kgo.ValidateOpts(opts...); err != nil {
		return nil, fmt.Errorf("kafkafranz: %w", err)
	}
	client, err := kgo.NewClient(append(append([]kgo.Opt(nil), opts...), n.options()...)...)
	if err != nil {
		return nil, &dedup.InputError{Field: "Options",
			Reason: fmt.Sprintf("do not go with those that Run adds (%v)", err)}
	}
	if client.OptValue(kgo.ConsumeRegex) != true && len(client.GetConsumeTopics()) == 0 {
		client.Close()
		return nil, &dedup.InputError{Field: "kgo.ConsumeTopics", Reason: "is missing"}
	}
	n.client = client
	n.idle, _ = client.OptValue(kgo.ConnIdleTimeout).(time.Duration)
	n.ctx, n.stop = context.WithCancelCause(ctx)
	n.hard, n.cancel = context.WithCancelCause(n.base)
	return n, nil
}

// options lets kgo fetch only while it is polled: a buffered message would use up its lock, and a
// delivery with it, before anybody sees it.
func (s *shareSession) options() []kgo.Opt {
	return []kgo.Opt{
		kgo.ShareMaxRecords(int32(s.engine.Tuning.BatchMax)), // checked
		kgo.ShareMaxRecordsStrict(), kgo.MaxConcurrentFetches(0),
		kgo.ShareAckCallback(s.acknowledged),
	}
}

// acknowledged gets the results of acknowledgements.
func (s *shareSession) acknowledged(_ *kgo.Client, results kgo.ShareAckResults) {
	for _, r := range results {
		if hook := s.engine.Observer.AckRefused; hook != nil && r.Err != nil {
			hook(r.Topic, r.Partition, r.Err)
		}
	}
}

// run consumes until ctx ends. It returns the reason if it could not go on.
func (s *shareSession) run() error {
	var watching sync.WaitGroup
	defer watching.Wait() // s.ctx has ended by then
	watch := newTopicWatch(s.client, func(topic string) { s.halt(topicGone(topic)) },
		s.engine.GroupError)
	watch.share = true
	watching.Go(func() { watch.run(s.ctx) })
	for failures := 0; s.ctx.Err() == nil; {
		ds, err := s.take(s.client.PollRecords(s.ctx, 0))
		s.work(ds)
		switch {
		case errors.Is(err, kgo.ErrClientClosed):
			s.halt(err)
		case s.gone != "":
			s.halt(topicGone(s.gone))
		case err != nil: // the client continues by itself
			s.engine.GroupError(err)
			_ = s.engine.Backoff(s.ctx, failures)
			failures++
		default:
			failures = 0
		}
	}
	s.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// halt stops Run with an error.
func (s *shareSession) halt(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil {
		s.failed = err
	}
	s.stop(err)
}

// close sends the acknowledgements, and leaves the group.
func (s *shareSession) close() {
	s.cancel(kafkadriver.ErrDrained)
	ctx, cancel := context.WithTimeout(s.base, leaveTimeout)
	defer cancel()
	if err := s.client.FlushAcks(ctx); err != nil {
		s.engine.Logger.Warn("kafkafranz: acknowledgements are not known to be sent", "error", err)
	}
	if err := s.client.LeaveGroupContext(ctx); err != nil {
		s.engine.Logger.Warn("kafkafranz: the share group was not left", "error", err)
	}
	s.client.Close()
}

// take makes deliveries of the records of a poll.
func (s *shareSession) take(fetches kgo.Fetches) (ds []*delivery, err error) {
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		if errors.Is(p.Err, kerr.UnknownTopicID) && s.unknown.persists(p.Topic, time.Now()) {
			s.gone = p.Topic
		}
		if p.Err != nil && s.ctx.Err() == nil {
			err = errors.Join(err, fmt.Errorf("kafkafranz: %s/%d: %w", p.Topic, p.Partition, p.Err))
		}
		for _, r := range p.Records {
			ds = append(ds, s.deliver(r))
		}
	})
	return ds, err
}

// work finishes deliveries. When it returns, each has been acknowledged: the next poll would accept
// those that have not.
func (s *shareSession) work(ds []*delivery) {
	if len(ds) == 0 {
		return
	}
	done := s.start(ds)
	renew := time.NewTicker(s.renewal(ds[0].lock))
	defer renew.Stop()
	defer func() {
		for _, d := range ds {
			d.rec.Ack(kgo.AckRelease) // of an abandoned handler; others have been acknowledged
		}
	}()
	ended, budget, grace := s.ctx.Done(), (<-chan time.Time)(nil), (<-chan time.Time)(nil)
	for {
		select {
		case <-done:
			return
		case <-renew.C:
			s.renew(ds)
		case <-ended:
			ended, budget = nil, time.After(s.engine.Tuning.Drain)
		case <-budget:
			s.cancel(kafkadriver.ErrDrained)
			grace = time.After(drainGrace)
		case <-grace:
			return
		}
	}
}

// start begins deliveries, which it claims together. It returns a channel that is closed when all
// of them have ended.
func (s *shareSession) start(ds []*delivery) <-chan struct{} {
	var ask []*delivery
	for _, d := range ds {
		if d.asked = d.bad == nil; d.asked {
			ask = append(ask, d)
		}
	}
	s.asks.Add(ask...)
	var all sync.WaitGroup
	for _, d := range ds {
		all.Go(d.live)
	}
	done := make(chan struct{})
	go func() {
		all.Wait()
		close(done)
	}()
	return done
}

// renewal is the time between renewals of locks. They also keep the connection from idling: all
// locks would be lost with the connection.
func (s *shareSession) renewal(lock time.Duration) time.Duration {
	if s.idle > 0 {
		lock = min(lock, s.idle)
	}
	return max(lock/3, 10*time.Millisecond)
}

// renew renews the locks of messages that are not acknowledged.
func (s *shareSession) renew(ds []*delivery) {
	for _, d := range ds {
		d.rec.Ack(kgo.AckRenew) // does nothing to an acknowledged one
	}
	now, cancel := context.WithCancel(s.base)
	cancel()
	// sends them at once, and not within a second; does not wait for the answer
	_ = s.client.FlushAcks(now)
}

// claim claims a batch in one round trip.
func (s *shareSession) claim(ds []*delivery) {
	reqs := make([]dedup.Request, len(ds))
	for i, d := range ds {
		reqs[i] = d.request()
	}
	answers, err := s.engine.Deduper.ClaimBatch(s.ctx, reqs)
	for i, d := range ds {
		if err != nil {
			d.answer <- answer{err: err}
			continue
		}
		d.answer <- answer{claim: answers[i]}
	}
}

// completion is a claim on its way to its end.
type completion struct {
	how  dedup.Completion
	done chan error
}

// end ends claims in one round trip. It continues after the end of Run, because an effect that has
// happened must be recorded, until the lease ends. A completion whose result is not known within
// endPatience continues by itself, so that it holds up nobody else.
func (s *shareSession) end(batch []completion) {
	done := make([]dedup.Completion, len(batch))
	for i := range batch {
		done[i] = batch[i].how
	}
	ctx, cancel := context.WithTimeout(s.base, endPatience)
	errs := s.engine.Deduper.CompleteBatch(ctx, done)
	cancel()
	for i, e := range batch {
		switch {
		case errs == nil:
			e.done <- nil
		case dedup.OutcomeUnknown(errs[i]) && e.how.Err == nil:
			go func() { e.done <- s.endAlone(e.how) }()
		default:
			e.done <- errs[i]
		}
	}
}

func (s *shareSession) endAlone(how dedup.Completion) error {
	if errs := s.engine.Deduper.CompleteBatch(s.base, []dedup.Completion{how}); errs != nil {
		return errs[0]
	}
	return nil
}
