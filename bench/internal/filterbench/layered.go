package filterbench

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/bench/internal/work"
	"github.com/onceward/onceward/bloom"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/layered"
	"github.com/onceward/onceward/redisadapter"
	"github.com/onceward/onceward/sqladapter/sqlstore"
)

// Sides of the layered composition (leases in Redis, records in SQL), and of the filter in front of
// one store (claims in PostgreSQL).
const (
	withFilter    = "onceward layered, Filter"
	withoutFilter = "onceward layered, no Filter"
	withFront     = "onceward, Front"
	withoutFront  = "onceward, no Front"
)

var shares = []int{0, 10, 50, 90}

// oldKeys is how many keys have a record in SQL that Redis has forgotten. Each of them is a
// duplicate once, and is hot from then on. They are enough for ten timings.
func (e *env) oldKeys() int { return max(e.most()/500, 5*batchIDs) }

// layered adds the workload that claims and completes batches, with and without the filter.
func (e *env) layered(all *harness.Groups) {
	for _, share := range shares {
		all.Add("layered", share, fmt.Sprintf("layered, %d %% duplicates", share),
			func(ctx context.Context, s *harness.Setup) {
				s.MaxKeys = max(e.oldKeys()/10, batchIDs)
				composed{withFilter, withoutFilter, e.newLayers}.consume(ctx, s,
					"layered claim + complete", share, batchIDs)
			})
		all.Add("layered lookups", share, fmt.Sprintf("layered, lookups at %d %% duplicates", share),
			func(ctx context.Context, s *harness.Setup) { e.countLookups(ctx, s, share) })
	}
}

// front adds the workloads with one store in PostgreSQL, with and without a filter in front of it.
func (e *env) front(all *harness.Groups) {
	front := composed{withFront, withoutFront, e.newFront}
	for _, share := range []int{0, 50, 90} {
		for _, batch := range []int{1, batchIDs} {
			family := fmt.Sprintf("front, batches of %d", batch)
			all.Add(family, share, fmt.Sprintf("%s, %d %% duplicates", family, share),
				func(ctx context.Context, s *harness.Setup) {
					front.consume(ctx, s, "PostgreSQL, claim + complete", share, batch)
				})
		}
	}
	// All keys are new, and no other process writes.
	all.Add("front, Seen", 0, "front, Seen", func(ctx context.Context, s *harness.Setup) {
		front.compare(ctx, s, func(ctx context.Context, l *layers, keys []string) {
			for _, key := range keys {
				must.Get(l.Seen(ctx, key))
			}
		}).Called("PostgreSQL, Seen of a new key, one writer").Wants(">= 10x")
	})
}

// composed opens one composition of stores with a filter or without it.
type composed struct {
	with, without string
	open          func(ctx context.Context, s *harness.Setup, filter bool) *layers
}

// consume compares the two variants over batches of keys, share percent of which are old.
func (c composed) consume(ctx context.Context, s *harness.Setup, work string, share, batch int) {
	s.Multiple = batch
	name := fmt.Sprintf("%s, batches of %d, %d %% duplicates", work, batch, share)
	c.compare(ctx, s, pass(share, batch)).Called(name).Wants(">= 1x")
	s.Compare(c.without, "").Called(name + ", for comparison")
}

func (c composed) compare(ctx context.Context, s *harness.Setup,
	run func(ctx context.Context, l *layers, keys []string)) *harness.Pair {
	for _, side := range []string{c.with, c.without} {
		l := c.open(ctx, s, side == c.with)
		s.Side(side, func(ctx context.Context, t *harness.Timing) { run(ctx, l, t.Keys) })
	}
	return s.Compare(c.with, c.without)
}

// pass consumes keys after it has replaced a share of them by old ones.
func pass(share, batch int) func(ctx context.Context, l *layers, keys []string) {
	return func(ctx context.Context, l *layers, keys []string) {
		l.mix(keys, share)
		work.InBatches(2, batch, l.Batch(work.Either, nil))(ctx, &harness.Timing{Keys: keys})
	}
}

// countLookups runs one pass over each composition, and counts the lookups in the store of records.
func (e *env) countLookups(ctx context.Context, s *harness.Setup, share int) {
	asked := func(filter bool) float64 { // for 100 keys
		l, keys := e.newLayers(ctx, s, filter), harness.FreshKeys(8*batchIDs)
		before := l.records.lookups.Load()
		pass(share, batchIDs)(ctx, l, keys)
		return 100 * float64(l.records.lookups.Load()-before) / float64(len(keys))
	}
	with, without := asked(true), asked(false)
	name := func(lookups string) string {
		return fmt.Sprintf("layered, %s, %d %% duplicates", lookups, share)
	}
	s.Figure(name("lookups in SQL saved of new keys"), withFilter,
		100*(without-with)/float64(100-share), "%").Wants(">= 99 %")
	s.Figure(name("lookups in SQL for 100 keys"), withFilter, with, "lookups").
		Next(withoutFilter, without)
}

type layers struct {
	*work.Deduper

	records *counted
	old     []string
	used    int
}

// counted is the store of records. It counts lookups, and adds the ids that it has to keep to the
// filter, as Filter.Follow would.
type counted struct {
	*sqlstore.Store
	lookups atomic.Int64
	filter  *bloom.Filter // nil: there is none
}

func (c *counted) Lookup(ctx context.Context, ids []driver.ID) []driver.Answer {
	c.lookups.Add(int64(len(ids)))
	return c.Store.Lookup(ctx, ids)
}

func (c *counted) Finish(ctx context.Context, changes []driver.Finish) []driver.Answer {
	if c.filter != nil {
		for i := range changes {
			c.filter.Add(changes[i].ID)
		}
	}
	return c.Store.Finish(ctx, changes)
}

// newLayers puts Redis and the filter in front of a table with old records.
func (e *env) newLayers(ctx context.Context, s *harness.Setup, filter bool) *layers {
	return e.compose(ctx, s, filter, func(l *layers, name string, feed *bloom.Feed) dedup.Store {
		client := server.NewClient(s, e.redis.Addr, 0, 0)
		o := redisadapter.Options{Prefix: name, Amnesia: redisadapter.FailClosed,
			AmnesiaFor: time.Hour}
		must.Do(redisadapter.Init(ctx, client, o))
		cfg := layered.Config{HotWindow: 6 * time.Hour, LeaseTTL: time.Minute}
		if filter {
			must.Do(feed.Through(time.Now()))
			cfg.Filter = l.records.filter
		}
		hot := must.Get(redisadapter.New(ctx, client, o))
		return must.Get(layered.New(hot, l.records, cfg))
	})
}

// newFront puts only the filter in front of it.
func (e *env) newFront(ctx context.Context, s *harness.Setup, filter bool) *layers {
	return e.compose(ctx, s, filter, func(l *layers, _ string, _ *bloom.Feed) dedup.Store {
		if !filter {
			return l.records.Store
		}
		return must.Get(layered.Front(l.records.Store, l.records.filter))
	})
}

// compose fills a table with old records, and the filter with their ids.
func (e *env) compose(ctx context.Context, s *harness.Setup, filter bool,
	over func(l *layers, name string, feed *bloom.Feed) dedup.Store) *layers {
	name := "layer" + harness.Fresh()[:8]
	db := e.records.Pool(8)
	s.Defer(db.Close)
	records := must.Get(sqlstore.New(db, sqlstore.Options{Dialect: e.records.Dialect, Table: name}))
	s.DeferCtx(records.Drop)
	must.Do(records.Migrate(ctx))
	l := &layers{records: &counted{Store: records}, old: harness.FreshKeys(e.oldKeys())}
	cfg := dedup.Config{Namespace: name, Window: 21 * 24 * time.Hour, LeaseTTL: time.Minute,
		StoreTimeout: 30 * time.Second}
	var feed *bloom.Feed
	if filter {
		l.records.filter, feed = open(options(e.most() / 10))
	}
	fill := work.Open(s, l.records, cfg).Batch(work.New, nil)
	work.InBatches(1, batchIDs, fill)(ctx, &harness.Timing{Keys: l.old})
	l.Deduper = work.Open(s, over(l, name, feed), cfg)
	return l
}

// mix replaces a share of keys by old ones, evenly spread.
func (l *layers) mix(keys []string, share int) {
	for i := range keys {
		if repeats(i, share) {
			keys[i] = l.old[l.used%len(l.old)]
			l.used++
		}
	}
}
