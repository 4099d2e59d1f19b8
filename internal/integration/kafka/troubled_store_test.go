package kafka_test

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/backoff"
)

// trouble is what happens to a call of a store.
type trouble struct {
	refuse error         // instead of the call
	lose   error         // instead of its answers; the call is executed
	delay  time.Duration // before the call
}

// troubledStore passes calls on to a store, with the trouble that set has set.
type troubledStore struct {
	dedup.Store
	mu  sync.Mutex
	now trouble
}

// troubled puts trouble between the members that join from now on and their store.
func (s *scene) troubled() *troubledStore {
	ts := &troubledStore{Store: s.store}
	s.newStore = func() dedup.Store { return ts }
	return ts
}

// set sets the trouble for every call from now on.
func (ts *troubledStore) set(now trouble) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.now = now
}

func (ts *troubledStore) pass(ctx context.Context, n int,
	call func() []driver.Answer) []driver.Answer {
	ts.mu.Lock()
	now := ts.now
	ts.mu.Unlock()
	if now.delay > 0 && backoff.Sleep(ctx, now.delay) != nil {
		return failed(n, context.Cause(ctx))
	}
	if now.refuse != nil {
		return failed(n, now.refuse)
	}
	answers := call()
	if now.lose != nil {
		return failed(n, now.lose)
	}
	return answers
}

func failed(n int, err error) []driver.Answer {
	answers := make([]driver.Answer, n)
	for i := range answers {
		answers[i].Err = err
	}
	return answers
}

func (ts *troubledStore) Claim(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	return ts.pass(ctx, len(reqs), func() []driver.Answer { return ts.Store.Claim(ctx, reqs) })
}

func (ts *troubledStore) Renew(ctx context.Context, renewals []driver.Renewal) []driver.Answer {
	return ts.pass(ctx, len(renewals), func() []driver.Answer {
		return ts.Store.Renew(ctx, renewals)
	})
}

func (ts *troubledStore) Finish(ctx context.Context, changes []driver.Finish) []driver.Answer {
	return ts.pass(ctx, len(changes), func() []driver.Answer {
		return ts.Store.Finish(ctx, changes)
	})
}

var errGone = errors.New("connection refused")
