package pipeline_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/kafkaadapter/internal/pipeline"
)

func track(t *testing.T, tr *pipeline.Tracker, offset int64) pipeline.Slot {
	t.Helper()
	slot, err := tr.Track(offset)
	require.NoError(t, err, "Track(%d)", offset)
	return slot
}

func wantWatermark(t *testing.T, tr *pipeline.Tracker, want int64) {
	t.Helper()
	next, moved := tr.Watermark()
	if !moved {
		next = -1
	}
	require.Equal(t, want, next, "watermark")
}

func TestWatermarkIsThePrefixOfWhatWasReceived(t *testing.T) {
	var tr pipeline.Tracker
	wantWatermark(t, &tr, -1)
	// Offsets as they arrive after an aborted transaction and a compaction.
	a, b, c, d := track(t, &tr, 40), track(t, &tr, 43), track(t, &tr, 44), track(t, &tr, 900)
	wantWatermark(t, &tr, -1)
	b.Done()
	d.Done()
	wantWatermark(t, &tr, -1)
	a.Done()
	wantWatermark(t, &tr, 44)
	assert.Equal(t, 2, tr.Len(), "44 is open and holds 900")
	c.Done()
	wantWatermark(t, &tr, 901)
	assert.Zero(t, tr.Len())
}

func TestFirstOffsetMayBeZero(t *testing.T) {
	var tr pipeline.Tracker
	track(t, &tr, 0).Done()
	wantWatermark(t, &tr, 1)
}

func TestDoneCountsOnce(t *testing.T) {
	var tr pipeline.Tracker
	a, b, c := track(t, &tr, 1), track(t, &tr, 2), track(t, &tr, 3)
	for _, slot := range []pipeline.Slot{b, a} { // b is held by a, a is dropped at once
		assert.True(t, slot.Done(), "the first call")
		assert.False(t, slot.Done(), "the second call")
	}
	assert.False(t, b.Done(), "Done reported true for a slot that the watermark has passed")
	wantWatermark(t, &tr, 3)
	p := tr.Progress()
	assert.True(t, p.Unfinished == 1 && p.Oldest == 3, "a repeated Done changed the count: %+v", p)
	c.Done()
	assert.False(t, (pipeline.Slot{}).Done(), "the zero Slot reported that it finished something")
}

func TestDoneOfOneSlotFromManyGoroutines(t *testing.T) {
	var tr pipeline.Tracker
	var wg sync.WaitGroup
	var mu sync.Mutex
	finished := 0
	for offset := range int64(200) {
		slot := track(t, &tr, offset)
		for range 3 {
			wg.Go(func() {
				if slot.Done() {
					mu.Lock()
					finished++
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	assert.Equal(t, 200, finished, "calls that finished a slot")
	wantWatermark(t, &tr, 200)
}

func TestOffsetsThatGoBackAreRefused(t *testing.T) {
	for _, row := range []struct {
		name   string
		offset int64
		want   error
	}{
		{"the same again", 7, pipeline.ErrOffsetOrder},
		{"below the last", 6, pipeline.ErrOffsetOrder},
		{"from the start", 0, pipeline.ErrOffsetOrder},
		{"negative", -1, pipeline.ErrOffsetRange},
		{"without a successor", math.MaxInt64, pipeline.ErrOffsetRange},
	} {
		t.Run(row.name, func(t *testing.T) {
			var tr pipeline.Tracker
			first := track(t, &tr, 5)
			track(t, &tr, 7).Done()
			slot, err := tr.Track(row.offset)
			require.ErrorIs(t, err, row.want)
			require.Zero(t, slot)
			first.Done()
			wantWatermark(t, &tr, 8)
			// Nothing is held any more, and the last offset is still remembered.
			_, err = tr.Track(row.offset)
			assert.ErrorIs(t, err, row.want, "when all is finished")
			track(t, &tr, 8).Done()
			wantWatermark(t, &tr, 9)
		})
	}
}

func TestFirstOffsetOutOfRange(t *testing.T) {
	var tr pipeline.Tracker
	_, err := tr.Track(-5)
	assert.ErrorIs(t, err, pipeline.ErrOffsetRange)
	untouched := pipeline.Progress{Received: -1, Watermark: -1, Oldest: -1}
	assert.Equal(t, untouched, tr.Progress(), "a refused offset left a trace")
}

func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tr pipeline.Tracker
		want := func(want pipeline.Progress) {
			t.Helper()
			assert.Equal(t, want, tr.Progress())
		}
		want(pipeline.Progress{Received: -1, Watermark: -1, Oldest: -1})
		a := track(t, &tr, 10)
		time.Sleep(time.Second)
		b := track(t, &tr, 20)
		c := track(t, &tr, 30)
		time.Sleep(time.Minute)
		want(pipeline.Progress{Received: 30, Watermark: -1, Held: 3, Unfinished: 3, Oldest: 10,
			Age: 61 * time.Second})
		b.Done()
		want(pipeline.Progress{Received: 30, Watermark: -1, Held: 3, Unfinished: 2, Oldest: 10,
			Age: 61 * time.Second})
		a.Done()
		want(pipeline.Progress{Received: 30, Watermark: 21, Held: 1, Unfinished: 1, Oldest: 30,
			Age: time.Minute})
		c.Done()
		want(pipeline.Progress{Received: 30, Watermark: 31, Oldest: -1})
	})
}

// watermarker is what the random walk needs of a tracker; the naive one is a slice.
type watermarker interface {
	track(offset int64) (id int, err error)
	done(id int) bool
	watermark() (int64, bool)
	len() int
}

type realTracker struct {
	pipeline.Tracker
	slots []pipeline.Slot
}

func (r *realTracker) track(offset int64) (int, error) {
	slot, err := r.Track(offset)
	if err != nil {
		return 0, err
	}
	r.slots = append(r.slots, slot)
	return len(r.slots) - 1, nil
}
func (r *realTracker) done(id int) bool         { return r.slots[id].Done() }
func (r *realTracker) watermark() (int64, bool) { return r.Watermark() }
func (r *realTracker) len() int                 { return r.Len() }

// naiveTracker never forgets anything and looks at all of it every time.
type naiveTracker struct {
	offsets  []int64
	finished []bool
	// skipsGaps plants the bug that loses messages: the watermark is taken from the
	// last finished offset, whatever is still open below it.
	skipsGaps bool
}

func (n *naiveTracker) track(offset int64) (int, error) {
	if offset < 0 {
		return 0, pipeline.ErrOffsetRange
	}
	for _, o := range n.offsets {
		if offset <= o {
			return 0, pipeline.ErrOffsetOrder
		}
	}
	n.offsets, n.finished = append(n.offsets, offset), append(n.finished, false)
	return len(n.offsets) - 1, nil
}

func (n *naiveTracker) done(id int) bool {
	first := !n.finished[id]
	n.finished[id] = true
	return first
}

func (n *naiveTracker) prefix() int {
	prefix := 0
	for i, done := range n.finished {
		if done && (prefix == i || n.skipsGaps) {
			prefix = i + 1
		}
	}
	return prefix
}

func (n *naiveTracker) watermark() (int64, bool) {
	if prefix := n.prefix(); prefix > 0 {
		return n.offsets[prefix-1] + 1, true
	}
	return 0, false
}

func (n *naiveTracker) len() int { return len(n.offsets) - n.prefix() }

// walk drives both with the same random steps and returns the first difference.
func walk(seed uint64, got, want watermarker) error {
	rnd := rand.New(rand.NewPCG(seed, 0))
	offset, tracked := int64(rnd.IntN(100)), 0
	grow := 1 + rnd.IntN(9) // how many of ten steps receive
	for range 400 {
		if rnd.IntN(10) < grow {
			o := offset
			if rnd.IntN(20) == 0 {
				o -= int64(rnd.IntN(30)) // goes back, or repeats
			}
			_, e1 := got.track(o)
			_, e2 := want.track(o)
			if (e1 == nil) != (e2 == nil) {
				return errors.New("one of them refused an offset")
			}
			if e1 == nil {
				tracked++
				offset = o + 1 + int64(rnd.IntN(2)*rnd.IntN(50))
			}
		} else if tracked > 0 {
			id := rnd.IntN(tracked)
			if rnd.IntN(2) == 0 {
				id = max(0, tracked-1-rnd.IntN(12))
			}
			if got.done(id) != want.done(id) {
				return errors.New("one of them finished a slot twice")
			}
		}
		w1, ok1 := got.watermark()
		w2, ok2 := want.watermark()
		if w1 != w2 || ok1 != ok2 {
			return errors.New("the watermarks differ")
		}
		if got.len() != want.len() {
			return errors.New("the lengths differ")
		}
	}
	return nil
}

func TestTrackerWalksLikeTheModel(t *testing.T) {
	for seed := range uint64(300) {
		require.NoError(t, walk(seed, &realTracker{}, &naiveTracker{}), "seed %d", seed)
	}
}

// The walk must be able to see the bug that it is there for.
func TestTrackerWalkCatchesASkippedGap(t *testing.T) {
	for seed := range uint64(20) {
		assert.Error(t, walk(seed, &naiveTracker{skipsGaps: true}, &naiveTracker{}),
			"seed %d: a tracker that skips gaps passed", seed)
	}
}

func TestTrackerUnderConcurrency(t *testing.T) {
	const messages, workers = 20000, 8
	var tr pipeline.Tracker
	slots := make(chan pipeline.Slot, 256)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			last := int64(0)
			for slot := range slots {
				slot.Done()
				next, _ := tr.Watermark()
				if !assert.GreaterOrEqual(t, next, last, "the watermark went back") {
					return
				}
				last = next
			}
		})
	}
	for i := range int64(messages) {
		slots <- track(t, &tr, 3*i)
	}
	close(slots)
	wg.Wait()
	wantWatermark(t, &tr, 3*(messages-1)+1)
	assert.Zero(t, tr.Len(), "slots that are held after all finished")
}

// BenchmarkTracker tracks and finishes one message per iteration with a given number
// in flight, oldest first, or a stuck oldest one.
func BenchmarkTracker(b *testing.B) {
	for _, bench := range []struct {
		name     string
		inFlight int
		stuck    bool
	}{
		{"inflight=1", 1, false},
		{"inflight=1024", 1024, false},
		{"inflight=65536", 65536, false},
		{"stuck", 1024, true},
	} {
		b.Run(bench.name, func(b *testing.B) {
			var tr pipeline.Tracker
			slots := make([]pipeline.Slot, bench.inFlight)
			offset := int64(0)
			var stuck pipeline.Slot
			if bench.stuck {
				stuck, _ = tr.Track(offset)
				offset++
			}
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				slots[i].Done()
				slots[i], _ = tr.Track(offset)
				offset++
				i = (i + 1) % len(slots)
			}
			stuck.Done()
		})
	}
}

// Offsets that were received together are tracked together, all or none, and finished together.
func TestTrackAllAndFinishAll(t *testing.T) {
	var tr pipeline.Tracker
	offsets := []int64{3, 4, 9}
	at := func(i int) int64 { return offsets[i] }
	first, err := tr.TrackAll(len(offsets), at)
	require.NoError(t, err)
	for _, bad := range [][]int64{{10, 11, 11}, {10, 9}, {9}, {10, -1}, {10, math.MaxInt64}} {
		_, err := tr.TrackAll(len(bad), func(i int) int64 { return bad[i] })
		require.Error(t, err, "%v", bad)
		assert.Equal(t, 3, tr.Len(), "%v", bad)
		assert.Equal(t, int64(9), tr.Progress().Received, "%v", bad)
	}
	var other pipeline.Tracker
	foreign, err := other.Track(1)
	require.NoError(t, err)
	slots := []pipeline.Slot{first, foreign, first.Plus(2), first, {}}
	assert.Equal(t, 2, tr.FinishAll(len(slots), func(i int) pipeline.Slot { return slots[i] }))
	next, moved := tr.Watermark()
	assert.Equal(t, int64(4), next)
	assert.True(t, moved)
	assert.True(t, first.Plus(1).Done())
	next, _ = tr.Watermark()
	assert.Equal(t, int64(10), next)
	assert.Zero(t, tr.Progress().Unfinished)
}
