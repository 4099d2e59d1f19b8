package retrybench

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/onceward/onceward/internal/backoff"
)

// Site is the model of a server. It serves Capacity requests a second, keeps Queue of them waiting,
// and answers 503 to more. While it is down it refuses connections. It is an [http.RoundTripper],
// safe for concurrent use.
type Site struct {
	Capacity, Queue float64
	Outage          Outage
	// Network is the longest time to the site; a request takes from a tenth of it to all of it.
	Network time.Duration

	start   time.Time
	mu      sync.Mutex
	load    []int // requests that arrived, by slot
	served  []int
	wanted  []int   // requests that clients began
	waiting float64 // in the queue at the time of last
	last    time.Time
}

// ErrDown is the error of a connection to a site that is down.
var ErrDown = errors.New("retrybench: connection refused")

// Open starts the site's clock.
func (s *Site) Open() { s.start = time.Now(); s.last = s.start }

// RoundTrip implements [http.RoundTripper].
func (s *Site) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		defer func() { _ = req.Body.Close() }()
	}
	status, err := s.ask(req.Context())
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Proto: "HTTP/1.1", ProtoMajor: 1,
		ProtoMinor: 1, Header: make(http.Header), Body: http.NoBody, Request: req,
	}, nil
}

// ask makes one request, and returns 200, 503, or an error.
func (s *Site) ask(ctx context.Context) (int, error) {
	if err := backoff.Sleep(ctx, s.Network/10+rand.N(s.Network*9/10)); err != nil {
		return 0, err
	}
	wait, status := s.admit()
	if status == 0 {
		return 0, ErrDown
	}
	if err := backoff.Sleep(ctx, wait); err != nil {
		return 0, err
	}
	if status == http.StatusOK {
		s.count(&s.served)
	}
	return status, nil
}

// admit counts a request and puts it into the queue. The status is 0 while the site is down.
func (s *Site) admit() (time.Duration, int) {
	s.count(&s.load)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if at := now.Sub(s.start); at >= s.Outage.From && at < s.Outage.To {
		s.waiting, s.last = 0, now
		return 0, 0
	}
	s.waiting = max(0, s.waiting-s.Capacity*now.Sub(s.last).Seconds())
	s.last = now
	if s.waiting+1 > s.Queue {
		return 0, http.StatusServiceUnavailable
	}
	s.waiting++
	return time.Duration(s.waiting / s.Capacity * float64(time.Second)), http.StatusOK
}

func (s *Site) count(slots *[]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := int(time.Since(s.start) / Slot)
	for len(*slots) <= i {
		*slots = append(*slots, 0)
	}
	(*slots)[i]++
}

// trace returns the course of a simulation with this site.
func (s *Site) trace(name string) Trace {
	return Trace{Name: name, Load: s.load, Served: s.served, Wanted: s.wanted,
		Requests: total(s.wanted), Outage: s.Outage}
}
