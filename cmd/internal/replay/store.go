package replay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/cmd/internal/server"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/lease"
	"github.com/onceward/onceward/redisadapter"
)

const (
	// lockTTL bounds how long a run that was killed keeps the next one away.
	lockTTL = 30 * time.Second
	// hold is how long an owner from before a key was freed can write nothing.
	hold = time.Hour
)

// store is the consumer's.
type store struct {
	client redis.UniversalClient
	dedup  *dedup.Deduper
}

// openStore opens the Deduper of the consumer. It writes nothing: a prefix that nobody has
// used is refused, for no letter's record can be there.
func openStore(ctx context.Context, o Options) (_ *store, err error) {
	client, err := o.Server.OpenRedis()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = client.Close()
		}
	}()
	defer server.CutOff(ctx, client)()
	if n, err := client.Exists(ctx, o.Store.Prefix+":layout").Result(); err != nil {
		return nil, fmt.Errorf("--redis: %w", o.Server.Unanswered(err))
	} else if n == 0 {
		return nil, fmt.Errorf(
			"--prefix: nobody has kept records under %q in this Redis: it is another prefix, server or database, or this one was emptied", o.Store.Prefix)
	}
	compact := o.Store.Layout == redisadapter.Compact
	if compact {
		o.Store.Window = o.Window
	}
	// The server's health is the consumer's concern.
	o.Store.AllowEviction, o.Store.OnFinding = true, func(preflight.Finding) {}
	opened, err := redisadapter.New(ctx, client, o.Store)
	if err != nil {
		return nil, err
	}
	var s dedup.Store = opened
	if o.DryRun {
		s = unchanged{s}
	}
	d, err := dedup.New(s, dedup.Config{
		Namespace: o.Namespace, Window: o.Window, Hold: hold, LeaseTTL: min(time.Minute, o.Window),
		SeenOnly: compact,
	})
	if err != nil {
		return nil, err
	}
	return &store{client: client, dedup: d}, nil
}

func (s *store) close() { _ = s.client.Close() }

// lock keeps other runs from the topic: of two, one could free a key that the other one's
// message has just succeeded under. The context that it returns ends when it is lost.
func (s *store) lock(ctx context.Context, o Options) (context.Context, func(), error) {
	leases, err := lease.New(s.client, lease.Options{})
	if err != nil {
		return nil, nil, err
	}
	l, err := leases.Acquire(ctx, "onceward replay "+o.Store.Prefix+" "+o.Namespace+" "+o.Topic,
		lockTTL)
	if errors.Is(err, lease.ErrHeld) {
		return nil, nil, fmt.Errorf(
			"--topic: another run is replaying %q, or was killed less than %v ago: %w", o.Topic,
			lockTTL, err)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("--redis: %w", err)
	}
	held, stop := l.KeepAlive(ctx)
	return held, func() {
		stop()
		// also when ctx has ended
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = l.Release(last) // or it lapses
	}, nil
}

// unchanged is a store that a dry run cannot change: it only tells what Forget would say.
type unchanged struct{ dedup.Store }

// Forget implements dedup.Store.
func (u unchanged) Forget(ctx context.Context, ids []driver.ID, _ time.Duration) []error {
	errs := make([]error, len(ids))
	for i, a := range u.Lookup(ctx, ids) {
		errs[i] = a.Err
		if a.Record.State == driver.StateInProgress && a.Record.Remaining > 0 {
			errs[i] = dedup.ErrInFlight
		}
	}
	return errs
}
