package demo

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/cmd/internal/demo/stream"
	"github.com/onceward/onceward/cmd/internal/demo/worker"
)

// TestProducerPace: the pace is even until the tail. Then the supervisor decides.
func TestProducerPace(t *testing.T) {
	// 600 messages at 200 a second take 3 s, and 100 of them are the tail
	p := newProducer("", stream.Make(stream.Payments(600, 1), stream.Config{Partitions: 1}), 0)
	for _, test := range []struct {
		name           string
		tail           flow
		next           int
		elapsed, since time.Duration
		want           int
	}{
		{"first", holding, 0, 0, 0, 1},
		{"a third of the time", holding, 1, time.Second, 0, 201},
		{"never back", holding, 300, time.Second, 0, 300},
		{"up to the tail", holding, 300, time.Minute, time.Minute, 500},
		{"held", holding, 500, time.Minute, time.Minute, 500},
		{"too early to drip", dripping, 500, time.Minute, drip - 1, 500},
		{"drip", dripping, 500, time.Minute, drip, 501},
		{"last drip", dripping, 599, time.Minute, drip, 600},
		{"flow", flowing, 500, time.Minute, 0, 600},
		{"flow at the pace", flowing, 500, 2750 * time.Millisecond, 0, 551},
	} {
		p.tail.Store(int32(test.tail))
		got := p.due(test.next, test.elapsed, test.since)
		assert.Equal(t, test.want, got, "%s: %d of 600 due, want %d", test.name, got, test.want)
	}
}

// TestSchedule: the plan has what the demo promises to show: two crashes at each point, and a
// worker that joins and leaves.
func TestSchedule(t *testing.T) {
	for unique, want := range map[int]int{1: 0, 19: 0, 20: 2, 99: 2, 100: 4, 100_000: 4} {
		steps := schedule(unique)
		points := make(map[worker.Point]int)
		extras, last := 0, 0.0
		for _, s := range steps {
			switch s.act {
			case crashing:
				points[s.point]++
			case joining:
				extras++
			case leaving:
				extras--
			}
			assert.Greater(t, s.share, last, "%d ids: step at %v after %v, or in the tail",
				unique, s.share, last)
			assert.LessOrEqual(t, s.share, 5.0/6, "%d ids: step at %v after %v, or in the tail",
				unique, s.share, last)
			last = s.share
		}
		n := points[worker.BeforeEffect] + points[worker.AfterEffect]
		assert.Equal(t, want, n, "%d ids: %d crashes, want %d", unique, n, want)
		assert.Equal(t, points[worker.AfterEffect], points[worker.BeforeEffect],
			"%d ids: crashes %v, %d extra workers stay", unique, points, extras)
		assert.Equal(t, 0, extras, "%d ids: crashes %v, %d extra workers stay", unique, points,
			extras)
	}
}

// TestTail: a worker can be killed at messages of the tail.
func TestTail(t *testing.T) {
	records := stream.Payments(30, 1)
	for name, test := range map[string]struct {
		records []stream.Record
		want    int
	}{
		"none":                  {nil, 0},
		"shorter than its tail": {records[:10], 0},
		"once each":             {records, 15},
		"long":                  {stream.Payments(600, 1), 500},
	} {
		p := newProducer("", stream.Make(test.records, stream.Config{Partitions: 6}), 0)
		assert.Equal(t, test.want, p.tailFrom, "%s: the tail begins at %d, want %d", name,
			p.tailFrom, test.want)
	}
}
