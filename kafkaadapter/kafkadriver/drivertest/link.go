package drivertest

import (
	"context"
	"errors"
	"sync"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

var errCut = errors.New("cut")

// link is a member's way to the store.
type link struct {
	dedup.Store
	mu      sync.RWMutex
	down    bool
	refused int                   // ends that did not reach the store
	before  func([]driver.Finish) // ends reach it
}

func (l *link) set(down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = down
}

// lost returns how many completions did not reach the store.
func (l *link) lost() int {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.refused
}

// through calls the store if it can be reached; the link cannot be cut before that returns.
func through[T any](l *link, items []T, call func() []driver.Answer) []driver.Answer {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if !l.down {
		return call()
	}
	answers := make([]driver.Answer, len(items))
	for i := range answers {
		answers[i].Err = errCut
	}
	return answers
}

// Claim implements [dedup.Store].
func (l *link) Claim(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	return through(l, reqs, func() []driver.Answer { return l.Store.Claim(ctx, reqs) })
}

// Renew implements [dedup.Store].
func (l *link) Renew(ctx context.Context, renewals []driver.Renewal) []driver.Answer {
	return through(l, renewals, func() []driver.Answer { return l.Store.Renew(ctx, renewals) })
}

// Finish implements [dedup.Store].
func (l *link) Finish(ctx context.Context, changes []driver.Finish) []driver.Answer {
	if l.before != nil {
		l.before(changes)
	}
	l.mu.Lock()
	if l.down {
		l.refused += len(changes)
	}
	l.mu.Unlock()
	return through(l, changes, func() []driver.Answer { return l.Store.Finish(ctx, changes) })
}
