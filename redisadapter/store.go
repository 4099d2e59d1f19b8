package redisadapter

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/redisscript"
	"github.com/onceward/onceward/redisadapter/internal/guard"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

// Store is a [dedup.Store] in Redis. It is safe for concurrent use, starts no lasting
// goroutine, and needs no closing; the client belongs to the caller.
//
// Every method is one pipeline (on a Cluster one per node), and a second one for items that have
// met a state that only a script can decide. It answers per item, and returns when its context
// ends. An item whose outcome is not known by then carries the context's error, and may have been
// executed. An item of a pipeline that was cut in the middle carries the network's error, while
// those answered before keep their answers.
//
// With a client that has ContextTimeoutEnabled, calls of a few items to a server that has recently
// answered within 2 ms need no goroutine that waits for the reply: a lone caller is up to twice as
// fast. They may return up to 50 ms after their context is canceled.
type Store struct {
	runner *redisscript.Runner
	clock  *wire.Clock
	multi  multi
	opts   Options

	guard   *guard.Amnesia
	breaker breaker
	rooms   rooms
	near    near
	// slotted is set when a server has refused a script for its keys' slots.
	slotted atomic.Bool
	// withheld is set while Options.WrappedBy waits for OpenFor.
	withheld atomic.Bool
	// buckets is nil in the layout Full.
	buckets *buckets
}

var (
	_ dedup.Store         = (*Store)(nil)
	_ dedup.Limiter       = (*Store)(nil)
	_ dedup.FinishClaimer = (*Store)(nil)
	_ dedup.ForgetCounter = (*Store)(nil)
	_ dedup.Recycler      = (*Store)(nil)
)

// key names a record.
func (s *Store) key(id dedup.ID) string {
	return string(s.appendKey(make([]byte, 0, len(s.opts.Prefix)+25), id))
}

// Limits are Options.Window and no results in the layout Compact, and none in Full.
func (s *Store) Limits() dedup.Limits {
	return dedup.Limits{Window: s.opts.Window, NoResults: s.opts.Layout == Compact}
}

// Shards is the number of shards that the options ask for, in the layout Compact; 0 in Full.
func (s *Store) Shards() int { return s.opts.Shards() }

// SharesKeys reports whether other is a Store with the same client and prefix: package layered
// refuses to move keys from such a store to itself.
func (s *Store) SharesKeys(other dedup.Store) bool {
	o, ok := other.(*Store)
	return ok && s.clock.Client == o.clock.Client && s.opts.Prefix == o.opts.Prefix
}

// Claim implements [dedup.Store].
func (s *Store) Claim(ctx context.Context, reqs []dedup.ClaimRequest) []dedup.Answer {
	_, claimed := s.FinishClaim(ctx, nil, reqs)
	return claimed
}

// claimedBy reads the answer of the claim script.
func claimedBy(_ *dedup.ClaimRequest, r redisscript.Reply, rec dedup.Record) (dedup.Answer, error) {
	outcome, known := claimOutcomes[r.Answer]
	if !known {
		return dedup.Answer{}, unexpected(r)
	}
	return dedup.Answer{Outcome: outcome, Mine: r.Answer == "mine", Record: rec}, nil
}

var claimOutcomes = map[string]dedup.Outcome{
	"acquired":  dedup.Acquired,
	"mine":      dedup.Acquired,
	"duplicate": dedup.Duplicate,
	"in_flight": dedup.InFlight,
	"mismatch":  dedup.Mismatch,
	"uncertain": dedup.Uncertain,
}

// Renew implements [dedup.Store].
func (s *Store) Renew(ctx context.Context, renewals []dedup.Renewal) []dedup.Answer {
	return batch(ctx, s, "renew", renewals, renewCall,
		func(_ *dedup.Renewal, r redisscript.Reply, rec dedup.Record) (dedup.Answer, error) {
			switch r.Answer {
			case "held", "lost":
				return dedup.Answer{Held: r.Answer == "held", Record: rec}, nil
			}
			return dedup.Answer{}, unexpected(r)
		})
}

// unexpected is the error of an answer that the script is not known to give.
func unexpected(r redisscript.Reply) error { return fmt.Errorf("script answered %q", r.Answer) }

// Finish implements [dedup.Store].
func (s *Store) Finish(ctx context.Context, changes []dedup.Finish) []dedup.Answer {
	if tx := s.transactionOf(changes); tx != nil {
		return tx.finish(ctx, &changes[0])
	}
	ended, _ := s.FinishClaim(ctx, changes, nil)
	return ended
}

// finished reads the answer to a Finish. The script does not repeat a result that it has just
// written, so that comes from the change.
func finished(c *dedup.Finish, r redisscript.Reply, rec dedup.Record) (dedup.Answer, error) {
	ans := dedup.Answer{Record: rec}
	switch r.Answer {
	case "held":
		ans.Held, ans.Written = true, true
		ans.Record.Result = cloneResult(c)
	case "landed":
		ans.Written = true
		ans.Record.Result = cloneResult(c)
	case "again":
		ans.Held, ans.Written = true, true
	case "landed_again":
		ans.Written = true
	case "refused":
	default:
		return dedup.Answer{}, unexpected(r)
	}
	return ans, nil
}

// Lookup implements [dedup.Store].
func (s *Store) Lookup(ctx context.Context, ids []dedup.ID) []dedup.Answer {
	return s.perKey()(ctx, s, "lookup", ids, lookupCall,
		func(_ *dedup.ID, r redisscript.Reply, rec dedup.Record) (dedup.Answer, error) {
			switch r.Answer {
			case "found", "absent":
				return dedup.Answer{Record: rec}, nil
			}
			return dedup.Answer{}, unexpected(r)
		})
}

// Forget implements [dedup.Store]. The record that it leaves behind lives for at least 2 ms, so
// that the next claim's fence is larger even at the same instant. A second round trip notifies the
// caches of finished keys; see [Store.Forgets].
func (s *Store) Forget(ctx context.Context, ids []dedup.ID, hold time.Duration) []error {
	answers := s.perKey()(ctx, s, "forget", ids, forgetCall(hold),
		func(_ *dedup.ID, r redisscript.Reply, _ dedup.Record) (dedup.Answer, error) {
			switch r.Answer {
			case "forgotten":
				return dedup.Answer{}, nil
			case "in_flight":
				return dedup.Answer{}, dedup.ErrInFlight
			}
			return dedup.Answer{}, unexpected(r)
		})
	s.notifyForgets(ctx, answers)
	errs := make([]error, len(answers))
	for i := range answers {
		errs[i] = answers[i].Err
	}
	return errs
}

// perKey is how scripts are sent that read or end a key by its ID.
func (s *Store) perKey() func(
	context.Context, *Store, string, []dedup.ID,
	func(*Store, *dedup.ID) (redisscript.Call, error),
	func(*dedup.ID, redisscript.Reply, dedup.Record) (dedup.Answer, error),
) []dedup.Answer {
	if s.buckets != nil {
		return compactBatch
	}
	return batch[dedup.ID]
}

// batch sends one script per item and reads the answers. Items that make no sense are
// answered here and not sent.
func batch[T any](
	ctx context.Context, s *Store, op string, items []T,
	call func(*Store, *T) (redisscript.Call, error),
	read func(*T, redisscript.Reply, dedup.Record) (dedup.Answer, error),
) []dedup.Answer {
	answers := make([]dedup.Answer, len(items))
	calls := make([]redisscript.Call, 0, len(items))
	sent := make([]int, 0, len(items))
	for i := range items {
		c, err := call(s, &items[i])
		if err != nil {
			answers[i].Err = err
			continue
		}
		calls, sent = append(calls, c), append(sent, i)
	}
	why := begins
	if op == "renew" {
		why = ends
	}
	refused := s.call(why, func() {
		replies, err := s.scripts(ctx, why, calls)
		for n, i := range sent {
			if err != nil {
				answers[i] = dedup.Answer{Err: wire.Wrap(op, err)}
				continue
			}
			answers[i] = answer(op, &items[i], replies[n], read)
		}
	}, errorsOf(answers))
	if refused != nil {
		for _, i := range sent {
			answers[i] = dedup.Answer{Err: wire.Wrap(op, refused)}
		}
	}
	return answers
}

// scripts makes one pipeline of scripts, and none of no scripts.
func (s *Store) scripts(ctx context.Context, why purpose,
	calls []redisscript.Call) ([]redisscript.Reply, error) {
	if len(calls) == 0 {
		return nil, nil
	}
	return s.inRoom(ctx, why, func() []redisscript.Reply {
		return s.runner.Send(ctx, calls, nil, nil)
	})
}

// errorsOf yields the error of every answer.
func errorsOf(lists ...[]dedup.Answer) func(yield func(error) bool) {
	return func(yield func(error) bool) {
		for _, answers := range lists {
			for i := range answers {
				if !yield(answers[i].Err) {
					return
				}
			}
		}
	}
}

func answer[T any](op string, item *T, r redisscript.Reply,
	read func(*T, redisscript.Reply, dedup.Record) (dedup.Answer, error)) dedup.Answer {
	if r.Err != nil {
		return dedup.Answer{Err: wire.Wrap(op, r.Err)}
	}
	if r.Answer == redisscript.AnswerEdge {
		return dedup.Answer{Err: wire.Wrap(op, &edgeError{time.UnixMilli(0).Add(r.Left)})}
	}
	var rec dedup.Record
	if r.Record != "" {
		stored, err := wire.DecodeRecord(r.Record)
		if err != nil {
			return dedup.Answer{Err: fmt.Errorf("redisadapter: %s: %w: %w", op,
				dedup.ErrUnreadable, err)}
		}
		rec = stored.View(r.Left, r.Age)
	}
	ans, err := read(item, r, rec)
	if err != nil {
		return dedup.Answer{Err: wire.Wrap(op, err)}
	}
	return ans
}
