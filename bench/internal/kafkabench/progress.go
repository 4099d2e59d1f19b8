package kafkabench

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// patience is how long a number of messages may take before the run is given up: something
// is stuck then.
const patience = 5 * time.Minute

// progress counts the messages that are finished, and wakes who waits for a number of them.
type progress struct {
	n, target atomic.Int64
	reached   chan struct{} // holds one when the target may have been reached
}

func newProgress() *progress {
	p := &progress{reached: make(chan struct{}, 1)}
	p.target.Store(math.MaxInt64)
	return p
}

// add counts n finished messages; it is safe for concurrent use.
func (p *progress) add(n int) {
	if p.n.Add(int64(n)) < p.target.Load() {
		return
	}
	select {
	case p.reached <- struct{}{}:
	default:
	}
}

// await waits until n messages are finished, or the consumer has failed.
func (p *progress) await(ctx context.Context, n int64, failed <-chan error) error {
	p.target.Store(n)
	defer p.target.Store(math.MaxInt64)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for p.n.Load() < n { // after the target is set: who counts from now on sees it
		select {
		case <-p.reached:
		case err := <-failed:
			return fmt.Errorf("kafkabench: ended early, after %d messages: %w", p.n.Load(), err)
		case <-timer.C:
			return fmt.Errorf("kafkabench: %d of %d messages after %v", p.n.Load(), n, patience)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
