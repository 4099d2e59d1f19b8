package franz

import (
	"context"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/kafkaadapter/internal/flow"
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
	out := m.Native.(*Message) //nolint:errcheck // take has put it there
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
