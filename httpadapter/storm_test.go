package httpadapter_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
)

// storm is a handler that at random succeeds, fails, panics, gives up or takes long. It records its
// effects.
type storm struct {
	mu      sync.Mutex
	rnd     *rand.Rand
	calm    bool
	effects map[string]int // successes of each path
	running map[string]int
	twice   []string
}

func (s *storm) draw(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rnd.IntN(n)
}

func (s *storm) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.enter(r.URL.Path, 1)
	defer s.enter(r.URL.Path, -1)
	time.Sleep(time.Duration(s.draw(20_000)) * time.Millisecond) // two leases
	end := s.draw(6)
	s.mu.Lock()
	calm := s.calm
	s.mu.Unlock()
	if calm {
		end = 0
	}
	switch end {
	case 1:
		w.WriteHeader(http.StatusServiceUnavailable)
	case 2:
		panic(http.ErrAbortHandler)
	case 3:
		<-r.Context().Done()
	case 4:
		httpadapter.Forgo(r.Context())
		w.WriteHeader(http.StatusConflict)
	case 5:
		w.WriteHeader(http.StatusCreated)
		s.effect(r.URL.Path)
		panic(http.ErrAbortHandler)
	default:
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprint(w, s.effect(r.URL.Path))
	}
}

func (s *storm) enter(path string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running[path] += n; s.running[path] > 1 {
		s.twice = append(s.twice, path)
	}
}

func (s *storm) effect(path string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.effects[path]++
	return path + strconv.Itoa(s.effects[path])
}

// Whatever handlers and clients do, a key has its effect once, one handler runs at a time, and
// every success that a client gets is the one of that effect.
func TestStorm(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &storm{rnd: rand.New(rand.NewPCG(seed, 1)), effects: map[string]int{},
					running: map[string]int{}}
				d := newDeduper(t, func(c *dedup.Config) {
					if seed%2 == 0 {
						c.Wait = 5 * time.Second
					}
				})
				cfg := httpadapter.Config{Timeout: 30 * time.Second, CancelWithClient: seed%3 == 0}
				h := newMiddleware(t, newClaimed(t, d), byHeader, cfg).Handler(s)
				clients(t, s, h, 40)
				s.mu.Lock()
				s.calm = true
				s.mu.Unlock()
				clients(t, s, h, 0)
				for path, n := range s.effects {
					assert.Equal(t, 1, n, path)
				}
				assert.Empty(t, s.twice, "keys, at the same time")
				assert.Len(t, s.effects, 4)
			})
		})
	}
}

// clients sends n requests to four keys at random times, and hangs up at random. If n is 0, it
// sends one request to each key, which must succeed.
func clients(t *testing.T, s *storm, h http.Handler, n int) {
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			time.Sleep(time.Duration(s.draw(60_000)) * time.Millisecond)
			ctx, hangUp := context.WithTimeout(t.Context(),
				time.Duration(s.draw(40_000))*time.Millisecond)
			defer hangUp()
			ask(ctx, t, h, s.draw(4))
		})
	}
	wg.Wait()
	if n > 0 {
		return
	}
	for key := range 4 {
		assert.True(t, ask(t.Context(), t, h, key), "key %d is not done in the end", key)
	}
}

// ask reports whether the answer is a success. A success must have the value of the first effect.
func ask(ctx context.Context, t *testing.T, h http.Handler, key int) bool {
	defer func() { _ = recover() }()
	path := fmt.Sprintf("/%d/", key)
	w := send(h, post("k", "{}", target(path), with(ctx)))
	switch {
	case w.Code == 201 && w.Body.String() == path+"1":
		return true
	case w.Code == 410:
		return true // its handler panicked after the effect
	case w.Code == 201:
		t.Errorf("%s is told %q", path, w.Body)
	case w.Code < 400, w.Code == 500, strings.Contains(w.Body.String(), "/1"):
		t.Errorf("%s is told %d %q", path, w.Code, w.Body)
	}
	return false
}
