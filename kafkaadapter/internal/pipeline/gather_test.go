package pipeline_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/kafkaadapter/internal/pipeline"
)

// sendings records batches; sending each takes a while.
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
		assert.Equal(t, []int{1, 9}, s.sizes, "batches")
	})
}

// A full batch does not wait for the batch under way, but at most two are sent at a time.
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
		assert.Equal(t, 2, s.atOnce)
		assert.Equal(t, 10, slices.Max(s.sizes), "batches of %v", s.sizes)
		slices.Sort(s.items)
		assert.Equal(t, want, s.items, "what was sent")
	})
}

// Add does not change a batch until send has returned. Then the array of the batch is reused.
func TestGatherLeavesABatchToItsSender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		arrays := map[*int]bool{}
		var sent []int
		var mu sync.Mutex
		g := pipeline.NewGather(10, 2, func(batch []int) {
			before := slices.Clone(batch)
			time.Sleep(time.Second)
			assert.Equal(t, before, batch)
			mu.Lock()
			defer mu.Unlock()
			arrays[&batch[0]] = true
			sent = append(sent, batch...)
		})
		for i := range 200 {
			g.Add(i)
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		slices.Sort(sent)
		assert.Equal(t, 199, sent[len(sent)-1])
		assert.Len(t, slices.Compact(sent), 200, "each once")
		assert.Less(t, len(arrays), 10, "arrays for some twenty batches")
	})
}
