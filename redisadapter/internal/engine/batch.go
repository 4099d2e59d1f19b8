package engine

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redisscript"
	"github.com/onceward/onceward/redisadapter/internal/line"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

// Batch is one script per item.
type Batch[T any] struct {
	Op  string
	Why line.Purpose
	// Call makes the script of an item, and Read reads its reply.
	Call func(*T) (redisscript.Call, error)
	Read func(*T, redisscript.Reply, driver.Record) (driver.Answer, error)
}

// Send sends the scripts and reads the answers. It answers items that make no sense without sending
// them.
func (b *Batch[T]) Send(ctx context.Context, l *line.Line, items []T) []driver.Answer {
	answers := make([]driver.Answer, len(items))
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
				answers[i] = driver.Answer{Err: wire.Wrap(b.Op, err)}
				continue
			}
			answers[i] = wire.AnswerOf(b.Op, &items[i], replies[n], b.Read)
		}
	}, wire.ErrorsOf(answers))
	if refused != nil {
		for _, i := range sent {
			answers[i] = driver.Answer{Err: wire.Wrap(b.Op, refused)}
		}
	}
	return answers
}

// Renew keeps claims alive.
func (e *Engine) Renew(ctx context.Context, renewals []driver.Renewal) []driver.Answer {
	b := Batch[driver.Renewal]{Op: "renew", Why: line.Ends,
		Call: func(c *driver.Renewal) (redisscript.Call, error) {
			return wire.RenewCall(e.Key(c.ID), c)
		},
		Read: func(_ *driver.Renewal, r redisscript.Reply, rec driver.Record) (driver.Answer,
			error) {
			switch r.Answer {
			case "held", "lost":
				return driver.Answer{Held: r.Answer == "held", Record: rec}, nil
			}
			return driver.Answer{}, wire.Unexpected(r)
		}}
	return b.Send(ctx, e.Line, renewals)
}

// Lookup reads records.
func (e *Engine) Lookup(ctx context.Context, ids []driver.ID) []driver.Answer {
	return e.Each(ctx, e, &Batch[driver.ID]{Op: "lookup",
		Call: func(id *driver.ID) (redisscript.Call, error) {
			return redisscript.NewLookup(e.Key(*id)), nil
		},
		Read: func(_ *driver.ID, r redisscript.Reply, rec driver.Record) (driver.Answer, error) {
			switch r.Answer {
			case "found", "absent":
				return driver.Answer{Record: rec}, nil
			}
			return driver.Answer{}, wire.Unexpected(r)
		}}, ids)
}

// Reindex makes the index agree with records, and returns the first error.
func (e *Engine) Reindex(ctx context.Context, ids []driver.ID) (err error) {
	b := Batch[driver.ID]{Op: "index", Why: line.Begins,
		Call: func(id *driver.ID) (redisscript.Call, error) {
			return redisscript.NewReindex(e.Key(*id)), nil
		},
		Read: func(_ *driver.ID, r redisscript.Reply, _ driver.Record) (driver.Answer, error) {
			switch r.Answer {
			case "entered", "kept", "left":
				return driver.Answer{}, nil
			}
			return driver.Answer{}, wire.Unexpected(r)
		}}
	for _, a := range b.Send(ctx, e.Line, ids) {
		err = cmp.Or(err, a.Err)
	}
	return err
}

// Forget drops records.
func (e *Engine) Forget(ctx context.Context, ids []driver.ID, hold time.Duration) []driver.Answer {
	return e.Each(ctx, e, &Batch[driver.ID]{Op: "forget",
		Call: func(id *driver.ID) (redisscript.Call, error) {
			if hold < 0 {
				return redisscript.Call{}, wire.Input("hold", "is negative")
			}
			return redisscript.NewForget(e.Key(*id), hold), nil
		},
		Read: func(_ *driver.ID, r redisscript.Reply, _ driver.Record) (driver.Answer, error) {
			switch r.Answer {
			case "forgotten":
				return driver.Answer{}, nil
			case "in_flight":
				return driver.Answer{}, driver.ErrInFlight
			}
			return driver.Answer{}, wire.Unexpected(r)
		}}, ids)
}

// Ask runs one script. Its error is that of the call or of the reply.
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
