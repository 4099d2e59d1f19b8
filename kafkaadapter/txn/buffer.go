package txn

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// buffer holds, in order, the messages of a claim that are received and not yet committed. One
// goroutine adds messages, another one processes them. buffer asks for a pause when it has two
// batches, and ends it when it has half a batch. Messages that were fetched by then still come in.
// If nobody can pause the partition, it must not be read meanwhile.
type buffer struct {
	batchMax, batchBytes int
	pause                func(on bool) (done bool)

	mu      sync.Mutex
	pending []*sarama.ConsumerMessage
	bytes   int
	floor   int64 // everything below it is committed
	paused  bool
	blocked bool          // paused, but nobody could
	added   chan struct{} // has one when something was added
	freed   chan struct{} // has one when a pause has ended
}

func newBuffer(batchMax, batchBytes int, pause func(bool) bool) *buffer {
	return &buffer{batchMax: batchMax, batchBytes: batchBytes, pause: pause,
		added: make(chan struct{}, 1), freed: make(chan struct{}, 1)}
}

func sizeOf(m *sarama.ConsumerMessage) int { return len(m.Key) + len(m.Value) }

// add appends a message, unless it is known to be committed.
func (b *buffer) add(m *sarama.ConsumerMessage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if m.Offset < b.floor {
		return
	}
	b.pending = append(b.pending, m)
	b.bytes += sizeOf(m)
	if !b.paused && (len(b.pending) >= 2*b.batchMax || b.bytes >= 2*b.batchBytes) {
		b.setPaused(true)
	}
	wake(b.added)
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// committed drops the messages below the offset next: they must not be processed again.
func (b *buffer) committed(next int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.floor = max(b.floor, next)
	n := slices.IndexFunc(b.pending, func(m *sarama.ConsumerMessage) bool {
		return m.Offset >= b.floor
	})
	if n < 0 {
		n = len(b.pending)
	}
	for _, m := range b.pending[:n] {
		b.bytes -= sizeOf(m)
	}
	b.pending = slices.Delete(b.pending, 0, n)
	if b.paused && len(b.pending) <= b.batchMax/2 && b.bytes <= b.batchBytes/2 {
		b.setPaused(false)
	}
}

func (b *buffer) setPaused(on bool) {
	b.paused = on
	done := b.pause(on)
	b.blocked = on && !done
	if !on {
		wake(b.freed)
	}
}

// isBlocked reports whether the partition must not be read until freed has a value.
func (b *buffer) isBlocked() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.blocked
}

// resume ends a pause at the end of a claim: otherwise sarama keeps it for the next one.
func (b *buffer) resume() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.paused {
		b.setPaused(false)
	}
}

// measure returns how many messages the next batch of at most limit has, and whether it is full.
func (b *buffer) measure(limit int) (n int, full bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	bytes := 0
	for n < len(b.pending) && n < limit {
		bytes += sizeOf(b.pending[n])
		if n > 0 && bytes > b.batchBytes {
			break
		}
		n++
	}
	return n, n == limit || n < len(b.pending) || bytes >= b.batchBytes
}

// head returns the first n messages.
func (b *buffer) head(n int) []*sarama.ConsumerMessage {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.pending[:n])
}

// next waits for a message, and then up to wait for a full batch. When ctx has ended it returns
// nothing, even if there are messages.
func (b *buffer) next(ctx context.Context, limit int,
	wait time.Duration) []*sarama.ConsumerMessage {
	var late <-chan time.Time
	for ctx.Err() == nil {
		n, full := b.measure(limit)
		if full {
			return b.head(n)
		}
		if n > 0 && late == nil {
			timer := time.NewTimer(wait)
			defer timer.Stop()
			late = timer.C
		}
		select {
		case <-b.added:
		case <-late:
			return b.head(n)
		case <-ctx.Done():
		}
	}
	return nil
}
