package retrybench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"

	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/retry"
)

// Through runs the traffic with one guard. It needs a bubble of testing/synctest.
func Through(ctx context.Context, t Traffic, guard string) (Trace, error) {
	site := &Site{Capacity: t.Capacity, Queue: t.Queue, Outage: t.Outage,
		Network: 20 * time.Millisecond}
	site.Open()
	var wg sync.WaitGroup
	for range t.Processes {
		transport, err := t.transport(site, guard)
		if err != nil {
			return Trace{}, err
		}
		for range t.Clients / t.Processes {
			wg.Go(func() { t.send(ctx, site, transport) })
		}
	}
	wg.Wait()
	return site.trace(guard), nil
}

// send is one client: it sends requests at random times, and does not wait for their answers.
func (t Traffic) send(ctx context.Context, site *Site, transport http.RoundTripper) {
	end := time.Now().Add(t.Length)
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		_ = backoff.Sleep(ctx, time.Duration(rand.ExpFloat64()*float64(t.Every)))
		if !time.Now().Before(end) || ctx.Err() != nil {
			return
		}
		site.count(&site.wanted)
		wg.Go(func() {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://site.test/",
				http.NoBody)
			if err != nil {
				return
			}
			if resp, err := transport.RoundTrip(req); err == nil {
				_ = resp.Body.Close()
			}
		})
	}
}

func (t Traffic) transport(site *Site, guard string) (*retry.Transport, error) {
	cfg := retry.TransportConfig{}
	switch guard {
	case OnlyAttempts:
		cfg.Policy.Budget = retry.Unlimited()
	case WithBudget: // is the default
	case WithBreaker:
		// It opens after this number of failures in a row, lets one request a second through, and
		// closes when one succeeds.
		cfg.Breaker = circuitbreaker.NewBuilder[any]().WithFailureThreshold(
			20).WithSuccessThreshold(1).WithDelay(time.Second).Build()
	default:
		return nil, fmt.Errorf("retrybench: unknown guard %q", guard)
	}
	return retry.NewTransport(site, cfg)
}
