package web

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/retry"
)

// Traffic is what [Through] simulates: clients that go on sending, whatever comes back, through an
// outage.
type Traffic struct {
	Clients   int
	Processes int           // that the clients share; each has a transport
	Every     time.Duration // mean time between two requests of a client
	Outage    Outage
	Length    time.Duration
	Capacity  float64
	Queue     float64
}

// TheTraffic is the one that is drawn: a thousand requests a second, half a minute of outage.
var TheTraffic = Traffic{
	Clients: 1000, Processes: 4, Every: time.Second, Outage: Outage{20 * time.Second, 50 * time.Second}, Length: 80 * time.Second,
	Capacity: 1500, Queue: 500,
}

// Names of what holds retries back.
const (
	OnlyAttempts = "three attempts"
	WithBudget   = "with a budget"
	WithBreaker  = "with a budget and a breaker"
)

// Guards are what holds retries back, in the order in which they are drawn.
var Guards = []string{OnlyAttempts, WithBudget, WithBreaker}

// Through runs the traffic under one guard, in a bubble of testing/synctest.
func Through(ctx context.Context, t Traffic, guard string) (Course, error) {
	site := &Site{Capacity: t.Capacity, Queue: t.Queue, Outage: t.Outage, Network: 20 * time.Millisecond}
	site.Open()
	var wg sync.WaitGroup
	for range t.Processes {
		transport, err := t.transport(site, guard)
		if err != nil {
			return Course{}, err
		}
		for range t.Clients / t.Processes {
			wg.Go(func() { t.send(ctx, site, transport) })
		}
	}
	wg.Wait()
	return site.course(guard), nil
}

// send is one client: requests at random times, each on its own.
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
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://site.test/", http.NoBody)
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
		cfg.Breaker = &Breaker{Limit: 20, Delay: time.Second}
	default:
		return nil, fmt.Errorf("web: unknown guard %q", guard)
	}
	return retry.NewTransport(site, cfg)
}

// Breaker is a small circuit breaker: it opens after Limit failures in a row, lets one request
// through every Delay, and closes when one succeeds. It is safe for concurrent use.
type Breaker struct {
	Limit int
	Delay time.Duration

	mu       sync.Mutex
	failures int
	opened   time.Time // or probed last; zero: closed
}

// TryAcquirePermit implements [retry.Breaker].
func (b *Breaker) TryAcquirePermit() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.opened.IsZero() {
		return true
	}
	if time.Since(b.opened) < b.Delay {
		return false
	}
	b.opened = time.Now()
	return true
}

// RecordSuccess implements [retry.Breaker].
func (b *Breaker) RecordSuccess() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures, b.opened = 0, time.Time{}
}

// RecordFailure implements [retry.Breaker].
func (b *Breaker) RecordFailure() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failures++; b.failures >= b.Limit && b.opened.IsZero() {
		b.opened = time.Now()
	}
}
