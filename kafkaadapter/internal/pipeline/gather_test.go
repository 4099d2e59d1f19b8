package pipeline_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceward/onceward/kafkaadapter/internal/pipeline"
)

// sendings notes batches that each take a while.
type sendings struct {
	mu      sync.Mutex
	sizes   []int
	items   []int
	now     int
	atOnce  int
	lasting time.Duration
}

func (s *sendings) send(batch []int) {
	s.mu.Lock()
	s.sizes, s.items = append(s.sizes, len(batch)), append(s.items, batch...)
	s.now++
	s.atOnce = max(s.atOnce, s.now)
	s.mu.Unlock()
	time.Sleep(s.lasting)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now--
}

func TestGatherSendsTheFirstAtOnceAndTheCrowdTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sendings{lasting: time.Second}
		g := pipeline.NewGather(10, 2, s.send)
		g.Add(0)
		synctest.Wait()
		for i := range 9 {
			g.Add(i + 1)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if want := []int{1, 9}; !slices.Equal(s.sizes, want) {
			t.Errorf("batches of %v, want %v", s.sizes, want)
		}
	})
}

// A full batch does not wait for the one under way, and no more than senders do.
func TestGatherBoundsSenders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sendings{lasting: time.Second}
		g := pipeline.NewGather(10, 2, s.send)
		var want []int
		for i := range 95 {
			g.Add(i)
			want = append(want, i)
		}
		time.Sleep(time.Minute)
		synctest.Wait() // a goroutine that stays would be a deadlock at the end of the bubble
		if s.atOnce != 2 || slices.Max(s.sizes) != 10 {
			t.Errorf("%d at once in batches of %v, want 2 and at most 10", s.atOnce, s.sizes)
		}
		if slices.Sort(s.items); !slices.Equal(s.items, want) {
			t.Errorf("sent %v", s.items)
		}
	})
}
