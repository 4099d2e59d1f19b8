package filterbench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/bench/internal/work"
	"github.com/onceward/onceward/bloom"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/redisadapter"
	"github.com/onceward/onceward/sqladapter"
)

// Sides of the layered composition: leases in Redis, records in SQL.
const (
	withFilter    = "onceward layered, Filter"
	withoutFilter = "onceward layered, no Filter"
)

// shares of duplicates, in per cent.
var shares = []int{0, 10, 50, 90}

// oldKeys is how many keys have a record in SQL that Redis has forgotten: each of them is a
// duplicate once, and hot from then on. There are enough for a count of lookups, and for ten
// timings.
func (e *env) oldKeys() int { return max(e.most()/500, 5*batchIDs) }

// layered: claim and completion of a batch with and without the filter.
func (e *env) layered() []harness.Group {
	if e.redis == nil || e.records == nil {
		return nil
	}
	var all []harness.Group
	for _, share := range shares {
		all = append(all, harness.Group{
			Workload: "layered", X: float64(share),
			Title: fmt.Sprintf("layered, %d %% duplicates", share),
			Open: func(ctx context.Context, s *harness.Setup) error {
				return e.openLayered(ctx, s, share)
			},
		}, group("layered lookups", float64(share),
			fmt.Sprintf("layered, lookups at %d %% duplicates", share),
			func(ctx context.Context) ([]harness.Row, error) {
				return e.countLookups(ctx, share)
			}))
	}
	return all
}

func (e *env) openLayered(ctx context.Context, s *harness.Setup, share int) error {
	for _, side := range []string{withFilter, withoutFilter} {
		l, err := e.newLayers(ctx, s, side == withFilter)
		if err != nil {
			return err
		}
		run := work.InBatches(2, batchIDs, l.Batch(work.Either, nil))
		s.Side(side, func(ctx context.Context, t *harness.Timing) error {
			l.mix(t.Keys, share)
			return run(ctx, t)
		})
	}
	name := fmt.Sprintf("layered claim + complete, batches of %d, %d %% duplicates",
		batchIDs, share)
	s.Pair(harness.Pair{Name: name, Side: withFilter, Against: withoutFilter,
		Goal: harness.AtLeast(1, 0)},
		harness.Pair{Name: name + ", for comparison", Side: withoutFilter})
	s.Multiple, s.MaxKeys = batchIDs, max(e.oldKeys()/10, batchIDs)
	return nil
}

// countLookups runs one pass over each and counts what the store of records is asked.
func (e *env) countLookups(ctx context.Context, share int) (rows []harness.Row, err error) {
	var asked [2]float64 // for 100 keys
	for i, filter := range []bool{true, false} {
		opened := &harness.Setup{}
		l, err := e.newLayers(ctx, opened, filter)
		if err != nil {
			return nil, errors.Join(err, opened.Close())
		}
		keys := harness.FreshKeys(8 * batchIDs)
		l.mix(keys, share)
		before := l.records.lookups.Load()
		err = work.InBatches(2, batchIDs, l.Batch(work.Either, nil))(ctx,
			&harness.Timing{Keys: keys})
		asked[i] = 100 * float64(l.records.lookups.Load()-before) / float64(len(keys))
		if err = errors.Join(err, opened.Close()); err != nil {
			return nil, err
		}
	}
	name := func(what string) string {
		return fmt.Sprintf("layered, %s, %d %% duplicates", what, share)
	}
	saved := 100 * (asked[1] - asked[0]) / float64(100-share)
	return []harness.Row{
		harness.Figure(name("lookups in SQL saved of new keys"), withFilter, saved,
			"%", harness.ValueAtLeast(99, "%")),
		harness.Compared(name("lookups in SQL for 100 keys"), withFilter, asked[0], "lookups",
			withoutFilter, asked[1], harness.Goal{}),
	}, nil
}

// layers are an opened composition, with its own tables and names.
type layers struct {
	*work.Deduper

	records *counted
	filter  *bloom.Filter
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

func (c *counted) Finish(ctx context.Context, changes []dedup.Change) []dedup.Answer {
	if c.filter != nil {
		for i := range changes {
			c.filter.Add(changes[i].ID)
		}
	}
	return c.Store.Finish(ctx, changes)
}

// newLayers fills a table with old records, and puts Redis and the filter in front of it.
func (e *env) newLayers(ctx context.Context, s *harness.Setup, filter bool) (*layers, error) {
	name := "front" + harness.Fresh()[:8]
	l := &layers{}
	client := server.NewClient(e.redis.Addr, 0, 0)
	s.Defer(client.Close)
	if err := l.openRecords(ctx, s, e.records, name); err != nil {
		return nil, err
	}
	cfg := dedup.Config{Namespace: name, Window: 21 * 24 * time.Hour, LeaseTTL: time.Minute,
		StoreTimeout: 30 * time.Second}
	if filter {
		f, feed, err := open(options(e.most() / 10))
		if err != nil {
			return nil, err
		}
		if err := feed.Through(time.Now()); err != nil {
			return nil, err
		}
		l.filter, l.records.filter = f, f
	}
	if err := l.remember(ctx, cfg, e.oldKeys()); err != nil {
		return nil, err
	}
	o := redisadapter.Options{Prefix: name, Amnesia: redisadapter.FailClosed, AmnesiaFor: time.Hour}
	if err := redisadapter.Boot(ctx, client, o); err != nil {
		return nil, err
	}
	leases, err := redisadapter.New(ctx, client, o)
	if err != nil {
		return nil, err
	}
	cfg.Leases, cfg.HotWindow = leases, 6*time.Hour
	if filter {
		cfg.Filter = l.filter
	}
	d, err := dedup.New(l.records, cfg)
	if err != nil {
		return nil, err
	}
	s.Defer(func() error { return work.Close(d) })
	l.Deduper = &work.Deduper{Deduper: d}
	return l, nil
}

func (l *layers) openRecords(ctx context.Context, s *harness.Setup, records *server.Database,
	name string) error {
	db, err := records.Pool(8)
	if err != nil {
		return err
	}
	s.Defer(func() error {
		ctx := context.WithoutCancel(ctx)
		_, err := db.ExecContext(ctx, "DROP TABLE IF EXISTS "+name)
		_, more := db.ExecContext(ctx, "DROP TABLE IF EXISTS "+name+"_forgets")
		return errors.Join(err, more, db.Close())
	})
	store, err := sqladapter.NewStore(db,
		sqladapter.StoreConfig{Dialect: records.Dialect, Table: name})
	if err != nil {
		return err
	}
	l.records = &counted{Store: store}
	return store.Migrate(ctx)
}

// remember makes records that Redis knows nothing of.
func (l *layers) remember(ctx context.Context, cfg dedup.Config, n int) error {
	d, err := dedup.New(l.records, cfg)
	if err != nil {
		return err
	}
	l.old = harness.FreshKeys(n)
	run := work.InBatches(1, batchIDs, (&work.Deduper{Deduper: d}).Batch(work.New, nil))
	return errors.Join(run(ctx, &harness.Timing{Keys: l.old}), d.Close(ctx))
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
