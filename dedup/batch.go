package dedup

import (
	"context"
	"slices"
	"time"
)

// storeBatch bounds one call of a store. Redis's throughput per call stops growing at a
// few hundred items, and all of a call has to be answered within Config.StoreTimeout.
const storeBatch = 1024

// inBatches sends items in calls of at most storeBatch, one after the other and each
// within timeout. When ctx ends the rest is answered without being sent.
func inBatches[T any](ctx context.Context, timeout time.Duration,
	items []T, send func(context.Context, []T) []Answer) []Answer {
	if len(items) <= storeBatch && ctx.Err() == nil { // nearly always, and then nothing is copied
		sending, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return answered(send(sending, items), len(items))
	}
	answers := make([]Answer, 0, len(items))
	for part := range slices.Chunk(items, storeBatch) {
		if ctx.Err() != nil {
			answers = append(answers, repeat(Answer{Err: &abandonedError{gone(ctx), true}},
				len(part))...)
			continue
		}
		sending, cancel := context.WithTimeout(ctx, timeout)
		answers = append(answers, answered(send(sending, part), len(part))...)
		cancel()
	}
	return answers
}
