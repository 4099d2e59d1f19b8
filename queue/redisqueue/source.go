package redisqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/queue"
)

// Fields of a dead letter, as package kafkaadapter has them.
const (
	FieldID    = "onceward-id"    // the id of the message
	FieldScope = "onceward-scope" // the scope of its key
	FieldError = "onceward-error" // why it was parked
)

const (
	defaultAckWait = 30 * time.Second
	// block is how long a read waits for an entry. go-redis does not interrupt a read, and an entry
	// whose reply nobody reads is redelivered only after AckWait.
	block = 500 * time.Millisecond
)

// Options configures a consumer, in addition to [queue.Config]. Stream, Group and Consumer are
// required.
type Options struct {
	// Stream and Group name the stream's key and its group, which must exist.
	Stream, Group string
	// Consumer names this process in the group, for example by its pod. No two processes that run
	// at the same time may have the same name. A new process may have another name, but Redis
	// remembers every name.
	Consumer string
	// AckWait is how long an entry may be idle before another consumer takes it. All consumers of a
	// group should have the same. At least 100 ms. Default 30 s.
	AckWait time.Duration
	// IDField is the field with the id of the message. Default "id".
	IDField string
	// PayloadField is the field with the payload. An entry without it has no payload. Default
	// "payload".
	PayloadField string
	// DeadLetters is the key of the stream that gets the entries that cannot be processed, with
	// their fields and the Field constants of this package. Default: [queue.Config].Park.
	DeadLetters string
}

// Source reads the entries of one consumer of a group. One goroutine may call Fetch.
type Source struct {
	client redis.UniversalClient
	opts   Options
	scope  string
	cursor string // of XAUTOCLAIM

	mu   sync.Mutex
	next time.Time // when to look for idle entries
}

var _ queue.Source = (*Source)(nil)

// New returns the source of a consumer. It contacts nobody. An [*dedup.InputError] names the first
// bad option.
func New(client redis.UniversalClient, opts Options) (*Source, error) {
	opts.AckWait = cmp.Or(opts.AckWait, defaultAckWait)
	opts.IDField = cmp.Or(opts.IDField, "id")
	opts.PayloadField = cmp.Or(opts.PayloadField, "payload")
	bad := func(field, reason string) error {
		return &dedup.InputError{Field: "redisqueue." + field, Reason: reason}
	}
	switch {
	case client == nil:
		return nil, bad("Client", "is nil")
	case opts.Stream == "":
		return nil, bad("Options.Stream", "is empty")
	case opts.Group == "":
		return nil, bad("Options.Group", "is empty")
	case opts.Consumer == "":
		return nil, bad("Options.Consumer", "is empty: name the process")
	case opts.AckWait < 100*time.Millisecond:
		return nil, bad("Options.AckWait", fmt.Sprintf("is %v; at least 100 ms are needed", opts.AckWait))
	case opts.DeadLetters == opts.Stream:
		return nil, bad("Options.DeadLetters", "is the stream itself")
	}
	return &Source{client: client, opts: opts, scope: opts.Group + "/" + opts.Stream,
		cursor: "0-0"}, nil
}

// Consume handles the entries of a group until ctx ends: [queue.Consumer.Run] with the source of
// [New]. It returns their errors.
func Consume(ctx context.Context, client redis.UniversalClient, cfg queue.Config,
	opts Options) error {
	src, err := New(client, opts)
	if err != nil {
		return err
	}
	c, err := queue.New(cfg)
	if err != nil {
		return err
	}
	return c.Run(ctx, src)
}

// Fetch implements [queue.Source]. An error for which [dedup.IsPermanent] is true says that the
// stream or the group does not exist, or that the client was closed. If it returns entries and an
// error, other entries were trimmed before they were acknowledged.
func (s *Source) Fetch(ctx context.Context, limit int) ([]*queue.Delivery, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	wait := time.Until(s.due())
	if wait <= 0 {
		ds, err := s.takeIdle(ctx, limit)
		if len(ds) > 0 || err != nil {
			return ds, s.final(err)
		}
		wait = time.Until(s.due())
	}
	read, err := s.client.XReadGroup(ctx, &redis.XReadGroupArgs{Group: s.opts.Group,
		Consumer: s.opts.Consumer, Streams: []string{s.opts.Stream, ">"}, Count: int64(limit),
		Block: min(max(wait, time.Millisecond), block)}).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, s.final(err)
	}
	var ds []*queue.Delivery
	for _, stream := range read {
		for _, m := range stream.Messages {
			ds = append(ds, s.delivery(m, 1))
		}
	}
	return ds, nil
}

// due returns the time at which to look for idle entries.
func (s *Source) due() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next
}

// lookBy makes Fetch look for idle entries at the given time, or before.
func (s *Source) lookBy(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at.Before(s.next) {
		s.next = at
	}
}

// takeIdle takes over entries that nobody works on.
func (s *Source) takeIdle(ctx context.Context, limit int) ([]*queue.Delivery, error) {
	s.mu.Lock()
	s.next = time.Now().Add(s.opts.AckWait / 4)
	s.mu.Unlock()
	cmd := s.client.XAutoClaimWithDeleted(ctx, &redis.XAutoClaimArgs{Stream: s.opts.Stream,
		Group: s.opts.Group, Consumer: s.opts.Consumer, MinIdle: s.opts.AckWait, Start: s.cursor,
		Count: int64(limit)})
	entries, cursor, deleted, err := cmd.Result()
	if err != nil {
		return nil, err
	}
	if s.cursor = cursor; cursor != "0-0" { // there is more
		s.lookBy(time.Now())
	}
	counts := make([]*redis.XPendingExtCmd, len(entries))
	pipe := s.client.Pipeline()
	for i, m := range entries {
		counts[i] = pipe.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: s.opts.Stream,
			Group: s.opts.Group, Start: m.ID, End: m.ID, Count: 1})
	}
	if len(entries) > 0 {
		_, _ = pipe.Exec(ctx) // without a count, assume the second delivery
	}
	ds := make([]*queue.Delivery, len(entries))
	for i, m := range entries {
		count := 2
		if pending, err := counts[i].Result(); err == nil && len(pending) == 1 {
			count = int(pending[0].RetryCount)
		}
		ds[i] = s.delivery(m, count)
	}
	if len(deleted) > 0 {
		return ds, fmt.Errorf("redisqueue: %s: trimmed before they were acknowledged: %v",
			s.opts.Stream, deleted)
	}
	return ds, nil
}

// final marks an error that every later call would get, too.
func (s *Source) final(err error) error {
	switch {
	case redis.HasErrorPrefix(err, "NOGROUP"):
		return dedup.Permanent(fmt.Errorf("redisqueue: group %[2]q of stream %[1]q does not "+
			"exist; make it with XGROUP CREATE %[1]s %[2]s 0 MKSTREAM: %[3]w",
			s.opts.Stream, s.opts.Group, err))
	case errors.Is(err, redis.ErrClosed):
		return dedup.Permanent(err)
	}
	return err
}

func (s *Source) delivery(m redis.XMessage, count int) *queue.Delivery {
	d := &queue.Delivery{ID: m.ID, Scope: s.scope, Deliveries: count, Raw: m,
		Every: s.opts.AckWait / 4}
	if id, ok := m.Values[s.opts.IDField].(string); ok {
		d.ID = id
	}
	if payload, ok := m.Values[s.opts.PayloadField].(string); ok {
		d.Payload = []byte(payload)
	}
	d.Ack = func(ctx context.Context) error {
		return s.client.XAck(ctx, s.opts.Stream, s.opts.Group, m.ID).Err()
	}
	d.Extend = func(ctx context.Context) error { return s.idle(ctx, m.ID, 0) }
	d.Nack = func(ctx context.Context, after time.Duration) error {
		s.lookBy(time.Now().Add(after))
		return s.idle(ctx, m.ID, max(s.opts.AckWait-after, 0))
	}
	if s.opts.DeadLetters != "" {
		d.Park = func(ctx context.Context, reason error) error { return s.park(ctx, d, m, reason) }
	}
	return d
}

// idle sets the idle time of an entry. It takes the entry back if another consumer has it: the
// claim in the store says whose work counts.
func (s *Source) idle(ctx context.Context, id string, since time.Duration) error {
	claimed, err := s.client.Do(ctx, "XCLAIM", s.opts.Stream, s.opts.Group, s.opts.Consumer, 0, id,
		"IDLE", since.Milliseconds(), "JUSTID").Slice()
	if err != nil || len(claimed) > 0 {
		return err
	}
	// The entry was acknowledged, or trimmed. If it was trimmed, XCLAIM has dropped it from the
	// pending entries, so XAUTOCLAIM cannot report it.
	left, err := s.client.XRangeN(ctx, s.opts.Stream, id, id, 1).Result()
	if err == nil && len(left) == 0 {
		err = fmt.Errorf("redisqueue: %s: trimmed, and perhaps not acknowledged before: %s",
			s.opts.Stream, id)
	}
	return err
}

func (s *Source) park(ctx context.Context, d *queue.Delivery, m redis.XMessage,
	reason error) error {
	values := map[string]any{}
	for name, value := range m.Values {
		values[name] = value
	}
	values[FieldID], values[FieldScope], values[FieldError] = d.ID, d.Scope, reason.Error()
	return s.client.XAdd(ctx, &redis.XAddArgs{Stream: s.opts.DeadLetters, Values: values}).Err()
}
