package retrybench

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/onceward/onceward/retry"
)

// Comeback lets every client of the herd try until it is served. It needs a bubble of
// testing/synctest.
func Comeback(ctx context.Context, c Herd, wait string) (Trace, error) {
	site := &Site{Capacity: c.Capacity, Queue: c.Queue, Outage: Outage{0, c.Down},
		Network: 50 * time.Millisecond}
	site.Open()
	p, fn := c.client(site, wait)
	errs := make([]error, c.Clients)
	var wg sync.WaitGroup
	for i := range c.Clients {
		site.count(&site.wanted)
		wg.Go(func() { _, errs[i] = retry.Do(ctx, p, fn) })
	}
	wg.Wait()
	return site.trace(wait), errors.Join(errs...)
}

// client returns the policy of a client, and its attempt. Package retry has no backoff without
// jitter, so in that case the attempt itself asks for its wait.
func (c Herd) client(site *Site, wait string) (retry.Policy,
	func(context.Context, int) (int, error)) {
	p := retry.Policy{Attempts: 1 << 20, Elapsed: 24 * time.Hour,
		Backoff: retry.Backoff{Base: c.Base, Cap: c.Cap}}
	switch wait {
	case NoJitter:
		p.Backoff = retry.Backoff{Base: 1, Cap: 1}
	case EqualJitter:
		p.Backoff.Jitter = retry.Equal
	case Decorrelated:
		p.Backoff.Jitter = retry.Decorrelated
	}
	return p, func(ctx context.Context, attempt int) (int, error) {
		status, err := site.ask(ctx)
		if err == nil && status != http.StatusOK {
			err = errors.New(http.StatusText(status))
		}
		if err != nil && wait == NoJitter {
			err = retry.After(err, min(c.Cap, c.Base<<min(attempt-1, 20)))
		}
		return status, err
	}
}
