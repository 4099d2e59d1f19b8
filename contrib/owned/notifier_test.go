package owned

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redistest"
)

// TestAFilterHookMayCallBack: events of a filter occur while a batch keeps a release waiting, while
// a partition is acquired again, and in work that a release waits for. A hook that called back then
// used to wait for itself.
func TestAFilterHookMayCallBack(t *testing.T) {
	for name, trigger := range map[string]func(t *testing.T, s *Store, o *Ownership){
		"a claim that rotates the filter": func(t *testing.T, s *Store, o *Ownership) {
			o.mu.Lock()
			o.gen++
			o.mu.Unlock()
			assert.NoError(t, s.Claim(t.Context(), []driver.ClaimRequest{request(1)})[0].Err)
		},
		"a partition that is lost": func(_ *testing.T, _ *Store, o *Ownership) {
			o.staleIn(o.self().Epoch)
		},
		"beside, as once a minute": func(_ *testing.T, _ *Store, o *Ownership) {
			o.alongside(func() { o.notifyState(0, 0, "", nil) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := redistest.Open(t, "miniredis")
			opts := storyOptions()
			opts.Prefix = b.Prefix
			var hook func()
			var mu sync.Mutex
			opts.Observer.FilterState = func(dedup.Event) {
				mu.Lock()
				call := hook
				hook = nil
				mu.Unlock()
				if call != nil {
					call()
				}
			}
			s := open(t, b, opts)
			o := ready(t, s, only)
			told := make(chan struct{})
			mu.Lock()
			hook = func() {
				defer close(told)
				o.again.Lock()
				o.again.Unlock() //nolint:staticcheck // nobody has it who waits for the hook
				_ = o.Stats()
				_ = s.Claim(t.Context(), []driver.ClaimRequest{request(2)})
				must(t, o.Release(t.Context()))
			}
			mu.Unlock()
			go trigger(t, s, o)
			select {
			case <-told:
			case <-time.After(20 * time.Second):
				t.Fatal("the hook waits for itself")
			}
			must(t, s.Close(t.Context()))
		})
	}
}

// TestCloseWaitsForTheObserver: no hook is called after Close. Close waits for a hook that hangs
// until the context of Close ends.
func TestCloseWaitsForTheObserver(t *testing.T) {
	b := redistest.Open(t, "miniredis")
	opts := storyOptions()
	opts.Prefix = b.Prefix
	entered, leave := make(chan struct{}), make(chan struct{})
	var once sync.Once
	opts.Observer.FilterState = func(dedup.Event) {
		once.Do(func() { close(entered) })
		<-leave
	}
	s := open(t, b, opts)
	ready(t, s, only)
	<-entered
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	// It returns.
	assert.ErrorIs(t, s.Close(ended), context.Canceled, "Close, while the observer hangs")
	for range 3 * untold { // more than are kept
		s.notifier.notify(dedup.Event{})
	}
	s.notifier.mu.Lock()
	assert.Equal(t, untold, len(s.notifier.events))
	s.notifier.mu.Unlock()
	close(leave)
	must(t, s.Close(t.Context()))
	s.notifier.mu.Lock()
	defer s.notifier.mu.Unlock()
	assert.Empty(t, s.notifier.events, "the Store is closed, and there is something to tell")
	assert.Nil(t, s.notifier.over)
}
