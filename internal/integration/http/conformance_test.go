package http_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/onceward/onceward/httpadapter"
)

// clause is a row of the conformance table: what a document says, and a client that finds out.
type clause struct {
	// says is the number of the clause and what it asks for, in our words.
	says string
	cfg  httpadapter.Config
	// window of the keys; default a day.
	window time.Duration
	// refused: no store is asked, so that one is enough.
	refused bool
	// handle makes what answers; nil is site.shop.
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

// TestConformance runs every clause over every store that has a say in it, on a server and by
// requests of its own.
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

// statuses checks what one request is answered with when it is sent again and again.
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
		// A store that has not answered in its time is asked again, as a client does: a window
		// that ends within a test leaves it about a second, and a busy machine can take that.
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
