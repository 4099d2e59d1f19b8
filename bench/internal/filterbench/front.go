package filterbench

import (
	"context"
	"fmt"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/bench/internal/work"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/layered"
)

// Sides of the filter in front of one store: claims in PostgreSQL.
const (
	withFront    = "onceward, Front"
	withoutFront = "onceward, no Front"
)

// front: one store in PostgreSQL, with and without a filter before it.
func (e *env) front(all *harness.Groups) {
	for _, share := range []int{0, 50, 90} {
		for _, batch := range []int{1, batchIDs} {
			family := fmt.Sprintf("front, batches of %d", batch)
			all.Add(family, share, fmt.Sprintf("%s, %d %% duplicates", family, share),
				func(ctx context.Context, s *harness.Setup) { e.openFront(ctx, s, share, batch) })
		}
	}
	all.Add("front, Seen", 0, "front, Seen", e.openFrontSeen)
}

func (e *env) openFront(ctx context.Context, s *harness.Setup, share, batch int) {
	for _, side := range []string{withFront, withoutFront} {
		l := e.newFront(ctx, s, side == withFront)
		s.Side(side, func(ctx context.Context, t *harness.Timing) {
			l.mix(t.Keys, share)
			work.InBatches(2, batch, l.Batch(work.Either, nil))(ctx, t)
		})
	}
	name := fmt.Sprintf("PostgreSQL, claim + complete, batches of %d, %d %% duplicates", batch,
		share)
	s.Compare(withFront, withoutFront).Called(name).Wants(">= 1x")
	s.Compare(withoutFront, "").Called(name + ", for comparison")
	s.Multiple = batch
}

// openFrontSeen asks for keys that are new, in the one process that writes.
func (e *env) openFrontSeen(ctx context.Context, s *harness.Setup) {
	for _, side := range []string{withFront, withoutFront} {
		l := e.newFront(ctx, s, side == withFront)
		s.Side(side, func(ctx context.Context, t *harness.Timing) {
			for _, key := range t.Keys {
				must.Get(l.Seen(ctx, key))
			}
		})
	}
	s.Compare(withFront, withoutFront).Called("PostgreSQL, Seen of a new key, one writer").
		Wants(">= 10x")
}

// newFront fills a table with old records.
func (e *env) newFront(ctx context.Context, s *harness.Setup, filter bool) *layers {
	name := "front" + harness.Fresh()[:8]
	cfg := dedup.Config{Namespace: name, Window: 21 * 24 * time.Hour, LeaseTTL: time.Minute,
		StoreTimeout: 30 * time.Second}
	var store dedup.Store = openRecords(ctx, s, e.records, name)
	if filter {
		f, feed := open(options(e.most() / 10))
		must.Do(feed.Open(time.Now().Add(time.Hour)))
		store = must.Get(layered.Front(store, f))
	}
	l := &layers{Deduper: work.Open(s, store, cfg), old: harness.FreshKeys(e.oldKeys())}
	work.InBatches(1, batchIDs, l.Batch(work.New, nil))(ctx, &harness.Timing{Keys: l.old})
	return l
}
