package franz

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/kafkaadapter/internal/partition"
)

// ShareConfig configures a [Share].
type ShareConfig struct {
	// Deduper claims and records the messages. Required.
	Deduper *dedup.Deduper

	// Handler has the effect of one message; see [Handler] for what its answers mean. It has
	// a copy of the record, of which kgo's methods for share groups know nothing. Required.
	Handler Handler

	// ID, Scope, TopicName, RetryTopics and Fingerprint are those of [Config]. There are no
	// Positions: kgo does not tell the topic's UUID with what a share group fetches, and without it
	// the messages of a topic that was made anew would be taken for those of the old one. A message
	// without an id cannot be processed (ErrNoID).
	ID          IDFunc
	Scope       string
	TopicName   func(topic string) string
	RetryTopics []string
	Fingerprint bool

	// Label is that of [Config]. Default nil: none.
	Label func(m *Message) string

	// Park is given the messages that cannot be processed; once it has kept them and returned
	// nil they are accepted. It is called by their handlers' workers, until it succeeds, and
	// the next poll waits for that: while the dead-letter topic is down this member consumes
	// little more than it has. To release such a message instead would use up its deliveries,
	// and the broker would archive it. Default nil: such a message stops Run with an
	// *UnprocessableError and is released. What that costs is said of Deliveries.
	Park func(ctx context.Context, m *Message, reason error) error

	// AllowNoID lets messages without an id go to Park although no message of their partition
	// has had one so far. Without it such a message stops Run with an *UnprocessableError and is
	// released, while it has a delivery to spare; then it goes to Park. Default false.
	AllowNoID bool

	// Deliveries is how often the broker delivers a message before it archives it without a
	// word: the group's delivery count limit (group.share.delivery.count.limit). The broker
	// does not tell it, so it must be set where the group has another one; at least 2. Every
	// release, lapsed lock, lost connection and crash counts.
	//
	// A message that failed is therefore released up to the second last delivery only. In
	// that one it goes to Park, with an error that wraps ErrAttempts, and without Park it is
	// tried again for as long as Run runs. The last delivery is kept for crashes: what comes
	// with it and was tried before goes to Park without being tried again.
	//
	// So this is lost to the group, and told by a log entry where the process lives: a
	// message in its last delivery whose process dies, loses its connection, or is shut down
	// before it has succeeded, and cannot be parked before that, because there is no Park or
	// it fails. Without Park that is also what an UnprocessableError comes to, one restart of
	// Run after the other. Default 5.
	Deliveries int

	// Hold is how long a message may stay unfinished within one delivery, because its handler
	// fails or it is in flight elsewhere, before it is released to be delivered again. The
	// next poll waits for it. Waiting for the store, or for Park, has no limit, for it would
	// use up deliveries. Brokers below 4.2 do not renew the lock: keep it below that for them.
	// Default: half of the lock that the broker gives, so 15 s.
	Hold time.Duration

	// BusyTimeout is how long a message in its second last delivery may be in flight
	// elsewhere before it goes to Park, with ErrBusy; without Park it waits on. Default 15 min.
	BusyTimeout time.Duration

	// Workers bounds the handlers that run at once. Default 32.
	Workers int

	// BatchMax bounds the messages that are fetched, locked and claimed at once, and so the
	// memory used; brokers below 4.2 may exceed it by a producer's batch. Default 256.
	BatchMax int

	// Drain is how long running handlers may go on when Run ends, before they are
	// cancelled. Default 10 s.
	Drain time.Duration

	// Timeout bounds one run of Handler. As the next poll waits for the slowest handler of
	// this one, set it. Default 0: none.
	Timeout time.Duration

	// RetryBase and RetryMax bound the backoff after an error, with full jitter.
	// Default 100 ms and 5 s, or the other one where that is beyond it.
	RetryBase, RetryMax time.Duration

	// Observer is told what happens; Committing, Committed, CommitFailed, Assigned, Revoked
	// and Paused do not. Default: nobody.
	Observer Observer

	// Logger gets warnings. Default: slog.Default().
	Logger *slog.Logger
}

// Share consumes topics as a member of a share group (KIP-932): many members work on one
// partition, the broker hands out single messages under a lock and counts how often it has
// delivered each, and there are no offsets to commit, and no order. Use [Share.Run].
//
// A message is accepted only when it is a duplicate, or when its effect and its record have
// landed, or when Park has kept it. Everything else is released, or comes back by itself when
// its lock ends; then its claim says whether it has been done meanwhile. An acknowledgement
// that comes after the lock has ended is refused by the broker, which is told to
// Observer.AckRefused and changes nothing: the record stands.
//
// kgo accepts with a poll whatever of the poll before is not acknowledged. So a Share polls
// again only when every message has been, and the slowest one holds up those after it; other
// members get on. Locks are renewed meanwhile (KIP-1222, brokers of 4.2). On older brokers,
// what takes longer than the lock (30 s) is delivered again, is found in flight, and waits:
// nothing happens twice, but deliveries are used up.
type Share struct {
	cfg     ShareConfig
	ids     Config // its ID and Observer
	retry   backoff.Policy
	others  partition.Others
	withID  partition.Identified
	running atomic.Bool
	series  partition.Series // of the group's errors
}

// NewShare checks the configuration; an [*dedup.InputError] names the first bad field. It
// starts nothing and contacts nobody.
func NewShare(cfg ShareConfig) (*Share, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cfg.setDefaults()
	return &Share{
		cfg: cfg, ids: Config{ID: cfg.ID, Observer: cfg.Observer},
		retry: backoff.Policy{Base: cfg.RetryBase, Cap: cfg.RetryMax},
	}, nil
}

func (c *ShareConfig) setDefaults() {
	if c.ID == nil {
		c.ID = DefaultID()
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	orElse(&c.Deliveries, 5)
	orElse(&c.Workers, 32)
	orElse(&c.BatchMax, 256)
	orElse(&c.BusyTimeout, 15*time.Minute)
	orElse(&c.Drain, 10*time.Second)
	orElse(&c.RetryMax, max(5*time.Second, c.RetryBase))
	orElse(&c.RetryBase, min(100*time.Millisecond, c.RetryMax))
}

func orElse[T comparable](p *T, v T) {
	if *p == *new(T) {
		*p = v
	}
}

func (c *ShareConfig) check() error {
	bad := func(field, format string, args ...any) error {
		return &dedup.InputError{Field: "franz.ShareConfig." + field,
			Reason: fmt.Sprintf(format, args...)}
	}
	for _, f := range []struct {
		name string
		n    int64
	}{
		{"Deliveries", int64(c.Deliveries)}, {"Workers", int64(c.Workers)},
		{"BatchMax", int64(c.BatchMax)},
		{"Hold", int64(c.Hold)}, {"BusyTimeout", int64(c.BusyTimeout)}, {"Drain", int64(c.Drain)},
		{"Timeout", int64(c.Timeout)}, {"RetryBase", int64(c.RetryBase)},
		{"RetryMax", int64(c.RetryMax)},
	} {
		if f.n < 0 {
			return bad(f.name, "must not be negative")
		}
	}
	_, scope := driver.NewID("n", c.Scope, "k")
	switch {
	case c.Deduper == nil:
		return bad("Deduper", "is nil")
	case c.Handler == nil:
		return bad("Handler", "is nil")
	case scope != nil:
		return bad("Scope", "cannot be used: %v", scope)
	case slices.Contains(c.RetryTopics, ""):
		return bad("RetryTopics", "has an empty name")
	case c.Deliveries == 1:
		return bad("Deliveries", "is 1: the first failure would be a loss; 2 is the least")
	case c.BatchMax > maxBatch:
		return bad("BatchMax", "is %d; brokers lock %d messages of a partition at most",
			c.BatchMax, maxBatch)
	case c.RetryMax > 0 && c.RetryBase > c.RetryMax:
		return bad("RetryBase", "is %v, above RetryMax (%v)", c.RetryBase, c.RetryMax)
	}
	return nil
}

// maxBatch is the default of group.share.partition.max.record.locks.
const maxBatch = 2000

// Run makes a client of the options and consumes until ctx ends; then it returns nil, after
// running handlers have ended, which takes up to ShareConfig.Drain and a few seconds,
// unfinished messages have been released, and the group has been left. It needs
// kgo.ShareGroup and kgo.ConsumeTopics, and takes every other option of kgo but
// kgo.ShareMaxRecords, kgo.MaxConcurrentFetches and kgo.ShareAckCallback, which it replaces.
// The client belongs to Run.
//
// Where a group begins, and whether it reads committed messages only, is up to the group's
// own configuration at the broker: share.auto.offset.reset, which is "latest" by default and
// skips what was there before the group, and share.isolation.level.
//
// It returns an [*UnprocessableError] when a message can neither be processed nor parked, an
// error that wraps dedup.ErrClosed when the Deduper has been closed, kgo.ErrClientClosed when
// somebody has closed the client, [ErrRunning] when it runs already, an [*dedup.InputError]
// that names a bad option, what kgo says of the options, and an error for a handler that ends
// its goroutine. Nothing unfinished is accepted in any case.
func (s *Share) Run(ctx context.Context, opts ...kgo.Opt) error {
	switch {
	case ctx == nil:
		return &dedup.InputError{Field: "Context", Reason: "is nil"}
	case slices.Contains(opts, nil):
		return &dedup.InputError{Field: "Options", Reason: "has one that is nil"}
	case !s.running.CompareAndSwap(false, true):
		return ErrRunning
	}
	defer s.running.Store(false)
	for failures := 0; ; failures++ {
		session, err := s.open(ctx, opts)
		if err != nil {
			return err
		}
		if err = session.run(); !errors.Is(err, ErrTopicGone) {
			return err
		}
		s.troubled(err)
		if ctx.Err() != nil || backoff.Sleep(ctx, s.retry.Delay(failures, 0, nil)) != nil {
			return nil
		}
	}
}
