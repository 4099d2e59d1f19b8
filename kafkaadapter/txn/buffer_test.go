package txn

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
)

func sized(offset int64, size int) *sarama.ConsumerMessage {
	return &sarama.ConsumerMessage{Offset: offset, Key: make([]byte, size/2),
		Value: make([]byte, size-size/2)}
}

// A batch is bounded by count and by bytes, and holds one message at least.
func TestBatchBounds(t *testing.T) {
	for _, row := range []struct {
		name  string
		sizes []int
		limit int
		want  int
		full  bool
	}{
		{"nothing", nil, 4, 0, false},
		{"few", []int{10, 10}, 4, 2, false},
		{"count", []int{1, 1, 1, 1, 1}, 4, 4, true},
		{"limit", []int{1, 1, 1, 1, 1}, 2, 2, true},
		{"bytes", []int{60, 40, 1}, 4, 2, true},
		{"bytes, too many", []int{60, 41}, 4, 1, true},
		{"large one alone", []int{500, 1}, 4, 1, true},
		{"large one last", []int{1, 500}, 4, 1, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBuffer(4, 100, func(bool) bool { return true })
			for i, size := range row.sizes {
				b.add(sized(int64(i), size))
			}
			n, full := b.measure(row.limit)
			assert.Equal(t, row.want, n, "messages")
			assert.Equal(t, row.full, full)
		})
	}
}

func TestPausesByBytes(t *testing.T) {
	on := false
	b := newBuffer(100, 100, func(p bool) bool { on = p; return true })
	for i := range 4 {
		b.add(sized(int64(i), 49))
	}
	assert.False(t, on, "paused below twice a batch")
	b.add(sized(4, 49))
	assert.True(t, on, "not paused")
	b.committed(3)
	assert.True(t, on, "resumed with more than half a batch")
	b.committed(4)
	assert.False(t, on, "still paused")
	assert.Equal(t, 49, b.bytes)
}

// Offsets may have gaps, and committed messages are not added again.
func TestCommittedIsDropped(t *testing.T) {
	b := newBuffer(10, 1000, func(bool) bool { return true })
	for _, o := range []int64{3, 7, 20} {
		b.add(sized(o, 1))
	}
	b.committed(8)
	b.committed(-1)
	b.add(sized(7, 1))
	n, _ := b.measure(10)
	assert.True(t, n == 1 && b.head(n)[0].Offset == 20 && b.bytes == 1, "%d left, %d bytes", n,
		b.bytes)
	b.committed(30)
	b.add(sized(29, 1))
	b.add(sized(30, 1))
	n, _ = b.measure(10)
	assert.True(t, n == 1 && b.head(n)[0].Offset == 30, "%d left", n)
}

func TestBatchWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBuffer(3, 1000, func(bool) bool { return true })
		began := time.Now()
		go func() {
			for i := range 5 {
				time.Sleep(6 * time.Second)
				b.add(sized(int64(i), 1))
			}
		}()
		assert.Len(t, b.next(t.Context(), 3, 10*time.Second), 2)
		assert.Equal(t, 16*time.Second, time.Since(began))
		assert.Len(t, b.next(t.Context(), 3, 10*time.Second), 3)
		assert.Equal(t, 18*time.Second, time.Since(began))
		time.Sleep(time.Minute)
	})
}
