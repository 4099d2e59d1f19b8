package filterbench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/bench/internal/work"
	"github.com/onceward/onceward/bloom"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/layered"
	"github.com/onceward/onceward/redisadapter"
	"github.com/onceward/onceward/sqladapter"
)

// Sides of the layered composition: leases in Redis, records in SQL.
const (
	withFilter    = "onceward layered, Filter"
	withoutFilter = "onceward layered, no Filter"
)

var shares = []int{0, 10, 50, 90}

// oldKeys is how many keys have a record in SQL that Redis has forgotten: each of them is a
// duplicate once, and hot from then on. There are enough for a count of lookups, and for ten
// timings.
func (e *env) oldKeys() int { return max(e.most()/500, 5*batchIDs) }

// layered: claim and completion of a batch with and without the filter.
func (e *env) layered(all *harness.Groups) {
	for _, share := range shares {
		all.Add("layered", share, fmt.Sprintf("layered, %d %% duplicates", share),
			func(ctx context.Context, s *harness.Setup) { e.openLayered(ctx, s, share) })
		all.Add("layered lookups", share, fmt.Sprintf("layered, lookups at %d %% duplicates", share),
			func(ctx context.Context, s *harness.Setup) { e.countLookups(ctx, s, share) })
	}
}

func (e *env) openLayered(ctx context.Context, s *harness.Setup, share int) {
	for _, side := range []string{withFilter, withoutFilter} {
		l := e.newLayers(ctx, s, side == withFilter)
		s.Side(side, func(ctx context.Context, t *harness.Timing) { l.pass(ctx, t.Keys, share) })
	}
	name := fmt.Sprintf("layered claim + complete, batches of %d, %d %% duplicates",
		batchIDs, share)
	s.Compare(withFilter, withoutFilter).Called(name).Wants(">= 1x")
	s.Compare(withoutFilter, "").Called(name + ", for comparison")
	s.Multiple, s.MaxKeys = batchIDs, max(e.oldKeys()/10, batchIDs)
}

// countLookups runs one pass over each and counts what the store of records is asked.
func (e *env) countLookups(ctx context.Context, s *harness.Setup, share int) {
	asked := func(filter bool) float64 { // for 100 keys
		l, keys := e.newLayers(ctx, s, filter), harness.FreshKeys(8*batchIDs)
		before := l.records.lookups.Load()
		l.pass(ctx, keys, share)
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

// counted is the store of records; its lookups are counted, and the ids that it is to keep are
// added to the filter, as Filter.Follow would.
type counted struct {
	*sqladapter.Store
	lookups atomic.Int64
	filter  *bloom.Filter // nil: nobody is told
}

func (c *counted) Lookup(ctx context.Context, ids []dedup.ID) []dedup.Answer {
	c.lookups.Add(int64(len(ids)))
	return c.Store.Lookup(ctx, ids)
}

func (c *counted) Finish(ctx context.Context, changes []dedup.Finish) []dedup.Answer {
	if c.filter != nil {
		for i := range changes {
			c.filter.Add(changes[i].ID)
		}
	}
	return c.Store.Finish(ctx, changes)
}

// newLayers fills a table with old records, and puts Redis and the filter in front of it.
func (e *env) newLayers(ctx context.Context, s *harness.Setup, filter bool) *layers {
	name := "layer" + harness.Fresh()[:8]
	l := &layers{records: &counted{Store: openRecords(ctx, s, e.records, name)}}
	cfg := dedup.Config{Namespace: name, Window: 21 * 24 * time.Hour, LeaseTTL: time.Minute,
		StoreTimeout: 30 * time.Second}
	if filter {
		f, feed := open(options(e.most() / 10))
		must.Do(feed.Through(time.Now()))
		l.records.filter = f
	}
	// Records that Redis knows nothing of.
	l.old = harness.FreshKeys(e.oldKeys())
	old := work.Open(s, l.records, cfg)
	work.InBatches(1, batchIDs, old.Batch(work.New, nil))(ctx, &harness.Timing{Keys: l.old})

	client := server.NewClient(s, e.redis.Addr, 0, 0)
	o := redisadapter.Options{Prefix: name, Amnesia: redisadapter.FailClosed, AmnesiaFor: time.Hour}
	must.Do(redisadapter.Init(ctx, client, o))
	layers := layered.Config{HotWindow: 6 * time.Hour, LeaseTTL: cfg.LeaseTTL}
	if filter {
		layers.Filter = l.records.filter
	}
	store := must.Get(layered.New(must.Get(redisadapter.New(ctx, client, o)), l.records, layers))
	l.Deduper = work.Open(s, store, cfg)
	return l
}

func openRecords(ctx context.Context, s *harness.Setup, records *server.Database,
	table string) *sqladapter.Store {
	db := records.Pool(8)
	s.Defer(func() error {
		ctx := context.WithoutCancel(ctx)
		_, kept := db.ExecContext(ctx, "DROP TABLE IF EXISTS "+table)
		_, forgets := db.ExecContext(ctx, "DROP TABLE IF EXISTS "+table+"_forgets")
		return errors.Join(kept, forgets, db.Close())
	})
	store := must.Get(sqladapter.NewStore(db,
		sqladapter.StoreConfig{Dialect: records.Dialect, Table: table}))
	must.Do(store.Migrate(ctx))
	return store
}

// pass consumes keys of which a share is replaced by old ones.
func (l *layers) pass(ctx context.Context, keys []string, share int) {
	l.mix(keys, share)
	work.InBatches(2, batchIDs, l.Batch(work.Either, nil))(ctx, &harness.Timing{Keys: keys})
}

// mix puts old keys into a share of these, evenly spread.
func (l *layers) mix(keys []string, share int) {
	for i := range keys {
		if repeats(i, share) {
			keys[i] = l.old[l.used%len(l.old)]
			l.used++
		}
	}
}
