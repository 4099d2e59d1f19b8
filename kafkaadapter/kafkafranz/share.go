package kafkafranz

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// ShareOptions are the options of a [Share] that [kafkaadapter.Config] does not have.
type ShareOptions struct {
	// Deliveries is how often the broker delivers a message before it archives it silently: the
	// group's delivery count limit (group.share.delivery.count.limit). The broker does not report
	// the limit, so set Deliveries if the group has another limit; at least 2. Every release,
	// lapsed lock, lost connection and crash counts.
	//
	// So a message that failed is released only up to the second last delivery. In that one it goes
	// to Park, with an error that wraps ErrAttempts; without Park it is tried again for as long as
	// Run runs. The last delivery is kept for crashes: if a message was tried before and comes with
	// the last delivery, it goes to Park without another try.
	//
	// The group loses a message in one case: in its last delivery the process dies, loses its
	// connection, or is shut down before the message has succeeded, and the message could not be
	// parked because Park is unset or fails. A process that lives logs that. Without Park an
	// UnprocessableError leads to that, too, because each restart of Run uses up a delivery.
	// Default 5.
	Deliveries int
	// Hold is how long a message may stay unfinished within one delivery, because its handler fails
	// or it is in flight elsewhere. Then it is released to be delivered again. The next poll waits
	// for it. Waiting for the store, or for Park, has no limit, because a release would use up
	// deliveries. Brokers below 4.2 do not renew the lock: keep Hold below the lock for them.
	// Default: half of the lock that the broker gives, so 15 s.
	Hold time.Duration
}

// Share consumes topics as a member of a share group (KIP-932): many members work on one
// partition. The broker hands out single messages under a lock and counts how often it has
// delivered each. There are no offsets to commit, and no order. Use [Share.Run].
//
// A message is accepted only when it is a duplicate, or when its effect and its record have landed,
// or when Park has kept it. Every other message is released, or comes back by itself when its lock
// ends; its claim then says whether it has been done meanwhile. The broker refuses an
// acknowledgement that comes after the lock has ended. That is reported to Observer.AckRefused and
// changes nothing: the record stands.
//
// With each poll kgo accepts every message of the poll before that is not acknowledged. So a Share
// polls again only when every message has been acknowledged, and the slowest one holds up those
// after it; other members continue. Locks are renewed meanwhile (KIP-1222, brokers of 4.2). On
// older brokers a message that takes longer than the lock (30 s) is delivered again, is found in
// flight, and waits: nothing happens twice, but deliveries are used up.
type Share struct {
	engine  *kafkadriver.Engine
	opts    ShareOptions
	running atomic.Bool
}

// NewShare checks the configuration; an [*dedup.InputError] names the first bad field. It starts
// nothing and contacts nobody.
//
// It refuses fields of [kafkaadapter.Config] that a share group has no use for: Unclaimed,
// BatchHandler, RangeHandler, Order, Own, Allow.TakeOver, Attempts.Max and Attempts.Delayed.
// (ShareOptions.Deliveries is the limit of attempts.) It also refuses Positions, because a share
// group's fetch does not report the UUID of a topic. Tuning.Workers and BatchMax bound how many
// messages a member fetches, locks and handles at once; brokers below 4.2 may exceed BatchMax by a
// producer's batch. Attempts.RetryMax is 5 s by default. These hooks of Observer are not called:
// Committing, Committed, CommitFailed, Assigned, Revoked and Paused. The handlers' workers call
// Park until it succeeds, and the next poll waits for that: releasing such a message would use up
// its deliveries. Set Attempts.Timeout, because the next poll waits for the slowest handler of this
// one.
func NewShare(group string, cfg kafkaadapter.Config, opts ShareOptions) (*Share, error) {
	if err := checkShare(&cfg, &opts); err != nil {
		return nil, err
	}
	engine, err := kafkadriver.New("kafkafranz", group, cfg)
	if err != nil {
		return nil, err
	}
	return &Share{engine: engine, opts: opts}, nil
}

func checkShare(cfg *kafkaadapter.Config, opts *ShareOptions) error {
	bad := func(field, format string, args ...any) error {
		return &dedup.InputError{Field: field, Reason: fmt.Sprintf(format, args...)}
	}
	if err := kafkadriver.Refuse("a share group", []kafkadriver.Field{
		{Name: "Unclaimed", Set: cfg.Unclaimed},
		{Name: "BatchHandler", Set: cfg.BatchHandler != nil},
		{Name: "RangeHandler", Set: cfg.RangeHandler != nil},
		{Name: "Positions", Set: cfg.Positions},
		{Name: "Attempts.Max", Set: cfg.Attempts.Max != 0},
		{Name: "Attempts.Delayed", Set: cfg.Attempts.Delayed != nil},
		{Name: "Order", Set: cfg.Order != kafkaadapter.ByKey},
		{Name: "Own", Set: cfg.Own != nil},
		{Name: "Allow.TakeOver", Set: cfg.Allow.TakeOver},
	}); err != nil {
		return err
	}
	switch {
	case cfg.Deduper == nil:
		return bad("kafkaadapter.Config.Deduper", "is nil")
	case opts.Deliveries < 0:
		return bad("kafkafranz.ShareOptions.Deliveries", "is %d; it must not be negative",
			opts.Deliveries)
	case opts.Deliveries == 1:
		return bad("kafkafranz.ShareOptions.Deliveries",
			"is 1: the first failure would be a loss; 2 is the least")
	case opts.Hold < 0:
		return bad("kafkafranz.ShareOptions.Hold", "is %v; it must not be negative", opts.Hold)
	case cfg.Tuning.BatchMax > maxBatch:
		return bad("kafkaadapter.Config.Tuning.BatchMax",
			"is %d; brokers lock %d messages of a partition at most", cfg.Tuning.BatchMax, maxBatch)
	}
	opts.Deliveries = cmp.Or(opts.Deliveries, 5)
	a := &cfg.Attempts
	a.RetryMax = cmp.Or(a.RetryMax, max(5*time.Second, a.RetryBase))
	return nil
}

// maxBatch is the default of group.share.partition.max.record.locks.
const maxBatch = 2000

// Run makes a client of the options and consumes until ctx ends. Then it waits for running
// handlers, which takes up to Tuning.Drain and a few seconds, releases unfinished messages, leaves
// the group, and returns nil. It needs kgo.ConsumeTopics, sets kgo.ShareGroup, and takes every
// other option of kgo except kgo.ShareMaxRecords, kgo.MaxConcurrentFetches and
// kgo.ShareAckCallback, which it replaces. The client belongs to Run.
//
// The group's own configuration at the broker says where it begins, and whether it reads only
// committed messages: share.auto.offset.reset, which is "latest" by default and skips messages from
// before the group, and share.isolation.level.
//
// It returns:
//
//   - an [*kafkaadapter.UnprocessableError] when a message can neither be processed nor parked
//   - an error that wraps dedup.ErrClosed when the Deduper has been closed
//   - kgo.ErrClientClosed when somebody has closed the client
//   - kafkaadapter.ErrRunning when it runs already
//   - an [*dedup.InputError] that names a bad option, or kgo's error about the options
//   - an error for a handler that ends its goroutine
//
// Nothing unfinished is accepted in any case.
func (s *Share) Run(ctx context.Context, opts ...kgo.Opt) error {
	switch {
	case ctx == nil:
		return &dedup.InputError{Field: "Context", Reason: "is nil"}
	case slices.Contains(opts, nil):
		return &dedup.InputError{Field: "Options", Reason: "has one that is nil"}
	case !s.running.CompareAndSwap(false, true):
		return kafkaadapter.ErrRunning
	}
	opts = append(slices.Clone(opts), kgo.ShareGroup(s.engine.Group()))
	defer s.running.Store(false)
	for failures := 0; ; failures++ {
		session, err := s.open(ctx, opts)
		if err != nil {
			return err
		}
		if err = session.run(); !errors.Is(err, kafkaadapter.ErrTopicRecreated) {
			return err
		}
		s.engine.GroupError(err)
		if ctx.Err() != nil || s.engine.Backoff(ctx, failures) != nil {
			return nil
		}
	}
}
