package redisadapter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/redisscript"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

// forgetsKey is one key of a deployment, next to its records: those have braces where
// this has its name.
func (s *Store) forgetsKey() string { return s.opts.Prefix + ":forgets" }

// Forgets returns a number that is another one after every Forget that was answered
// with nil: see [dedup.Store]. It is a random one, kept in Redis for a month after the
// newest Forget; when it has expired, or was lost with the rest, the next call makes a
// new one, so that every cache is emptied once. One round trip, on a Cluster to one node.
// The error is like those of the items of the other methods.
func (s *Store) Forgets(ctx context.Context) (uint64, error) { return s.askForgets(ctx, false) }

// notifyForgets changes the number that Forgets returns, and answers every item that was
// forgotten with an error when that cannot be confirmed: caches would go on answering
// Duplicate for it. Forgetting it again is harmless, and tries again.
func (s *Store) notifyForgets(ctx context.Context, answers []dedup.Answer) {
	forgotten := func(a *dedup.Answer) bool { return a.Err == nil }
	changed := false
	for i := range answers {
		changed = changed || forgotten(&answers[i])
	}
	if !changed {
		return
	}
	if _, err := s.askForgets(ctx, true); err != nil {
		for i := range answers {
			if forgotten(&answers[i]) {
				answers[i].Err = fmt.Errorf("%w (the key is forgotten, but caches may not be told)",
					err)
			}
		}
	}
}

func (s *Store) askForgets(ctx context.Context, change bool) (uint64, error) {
	call := redisscript.NewForgets(s.forgetsKey(), rand.Uint64(), change)
	reply, err := s.askScript(ctx, call)
	if err != nil {
		return 0, wire.Wrap("forgets", err)
	}
	number, err := strconv.ParseUint(reply.Record, 10, 64)
	if err != nil {
		return 0, wire.Wrap("forgets", errors.Join(redisscript.ErrUnreadable, err))
	}
	return number, nil
}

// askScript runs one script; the error is also that of the reply.
func (s *Store) askScript(ctx context.Context, call redisscript.Call) (reply redisscript.Reply,
	err error) {
	refused := s.call(begins, func() {
		replies, failed := s.scripts(ctx, begins, []redisscript.Call{call})
		if err = failed; err == nil {
			reply, err = replies[0], replies[0].Err
		}
	}, func(yield func(error) bool) { yield(err) })
	return reply, errors.Join(refused, err)
}
