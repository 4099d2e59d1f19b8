package kafkaadapter

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/kafkaadapter/internal/flow"
	"github.com/onceward/onceward/kafkaadapter/internal/letter"
	"github.com/onceward/onceward/kafkaadapter/internal/partition"
)

// partitionConfig is what the configuration means to a partition.
func partitionConfig(c Config, retry backoff.Policy) *partition.Config {
	out := &partition.Config{
		Deduper: c.Deduper, Fingerprint: c.Fingerprint,
		Workers: c.Workers, Order: laneOrder(c.Order), BatchMax: c.BatchMax,
		ClaimAhead: c.ClaimAhead,
		HighWater:  c.HighWater, LowWater: c.LowWater, Drain: c.Drain, Timeout: c.Timeout,
		Retry: retry, Logger: c.Logger,
		AllowNoID: c.AllowNoID, MaxAttempts: c.MaxAttempts, BusyTimeout: c.BusyTimeout,
		TakeOver: c.TakeOverOlderGeneration,
		Handle: func(ctx context.Context, m *partition.Message) error {
			return c.Handler(ctx, native(m))
		},
		Unprocessable: func(topic string, number int32, m *partition.Message, reason error) error {
			return &UnprocessableError{Topic: topic, Partition: number, Offset: m.Offset,
				Err: reason}
		},
		Hooks: partitionHooks(c.Observer),
	}
	c.owning(out)
	if c.Label != nil {
		out.Label = func(m *partition.Message) string { return c.Label(native(m)) }
	}
	if c.BatchHandler != nil {
		out.HandleBatch = func(ctx context.Context, ms []*partition.Message) []error {
			return c.BatchHandler(ctx, natives(ms))
		}
	}
	if c.RangeHandler != nil {
		out.HandleBatch = c.handleRange
	}
	if c.Park != nil {
		out.Park = func(ctx context.Context, m *partition.Message, reason error) error {
			return c.Park(ctx, native(m), reason)
		}
	}
	return out
}

func partitionHooks(o Observer) partition.Hooks {
	hooks := partition.Hooks{Revoked: o.Revoked}
	if f := o.Skipped; f != nil {
		hooks.Skipped = func(m *partition.Message, c *dedup.Claim) {
			f(native(m), c.Cause, c.Record.Age)
		}
	}
	if f := o.Handled; f != nil {
		hooks.Handled = func(m *partition.Message, took time.Duration, err error) {
			f(native(m), took, err)
		}
	}
	if f := o.Waiting; f != nil {
		hooks.Waiting = func(m *partition.Message) { f(native(m)) }
	}
	if f := o.Recorded; f != nil {
		hooks.Recorded = func(m *partition.Message, took time.Duration) { f(native(m), took) }
	}
	if f := o.Unrecorded; f != nil {
		hooks.Unrecorded = func(m *partition.Message, err error) { f(native(m), err) }
	}
	if f := o.Parked; f != nil {
		hooks.Parked = func(m *partition.Message, reason error) { f(native(m), reason) }
	}
	return hooks
}

// native is the message as users see it.
func native(m *partition.Message) *Message {
	out := m.Native.(*Message) //nolint:errcheck // receive has put it there
	out.Attempt, out.Label, out.Found = m.Attempt, m.Label, m.Found
	return out
}

func natives(ms []*partition.Message) []*Message {
	out := make([]*Message, len(ms))
	for i, m := range ms {
		out[i] = native(m)
	}
	return out
}

func laneOrder(o Order) flow.Order {
	switch o {
	case ByPartition:
		return flow.ByPartition
	case Unordered:
		return flow.Unordered
	default:
		return flow.ByKey
	}
}

// ConsumeClaim implements sarama.ConsumerGroupHandler: it consumes one partition until
// it is revoked, the session ends, or a message cannot be processed.
func (a *Adapter) ConsumeClaim(session sarama.ConsumerGroupSession,
	claim sarama.ConsumerGroupClaim) error {
	err := a.consumeClaim(session, claim)
	if isFatal(err) {
		a.member.Fail(err)
	}
	return err
}

func (a *Adapter) consumeClaim(session sarama.ConsumerGroupSession,
	claim sarama.ConsumerGroupClaim) error {
	state := a.session(session)
	if state == nil {
		return errors.New("kafkaadapter: ConsumeClaim without Setup")
	}
	if t := state.topics; t != nil &&
		!t.claimed(state.assigned, claim.Topic(), claim.Partition(), claim.InitialOffset(),
			state.rewind) {
		return nil // another session begins where this one should have
	}
	var topicID string
	if positions := a.cfg.Positions; positions != nil {
		// An error ends the session, and the next one tries again: without the look-up
		// the messages of a topic that is another one by now could be taken for done.
		if err := positions.assigned(claim.Topic()); err != nil {
			return err
		}
		topicID = positions.topicID(claim.Topic())
	}
	var open valve
	p, err := partition.New(a.partitions, partition.Assignment{
		Group: a.cfg.Group, Topic: claim.Topic(), Partition: claim.Partition(),
		Generation: session.GenerationID(),
		Context:    state.assigned, Fenced: state.fenced, Committer: state.committer,
		Halt: a.member.Halt, Counts: a.counts,
		Pause: func(on bool) {
			if paused := a.member.Pause(claim.Topic(), claim.Partition(), on); !paused {
				open.set(!on)
			}
		},
	})
	if err != nil {
		return err
	}
	if err := p.Start(); err != nil {
		return err
	}
	defer a.show(claim, p)()
	intake := a.intake(p, claim, source{topicID: topicID, scope: a.scopes.Topic(claim.Topic())},
		&open)
	ended := p.End()
	if state.commits != nil {
		state.commits.forget(claim.Topic(), claim.Partition())
	}
	return cmp.Or(ended, intake, context.Cause(state.fenced))
}

// intake takes messages until the channel closes or the partition ends. It never waits for
// the store or for a handler, unless nobody can pause the partition for it.
func (a *Adapter) intake(p *partition.Partition, claim sarama.ConsumerGroupClaim, from source,
	open *valve) error {
	in, err := flow.NewIntake(claim.Messages(),
		flow.IntakeConfig{BatchMax: a.cfg.BatchMax, BatchWait: a.cfg.BatchWait})
	if err != nil {
		return err
	}
	var batch []*sarama.ConsumerMessage
	for open.wait(p.Context()) == nil {
		batch, err = in.Next(p.Context(), batch[:0])
		if err != nil {
			break // revoked, session over, or stopped: the partition knows why
		}
		messages := make([]partition.Message, len(batch))
		for i, m := range batch {
			messages[i] = a.receive(m, &from)
		}
		if err := p.Take(messages); err != nil {
			return err
		}
	}
	return nil
}

// source is what is known of the topic that messages come from.
type source struct {
	topicID string
	scope   letter.TopicScope
}

// receive finds the id of a message.
func (a *Adapter) receive(m *sarama.ConsumerMessage, from *source) partition.Message {
	if hook := a.cfg.Observer.Delivered; hook != nil {
		hook(m)
	}
	headers := headersOf(m)
	id, bad := a.idOf(m, from)
	scoped := from.scope.Of(headers)
	out := &Message{ConsumerMessage: m, ID: id, Scope: scoped.Scope, topicID: from.topicID,
		first: scoped.First}
	if fault := from.scope.Fault(headers); fault != nil {
		bad, out.short = fault, true
	}
	return partition.Message{
		Native: out, Offset: m.Offset, Key: m.Key, Value: m.Value, ID: id, Bad: bad,
		Scope: scoped.Scope, Elsewhere: scoped.First != m.Topic,
	}
}
