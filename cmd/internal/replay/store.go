package replay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceward/onceward/cmd/internal/keys"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/lease"
	"github.com/onceward/onceward/redisadapter"
)

const (
	// lockTTL is how long the lock of a killed run keeps the next run away.
	lockTTL = 30 * time.Second
	// hold is how long after a key was freed its former owner is kept from writing.
	hold = time.Hour
)

// store is the consumer's store.
type store struct {
	*keys.Opened
	dedup *dedup.Deduper
}

// openStore opens the consumer's Deduper. It writes nothing.
func openStore(ctx context.Context, o *Options) (_ *store, err error) {
	opened, err := o.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			opened.Close()
		}
	}()
	if err := opened.TakeWindow(&o.Window); err != nil {
		return nil, err
	}
	if o.DryRun {
		opened.Store = unchanged{opened.Store}
	}
	d, err := dedup.New(opened.Store, dedup.Config{
		Namespace: o.Namespace, Window: o.Window, Hold: hold, LeaseTTL: min(time.Minute, o.Window),
		SeenOnly: opened.Layout == redisadapter.Compact,
	})
	return &store{opened, d}, err
}

// lock keeps other runs away from the topic. With two runs at once, one run could free a key right
// after the other run's message has succeeded under that key. The returned context ends when the
// lock is lost.
func (s *store) lock(ctx context.Context, o *Options) (context.Context, func(), error) {
	leases, err := lease.New(s.Redis, lease.Options{})
	if err != nil {
		return nil, nil, err
	}
	l, err := leases.Acquire(ctx, "onceward replay "+o.Prefix+" "+o.Namespace+" "+o.Topic,
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
		// also if ctx has ended
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = l.Release(last) // otherwise it lapses
	}, nil
}

// unchanged is a store that a dry run cannot change. Its Forget changes nothing, and returns what
// the store's Forget would return.
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
