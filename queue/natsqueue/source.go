package natsqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/queue"
)

// Headers of a dead letter, as package kafkaadapter has them.
const (
	HeaderID    = "onceward-id"    // the id of the message
	HeaderScope = "onceward-scope" // the scope of its key
	HeaderError = "onceward-error" // why it was parked
)

// fetchWait is how long a pull request for the first message lasts. A request that is given up
// early may be answered after that, and then its message would wait for AckWait before it is
// redelivered.
const fetchWait = time.Second

// Options configures a consumer, in addition to [queue.Config]. The zero value is usable.
type Options struct {
	// ID finds the id of a message; empty: it has none. Default: the header Nats-Msg-Id, else the
	// stream and the sequence.
	ID func(m jetstream.Msg) string
	// DeadLetters is the subject to which Publisher sends the messages that cannot be processed.
	// They keep their headers, except those that begin with "Nats-", and get the Header constants
	// of this package. A stream must have that subject, because the publication is confirmed.
	// Default: [queue.Config].Park.
	DeadLetters string
	// Publisher sends to DeadLetters: the jetstream.JetStream of the program. Required with it.
	Publisher jetstream.Publisher
}

// Source fetches the messages of one pull consumer. It is safe for concurrent use.
type Source struct {
	consumer jetstream.Consumer
	opts     Options
	scope    string
	every    time.Duration
}

var _ queue.Source = (*Source)(nil)

// New returns the source of a consumer. It contacts nobody. An [*dedup.InputError] names a bad
// option, or a setting of the consumer with which messages would be lost. It must be durable,
// acknowledge explicitly, and have no MaxDeliver: the server drops a message after that many
// deliveries. Use [queue.Attempts].Max.
func New(consumer jetstream.Consumer, opts Options) (*Source, error) {
	if consumer == nil {
		return nil, &dedup.InputError{Field: "natsqueue.Consumer", Reason: "is nil"}
	}
	info := consumer.CachedInfo()
	cfg := &info.Config
	bad := func(field, format string, args ...any) error {
		return &dedup.InputError{Field: "natsqueue." + field, Reason: fmt.Sprintf(format, args...)}
	}
	switch {
	case cfg.Durable == "":
		return nil, bad("ConsumerConfig.Durable", "is empty: another name has other keys")
	case cfg.AckPolicy != jetstream.AckExplicitPolicy:
		return nil, bad("ConsumerConfig.AckPolicy", "is %v; it must be explicit", cfg.AckPolicy)
	case cfg.MaxDeliver > 0:
		return nil, bad("ConsumerConfig.MaxDeliver",
			"is %d: the server drops messages; use queue.Attempts.Max", cfg.MaxDeliver)
	case (opts.DeadLetters == "") != (opts.Publisher == nil):
		return nil, bad("Options", "has one of DeadLetters and Publisher, and needs both")
	}
	wait := cfg.AckWait
	if len(cfg.BackOff) > 0 { // which overrides AckWait
		wait = slices.Min(cfg.BackOff)
	}
	return &Source{consumer: consumer, opts: opts, scope: info.Name + "/" + info.Stream,
		every: wait / 4}, nil
}

// Consume handles the messages of a consumer until ctx ends: [queue.Consumer.Run] with the source
// of [New]. It returns their errors.
func Consume(ctx context.Context, consumer jetstream.Consumer, cfg queue.Config,
	opts Options) error {
	src, err := New(consumer, opts)
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
// consumer is gone, or that the connection was closed.
func (s *Source) Fetch(ctx context.Context, limit int) ([]*queue.Delivery, error) {
	ds, err := s.take(s.consumer.FetchNoWait(limit))
	if len(ds) == 0 && err == nil && ctx.Err() == nil {
		ds, err = s.take(s.consumer.Fetch(1, jetstream.FetchMaxWait(fetchWait)))
	}
	if err == nil || len(ds) > 0 {
		return ds, nil
	}
	return nil, s.final(ctx, err)
}

func (s *Source) take(batch jetstream.MessageBatch, err error) (ds []*queue.Delivery, _ error) {
	if err != nil {
		return nil, err
	}
	for m := range batch.Messages() {
		ds = append(ds, s.Delivery(m))
	}
	return ds, batch.Error()
}

// final marks an error that every later call would get, too.
func (s *Source) final(ctx context.Context, err error) error {
	if errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, jetstream.ErrConsumerDeleted) {
		return dedup.Permanent(err)
	}
	if errors.Is(err, nats.ErrNoResponders) { // also the answer for a consumer that is gone
		if _, gone := s.consumer.Info(ctx); errors.Is(gone, jetstream.ErrConsumerNotFound) {
			return dedup.Permanent(gone)
		}
	}
	return err
}

// Delivery makes the delivery of a message of the consumer. Use it with [queue.Consumer.Handle] in
// a callback of jetstream.Consumer.Consume.
func (s *Source) Delivery(m jetstream.Msg) *queue.Delivery {
	d := &queue.Delivery{
		Scope: s.scope, Payload: m.Data(), Raw: m, Every: s.every,
		Ack:    m.DoubleAck,
		Nack:   func(_ context.Context, after time.Duration) error { return m.NakWithDelay(after) },
		Extend: func(context.Context) error { return m.InProgress() },
	}
	id := m.Headers().Get(jetstream.MsgIDHeader)
	if meta, err := m.Metadata(); err == nil {
		d.Deliveries = int(meta.NumDelivered)
		if id == "" {
			id = fmt.Sprintf("%s:%d", meta.Stream, meta.Sequence.Stream)
		}
	}
	if d.ID = id; s.opts.ID != nil {
		d.ID = s.opts.ID(m)
	}
	if s.opts.DeadLetters != "" {
		d.Park = func(ctx context.Context, reason error) error { return s.park(ctx, d, m, reason) }
	}
	return d
}

// park sends a dead letter. It leaves out the server's headers: with them the server could check
// it, let it expire, or drop it as a copy of the message.
func (s *Source) park(ctx context.Context, d *queue.Delivery, m jetstream.Msg, reason error) error {
	dead := nats.NewMsg(s.opts.DeadLetters)
	dead.Data = m.Data()
	for name, values := range m.Headers() {
		if !strings.HasPrefix(name, "Nats-") {
			dead.Header[name] = slices.Clone(values)
		}
	}
	dead.Header.Set(HeaderID, d.ID)
	dead.Header.Set(HeaderScope, d.Scope)
	dead.Header.Set(HeaderError, strings.Join(strings.Fields(reason.Error()), " "))
	_, err := s.opts.Publisher.PublishMsg(ctx, dead)
	return err
}
