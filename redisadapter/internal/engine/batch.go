package engine

import (
	"context"
	"errors"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/redisscript"
	"github.com/onceward/onceward/redisadapter/internal/line"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

// Batch is one script per item.
type Batch[T any] struct {
	Op  string
	Why line.Purpose
	// Call makes the script of an item, and Read reads what it says of that.
	Call func(*T) (redisscript.Call, error)
	Read func(*T, redisscript.Reply, dedup.Record) (dedup.Answer, error)
}

// Send sends the scripts and reads the answers. Items that make no sense are answered here and not
// sent.
func (b *Batch[T]) Send(ctx context.Context, l *line.Line, items []T) []dedup.Answer {
	answers := make([]dedup.Answer, len(items))
	calls := make([]redisscript.Call, 0, len(items))
	sent := make([]int, 0, len(items))
	for i := range items {
		c, err := b.Call(&items[i])
		if err != nil {
			answers[i].Err = err
			continue
		}
		calls, sent = append(calls, c), append(sent, i)
	}
	refused := l.Call(b.Why, func() {
		replies, err := l.Scripts(ctx, b.Why, calls)
		for n, i := range sent {
			if err != nil {
				answers[i] = dedup.Answer{Err: wire.Wrap(b.Op, err)}
				continue
			}
			answers[i] = wire.AnswerOf(b.Op, &items[i], replies[n], b.Read)
		}
	}, wire.ErrorsOf(answers))
	if refused != nil {
		for _, i := range sent {
			answers[i] = dedup.Answer{Err: wire.Wrap(b.Op, refused)}
		}
	}
	return answers
}

// Renew keeps claims alive.
func (e *Engine) Renew(ctx context.Context, renewals []dedup.Renewal) []dedup.Answer {
	b := Batch[dedup.Renewal]{Op: "renew", Why: line.Ends,
		Call: func(c *dedup.Renewal) (redisscript.Call, error) {
			return wire.RenewCall(e.Key(c.ID), c)
		},
		Read: func(_ *dedup.Renewal, r redisscript.Reply, rec dedup.Record) (dedup.Answer, error) {
			switch r.Answer {
			case "held", "lost":
				return dedup.Answer{Held: r.Answer == "held", Record: rec}, nil
			}
			return dedup.Answer{}, wire.Unexpected(r)
		}}
	return b.Send(ctx, e.Line, renewals)
}

// Lookup reads records.
func (e *Engine) Lookup(ctx context.Context, ids []dedup.ID) []dedup.Answer {
	return e.Each(ctx, e, &Batch[dedup.ID]{Op: "lookup",
		Call: func(id *dedup.ID) (redisscript.Call, error) {
			return redisscript.NewLookup(e.Key(*id)), nil
		},
		Read: func(_ *dedup.ID, r redisscript.Reply, rec dedup.Record) (dedup.Answer, error) {
			switch r.Answer {
			case "found", "absent":
				return dedup.Answer{Record: rec}, nil
			}
			return dedup.Answer{}, wire.Unexpected(r)
		}}, ids)
}

// Forget drops records.
func (e *Engine) Forget(ctx context.Context, ids []dedup.ID, hold time.Duration) []dedup.Answer {
	return e.Each(ctx, e, &Batch[dedup.ID]{Op: "forget",
		Call: func(id *dedup.ID) (redisscript.Call, error) {
			if hold < 0 {
				return redisscript.Call{}, wire.Input("hold", "is negative")
			}
			return redisscript.NewForget(e.Key(*id), hold), nil
		},
		Read: func(_ *dedup.ID, r redisscript.Reply, _ dedup.Record) (dedup.Answer, error) {
			switch r.Answer {
			case "forgotten":
				return dedup.Answer{}, nil
			case "in_flight":
				return dedup.Answer{}, dedup.ErrInFlight
			}
			return dedup.Answer{}, wire.Unexpected(r)
		}}, ids)
}

// Ask runs one script; the error is also that of the reply.
func (e *Engine) Ask(ctx context.Context, call redisscript.Call) (reply redisscript.Reply,
	err error) {
	refused := e.Line.Call(line.Begins, func() {
		replies, failed := e.Line.Scripts(ctx, line.Begins, []redisscript.Call{call})
		if err = failed; err == nil {
			reply, err = replies[0], replies[0].Err
		}
	}, func(yield func(error) bool) { yield(err) })
	return reply, errors.Join(refused, err)
}
