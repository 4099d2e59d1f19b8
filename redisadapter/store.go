package redisadapter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redisscript"
	"github.com/onceward/onceward/redisadapter/internal/compact"
	"github.com/onceward/onceward/redisadapter/internal/engine"
	"github.com/onceward/onceward/redisadapter/internal/wake"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

// Store is a [driver.Store] in Redis. It is safe for concurrent use, starts no lasting
// goroutine but those of [Store.Listen], and needs no closing; the client belongs to the caller.
//
// Every method is one pipeline (on a Cluster one per node), and a second one for items that only a
// script can decide. It answers per item, and returns when its context ends. An item whose outcome
// is not known by then carries the context's error, and may have been executed. An item of a
// pipeline that was cut in the middle carries the network's error, while those answered before keep
// their answers.
//
// With a client that has ContextTimeoutEnabled, calls of a few items to a server that has recently
// answered within 2 ms need no goroutine that waits for the reply: a lone caller is up to twice as
// fast. They may return up to 50 ms after their context is canceled.
type Store struct {
	engine *engine.Engine
	opts   Options
	multi  multi
	wakes  *wake.Channels
	// evicted are the servers that New has found to evict keys, by address.
	evicted map[string]bool
	index   *redisscript.Index
	// buckets is nil in the layout Full.
	buckets *compact.Layout
}

var (
	_ driver.Store         = (*Store)(nil)
	_ driver.Limiter       = (*Store)(nil)
	_ driver.FinishClaimer = (*Store)(nil)
	_ driver.ForgetCounter = (*Store)(nil)
	_ driver.Waker         = (*Store)(nil)
	_ driver.Resolvable    = (*Store)(nil)
	_ driver.Recycler      = (*Store)(nil)
)

// client is what the store was opened with.
func (s *Store) client() redis.UniversalClient { return s.engine.Guard.Client }

// Limits returns Options.Window, and that results are not kept, in the layout Compact. Full has no
// limits.
func (s *Store) Limits() driver.Limits {
	return driver.Limits{Window: s.opts.Window, NoResults: s.opts.Layout == Compact}
}

// SharesKeys reports whether other is a Store with the same client and prefix: package layered
// refuses to move keys from such a store to itself.
func (s *Store) SharesKeys(other driver.Store) bool {
	o, ok := other.(*Store)
	return ok && s.client() == o.client() && s.opts.Prefix == o.opts.Prefix
}

// Claim implements [driver.Store].
func (s *Store) Claim(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	_, claimed := s.engine.FinishClaim(ctx, nil, reqs)
	return claimed
}

// FinishClaim is Finish and then Claim in one round trip. An ID that is in both may be
// claimed first.
func (s *Store) FinishClaim(ctx context.Context, changes []driver.Finish,
	reqs []driver.ClaimRequest) (ended, claimed []driver.Answer) {
	return s.engine.FinishClaim(ctx, changes, reqs)
}

// Renew implements [driver.Store].
func (s *Store) Renew(ctx context.Context, renewals []driver.Renewal) []driver.Answer {
	return s.engine.Renew(ctx, renewals)
}

// Finish implements [driver.Store].
func (s *Store) Finish(ctx context.Context, changes []driver.Finish) []driver.Answer {
	if tx := s.transactionOf(changes); tx != nil {
		return tx.finish(ctx, &changes[0])
	}
	ended, _ := s.engine.FinishClaim(ctx, changes, nil)
	return ended
}

// Lookup implements [driver.Store].
func (s *Store) Lookup(ctx context.Context, ids []driver.ID) []driver.Answer {
	return s.engine.Lookup(ctx, ids)
}

// Forget implements [driver.Store]. The record that it leaves behind lives for at least 2 ms, so
// that the next claim's fence is larger even at the same instant. A second round trip notifies the
// caches of finished keys; see [Store.Forgets].
func (s *Store) Forget(ctx context.Context, ids []driver.ID, hold time.Duration) []error {
	answers := s.engine.Forget(ctx, ids, hold)
	s.notifyForgets(ctx, answers)
	errs := make([]error, len(answers))
	for i := range answers {
		errs[i] = answers[i].Err
	}
	return errs
}

// Wake implements [driver.Waker] by sharded pub/sub: one SPUBLISH for each key. The channel's name
// is that of the key's record and ":wake".
func (s *Store) Wake(ctx context.Context, ids []driver.ID) error {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = s.wakeName(id)
	}
	return s.wakes.Notify(ctx, names)
}

// Listen implements [driver.Waker]. A connection serves 1,024 keys of one server, with a
// goroutine of its own. It ends a second after its last listener.
func (s *Store) Listen(ctx context.Context, id driver.ID, woken func()) (stop func(), err error) {
	return s.wakes.Listen(ctx, s.wakeName(id), woken)
}

func (s *Store) wakeName(id driver.ID) string { return s.engine.Key(id) + ":wake" }

// Recycle takes back answers that a method has returned: the caller must not look at them any more.
// A [dedup.Deduper] calls it; other callers may, and need not.
func (s *Store) Recycle(answers []driver.Answer) { engine.Recycle(answers) }

// forgetsKey is one key of a deployment. No record has this name: after the prefix, the name of a
// record has braces.
func (s *Store) forgetsKey() string { return s.opts.Prefix + ":forgets" }

// Forgets returns a random number that changes with every Forget that was answered with nil: see
// [driver.ForgetCounter]. Redis keeps it for a month after the newest Forget; when it has expired,
// or was lost with the rest, the next call makes a new one, so that every cache is emptied once.
// It costs one round trip, on a Cluster to one node. The error is like the errors of items that the
// other methods return.
func (s *Store) Forgets(ctx context.Context) (uint64, error) { return s.askForgets(ctx, false) }

// notifyForgets changes the number that Forgets returns, and answers every item that was
// forgotten with an error when that cannot be confirmed: caches would go on answering
// Duplicate for it. Forgetting it again is harmless, and tries again.
func (s *Store) notifyForgets(ctx context.Context, answers []driver.Answer) {
	forgotten := func(a *driver.Answer) bool { return a.Err == nil }
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
	reply, err := s.engine.Ask(ctx, call)
	if err != nil {
		return 0, wire.Wrap("forgets", err)
	}
	number, err := strconv.ParseUint(reply.Record, 10, 64)
	if err != nil {
		return 0, wire.Wrap("forgets", errors.Join(redisscript.ErrUnreadable, err))
	}
	return number, nil
}

// ErrBreakerOpen: the last calls have not reached the server, so this one was not sent.
// It is the error of an item, which is Unknown; asking again later is safe.
var ErrBreakerOpen = wire.ErrBreakerOpen

// Classify names the trouble that an error of a [Store] or of go-redis reports, for metrics and
// alarms. The error may be wrapped. Except after "unreadable", the same call with the same token
// may succeed later, at the latest once somebody has repaired the server. Classify is cheap, and
// safe for concurrent use. It returns:
//
//   - "" for nil.
//   - "context": the caller's context ended first.
//   - "timeout": the server, or a free connection of the pool, took too long.
//   - "network": the connection was refused or reset, or it ended in the middle of a reply. A
//     server at maxclients closes new connections, and its reason is often lost with them.
//   - "loading": the server reads its data set after a start.
//   - "read_only": the server is a replica. A failover is under way, or the client is connected to
//     the wrong server.
//   - "misconf": the server cannot save to disk, and refuses writes because of that.
//   - "full": the server is at maxmemory and refuses new claims. The error is a
//     [driver.ErrStoreFull].
//   - "cluster_down": the Cluster has no majority, or no master serves the slot.
//   - "try_again": the slot is being moved.
//   - "no_replicas": fewer replicas are in sync than min-replicas-to-write asks for.
//   - "master_down": a replica has lost its master and serves nothing.
//   - "moved": the slot is elsewhere (MOVED, ASK), and the client could not follow. For example, it
//     is a client for a single server, and the server is part of a Cluster.
//   - "busy": the server runs a script, or has too many clients.
//   - "denied": the user may not do this (NOAUTH, WRONGPASS, NOPERM). After NOPERM the end of a
//     claim is not sent again.
//   - "unreadable": the key holds no record of a version that this package can read. The error is a
//     [driver.ErrUnreadable].
//   - "amnesia": the server has lost data, and Options.Amnesia is FailClosed, or the second store
//     did not answer. The error is an [ErrAmnesia].
//   - "breaker": nothing was sent, because the last calls did not reach the server. The error is an
//     [ErrBreakerOpen].
//   - "other": any other error.
func Classify(err error) string { return wire.Classify(err) }
