package http_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/onceward/onceward/httpadapter"
)

// clause is a row of the conformance table: what a document says, and a client that checks it.
type clause struct {
	// says is the number of the clause and what it asks for, in our words.
	says string
	cfg  httpadapter.Config
	// window of the keys; default a day.
	window time.Duration
	// refused clauses ask no store, so that one store is enough.
	refused bool
	// handle makes the handler; nil is site.shop.
	handle func(s *site) http.HandlerFunc
	check  func(s *site)
}

// holding has the handler wait.
func holding(s *site) http.HandlerFunc { return s.holding }

// answering has every run answer with the next of these statuses, and book nothing.
func answering(statuses ...int) func(s *site) http.HandlerFunc {
	return func(s *site) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			run := int(s.runs.Load())
			w.WriteHeader(statuses[run-1])
			_, _ = fmt.Fprintf(w, "answer %d", run)
		}
	}
}

// TestConformance runs every clause over every store that matters for it, each on a server of its
// own and with requests of its own.
func TestConformance(t *testing.T) {
	each(t, backends, func(t *testing.T, b backend) {
		p := b.open(t, day, lease)
		for i, c := range append(append(draft(), stripeV1()...), stripeV2(p.Atomic)...) {
			if c.refused && b.name != memory.name {
				continue
			}
			t.Run(c.says, func(t *testing.T) {
				p := p
				if c.window != 0 {
					t.Parallel() // it waits
					p = b.open(t, c.window, min(lease, c.window))
				}
				c.check(newSite(t, p, fmt.Sprintf("clause %d", i), c.cfg, c.handle))
			})
		}
	})
}

// statuses checks the statuses of the answers when one request is sent again and again.
func (s *site) statuses(want ...int) []answer {
	s.Helper()
	all := make([]answer, len(want))
	for i, status := range want {
		if all[i] = s.send(order(key(`"k"`))); all[i].status != status {
			s.Errorf("answer %d: %d %q, want %d", i+1, all[i].status, all[i].body, status)
		}
	}
	return all
}

// inFlight sends order while another one with its key is being handled, and returns the answers to
// both.
func (s *site) inFlight(o request) (first, second answer) {
	s.Helper()
	answered := make(chan answer, 1)
	go func() {
		a, err := exchange(s.server.Listener.Addr().String(), o)
		if err != nil {
			s.Error(err)
		}
		answered <- a
	}()
	<-s.begun
	second = s.send(o)
	close(s.release)
	return <-answered, second
}

// again sends the same request until the answer is not a replay: its key has expired.
func (s *site) again(o request) answer {
	s.Helper()
	deadline := time.After(time.Minute)
	for {
		if err := s.fixture.expire(s.Context()); err != nil {
			s.Fatal(err)
		}
		// A request that a store did not answer in time is sent again, as a client does. A window
		// that ends within a test leaves the store about a second, which may be too little on a
		// busy machine.
		a := s.send(o)
		if a.header.Get("Idempotent-Replayed") == "" && a.status != http.StatusServiceUnavailable {
			return a
		}
		select {
		case <-deadline:
			s.Fatal("the key has not expired within a minute")
		case <-time.After(20 * time.Millisecond):
		}
	}
}
