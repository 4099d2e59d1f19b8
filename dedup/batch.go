package dedup

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/internal/coalesce"
)

// storeBatch bounds one call of a store. Redis's throughput per call stops growing at a
// few hundred items, and all of a call has to be answered within Config.StoreTimeout.
const storeBatch = 1024

// inBatches sends items in calls of at most storeBatch, one after the other and each
// within timeout. When ctx ends the rest is answered without being sent.
func inBatches[T any](ctx context.Context, timeout time.Duration,
	items []T, send func(context.Context, []T) []driver.Answer) []driver.Answer {
	if len(items) <= storeBatch && ctx.Err() == nil { // nearly always, and then nothing is copied
		sending, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return answered(send(sending, items), len(items))
	}
	answers := make([]driver.Answer, 0, len(items))
	for part := range slices.Chunk(items, storeBatch) {
		if ctx.Err() != nil {
			answers = append(answers, repeat(driver.Answer{Err: coalesce.Abandon(ctx, true)},
				len(part))...)
			continue
		}
		sending, cancel := context.WithTimeout(ctx, timeout)
		answers = append(answers, answered(send(sending, part), len(part))...)
		cancel()
	}
	return answers
}

// answered makes a store that breaks its contract harmless: missing answers are Unknown.
func answered(answers []driver.Answer, want int) []driver.Answer {
	if len(answers) == want {
		return answers
	}
	return repeat(driver.Answer{Err: fmt.Errorf("%w: store gave %d answers for %d items", ErrUnknown,
		len(answers), want)}, want)
}

// repeat answers n items alike.
func repeat(ans driver.Answer, n int) []driver.Answer {
	return slices.Repeat([]driver.Answer{ans},
		n)
}

// sendClaims sends a batch to the store directly, under its timeout.
func (d *Deduper) sendClaims(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	return inBatches(ctx, d.cfg.StoreTimeout, reqs, d.store.Claim)
}

func (d *Deduper) sendChanges(ctx context.Context, changes []driver.Finish) []driver.Answer {
	return inBatches(ctx, d.cfg.StoreTimeout, changes, d.store.Finish)
}
