package layered_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/redisadapter"
)

// TestLayers has three processes handle the same messages again and again. Processes die between
// the completions of a key in the two stores, hot windows end, a Redis loses everything, and scans
// stop. Each effect happens once.
func TestLayers(t *testing.T) {
	for _, p := range backends {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			client := p.redis(t)
			require.NoError(t, redisadapter.Init(t.Context(), client, redisadapter.Options{}))
			s := &stream{t: t}
			records := p.open(t)
			for range 3 {
				s.processes = append(s.processes, start(t, client, records, &s.stalled))
			}
			stop := s.run()
			s.until("lookups are saved", func(p *process) bool { return p.saved.Load() > 10 })

			s.stalled.Store(true)
			s.until("the filter is too far behind", func(p *process) bool {
				return p.count("expired") > 10
			})
			saved := s.saved()
			s.until("and stays so", func(p *process) bool { return p.count("expired") > 20 })
			more := s.saved() - saved
			assert.Zero(t, more,
				"%d lookups were saved by filters that are behind", more)
			s.stalled.Store(false)
			s.until("lookups are saved again", func(p *process) bool {
				return p.saved.Load() > saved/3+10
			})

			// An effect that runs while its claim is lost may run twice. Filters have no part in
			// that.
			s.pause.Lock()
			require.NoError(t, client.FlushAll(t.Context()).Err())
			// the newest messages, before a scan has seen them
			for n := len(s.effects) - 1; n >= max(0, len(s.effects)-30); n-- {
				s.deliver(s.processes[n%3], n)
			}
			s.pause.Unlock()
			s.until("the loss is noticed", func(*process) bool {
				return s.total("hot_forgot") > 0
			})
			saved = s.saved()
			s.until("lookups are saved after it", func(p *process) bool {
				return p.saved.Load() > saved/3+10
			})
			stop()
			s.check()
		})
	}
}

// stream is the messages that are delivered.
type stream struct {
	t         *testing.T
	processes []*process
	stalled   atomic.Bool
	pause     sync.RWMutex

	mu      sync.Mutex
	effects []int
	// messages that ran under a lease that may have lapsed, so that another run is allowed
	excused map[int]bool
}

func (s *stream) saved() (n int64) {
	for _, p := range s.processes {
		n += p.saved.Load()
	}
	return n
}

// until waits until every process sees the event.
func (s *stream) until(what string, is func(*process) bool) {
	s.t.Helper()
	deadline := time.After(30 * time.Second)
	for _, p := range s.processes {
		for !is(p) {
			select {
			case <-deadline:
				// the test continues, to show the consequences
				s.t.Errorf("not within half a minute: %s", what)
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
}

// run delivers new messages, and old ones again, until stop is called.
func (s *stream) run() (stop func()) {
	ctx, cancel := context.WithCancel(s.t.Context())
	s.excused = map[int]bool{}
	var workers sync.WaitGroup
	for _, p := range s.processes {
		workers.Go(func() {
			for ctx.Err() == nil {
				s.pause.RLock()
				s.deliver(p, s.next())
				s.pause.RUnlock()
				select {
				case <-ctx.Done():
				case <-time.After(5 * time.Millisecond):
				}
			}
		})
	}
	return func() { cancel(); workers.Wait() }
}

// next returns a new message, a recent one, or any.
func (s *stream) next() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch n := len(s.effects); {
	case n == 0 || rand.IntN(3) == 0:
		s.effects = append(s.effects, 0)
		return n
	case rand.IntN(2) == 0:
		return max(0, n-1-rand.IntN(10))
	default:
		return rand.IntN(n)
	}
}

// deliver delivers a message to one process once. It reports whether to acknowledge it.
func (s *stream) deliver(p *process, n int) bool {
	began := time.Now()
	c, err := p.d.Claim(s.t.Context(), fmt.Sprint(n))
	if err != nil || c.Outcome != dedup.Acquired {
		assert.False(s.t, err == nil && c.Outcome == dedup.Duplicate && s.ran(n, 0) == 0,
			"message %d is lost", n)
		return err == nil && c.Outcome == dedup.Duplicate
	}
	if time.Since(began) > lease/2 { // the machine is too slow for this run to prove anything
		_ = c.Release(context.WithoutCancel(s.t.Context()))
		return false
	}
	s.ran(n, 1)
	err = c.Complete(context.WithoutCancel(s.t.Context()), nil)
	if time.Since(began) > lease*9/10 {
		s.mu.Lock()
		s.excused[n] = true
		s.mu.Unlock()
	}
	return err == nil
}

// ran changes, and returns, the number of runs of a message's effect.
func (s *stream) ran(n, more int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.effects[n] += more
	return s.effects[n]
}

// check delivers everything until it is done, and counts.
func (s *stream) check() {
	for n := range s.effects {
		for try := 0; !s.deliver(s.processes[n%3], n); try++ {
			require.LessOrEqual(s.t, try, 1000, "message %d is not done", n)
			<-time.After(5 * time.Millisecond)
		}
	}
	doubled := 0
	for n, runs := range s.effects {
		assert.NotZero(s.t, runs, "message %d is lost", n)
		if runs > 1 && !s.excused[n] {
			doubled++
			s.t.Errorf("the effect of message %d ran %d times", n, runs)
		}
	}
	asked := int64(0)
	for _, p := range s.processes {
		asked += p.count("maybe")
	}
	s.t.Logf("%d messages, %d doubled, %d under leases that may have lapsed; %d lookups saved, %d maybe, %d behind, %d after the loss",
		len(s.effects), doubled, len(s.excused), s.saved(), asked, s.total("expired"),
		s.total("hot_forgot"))
	assert.GreaterOrEqual(s.t, len(s.effects)-len(s.excused), 20,
		"nothing is shown: the machine is too slow")
	assert.NotZero(s.t, asked, "nothing is shown: the machine is too slow")
}

func (s *stream) total(what string) (n int64) {
	for _, p := range s.processes {
		n += p.count(what)
	}
	return n
}
