package front

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/server"
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

// oldKeys is how many keys have a record in SQL that Redis has forgotten: each of them is a duplicate
// once, and hot from then on. There are enough for a count of lookups, and for ten timings.
func (e *Env) oldKeys() int { return max(e.most()/500, 5*batchIDs) }

// layered: claim and completion of a batch with and without the filter.
func (e *Env) layered() []harness.Group {
	if e.Redis == nil || e.Records == nil {
		return nil
	}
	var all []harness.Group
	for _, share := range shares {
		all = append(all, harness.Group{
			Workload: "layered", X: float64(share), Title: fmt.Sprintf("layered, %d %% duplicates", share),
			Open: func(ctx context.Context) (harness.Setup, error) { return e.openLayered(ctx, share) },
		}, harness.Group{
			Workload: "layered lookups", X: float64(share), Title: fmt.Sprintf("layered, lookups at %d %% duplicates", share),
			Measure: func(ctx context.Context) ([]harness.Row, error) { return e.countLookups(ctx, share) },
		})
	}
	return all
}

func (e *Env) openLayered(ctx context.Context, share int) (harness.Setup, error) {
	with, err := e.newLayers(ctx, true)
	if err != nil {
		return harness.Setup{}, err
	}
	without, err := e.newLayers(ctx, false)
	if err != nil {
		return harness.Setup{}, errors.Join(err, with.close())
	}
	name := fmt.Sprintf("layered claim + complete, batches of %d, %d %% duplicates", batchIDs, share)
	side := func(name string, l *layers) harness.Side {
		return harness.Side{Name: name, Run: func(ctx context.Context, t *harness.Timing) error { return l.run(ctx, l.mixed(t.Keys, share)) }}
	}
	return harness.Setup{
		Sides: []harness.Side{side(withFilter, with), side(withoutFilter, without)},
		Pairs: []harness.Pair{
			{Name: name, Side: withFilter, Against: withoutFilter, Goal: harness.AtLeast(1, 0)},
			{Name: name + ", for comparison", Side: withoutFilter},
		},
		Multiple: batchIDs, MaxKeys: max(e.oldKeys()/10, batchIDs), Close: func() { _ = with.close(); _ = without.close() },
	}, nil
}

// countLookups runs one pass over each and counts what the store of records is asked.
func (e *Env) countLookups(ctx context.Context, share int) (rows []harness.Row, err error) {
	var asked [2]float64
	for i, filter := range []bool{true, false} {
		l, err := e.newLayers(ctx, filter)
		if err != nil {
			return nil, err
		}
		keys := l.mixed(harness.FreshKeys(8*batchIDs), share)
		before := l.records.lookups.Load()
		err = l.run(ctx, keys)
		asked[i] = float64(l.records.lookups.Load()-before) / float64(len(keys))
		if err = errors.Join(err, l.close()); err != nil {
			return nil, err
		}
	}
	fresh := 1 - float64(share)/100
	saved := (asked[1] - asked[0]) / fresh
	row := func(name string, value float64, unit string) harness.Row {
		return harness.Row{
			Name: fmt.Sprintf("layered, %s, %d %% duplicates", name, share), Workload: "layered lookups", Side: withFilter, X: float64(share),
			Value: 100 * value, Unit: unit, Rounds: 1, OK: true,
		}
	}
	spared := row("lookups in SQL saved of new keys", saved, "%")
	spared.Goal, spared.OK = ">= 99 %", saved >= 0.99
	for100 := row("lookups in SQL for 100 keys", asked[0], "lookups")
	for100.Against, for100.AgainstValue, for100.Ratio = withoutFilter, 100*asked[1], asked[0]/asked[1]
	for100.Spread = [2]float64{for100.Ratio, for100.Ratio}
	return []harness.Row{spared, for100}, nil
}

// layers are an opened composition, with its own tables and names.
type layers struct {
	*dedup.Deduper
	records *counted
	filter  *bloom.Filter
	client  *redis.Client
	end     func() error
	old     []string
	used    atomic.Int64
}

// counted is the store of records; its lookups are counted, and the filter is told of what it is to
// keep, as Filter.Follow would.
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

func (e *Env) newLayers(ctx context.Context, filter bool) (*layers, error) {
	name := "front" + harness.FreshKeys(1)[0][:8]
	l := &layers{client: server.NewClient(e.Redis.Addr, 0, 0)}
	db, err := e.Records.Pool(8)
	if err != nil {
		return nil, errors.Join(err, l.client.Close())
	}
	l.end = func() error {
		_, err := db.ExecContext(context.WithoutCancel(ctx), "DROP TABLE "+name)
		_, more := db.ExecContext(context.WithoutCancel(ctx), "DROP TABLE "+name+"_forgets")
		return errors.Join(err, more, db.Close(), l.client.Close())
	}
	store, err := sqladapter.NewStore(db, sqladapter.StoreConfig{Dialect: e.Records.Dialect, Table: name})
	if err == nil {
		err = store.Migrate(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close(), l.client.Close())
	}
	l.records = &counted{Store: store}
	if err := l.open(ctx, e, name, filter); err != nil {
		return nil, errors.Join(err, l.end())
	}
	return l, nil
}

// open fills the table with old records, and puts Redis and the filter in front of it.
func (l *layers) open(ctx context.Context, e *Env, name string, filter bool) error {
	cfg := dedup.Config{Namespace: name, Window: 21 * 24 * time.Hour, LeaseTTL: time.Minute, StoreTimeout: 30 * time.Second}
	if filter {
		f, feed, err := open(options(e.most() / 10))
		if err != nil {
			return err
		}
		if err := feed.Through(time.Now()); err != nil {
			return err
		}
		l.filter, l.records.filter = f, f
	}
	if err := l.remember(ctx, cfg, e.oldKeys()); err != nil {
		return err
	}
	o := redisadapter.Options{Prefix: name, Amnesia: redisadapter.FailClosed, AmnesiaFor: time.Hour}
	if err := redisadapter.Boot(ctx, l.client, o); err != nil {
		return err
	}
	leases, err := redisadapter.New(ctx, l.client, o)
	if err != nil {
		return err
	}
	cfg.Leases, cfg.HotWindow = leases, 6*time.Hour
	if filter {
		cfg.Filter = l.filter
	}
	l.Deduper, err = dedup.New(l.records, cfg)
	return err
}

// remember makes records that Redis knows nothing of.
func (l *layers) remember(ctx context.Context, cfg dedup.Config, n int) error {
	d, err := dedup.New(l.records, cfg)
	if err != nil {
		return err
	}
	l.old = harness.FreshKeys(n)
	return errors.Join(cycle(ctx, d, l.old), d.Close(ctx))
}

func (l *layers) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return errors.Join(l.Close(ctx), l.end())
}

// mixed puts old keys in place of a share of these, evenly spread.
func (l *layers) mixed(keys []string, share int) []string {
	for i := range keys {
		if (i*share)%100+share >= 100 && share > 0 {
			keys[i] = l.old[int(l.used.Add(1)-1)%len(l.old)]
		}
	}
	return keys
}

// run works on batches, two at a time.
func (l *layers) run(ctx context.Context, keys []string) error {
	var next atomic.Int64
	var workers sync.WaitGroup
	failed := make([]error, 2)
	for w := range failed {
		workers.Go(func() {
			for failed[w] == nil {
				end := int(next.Add(batchIDs))
				if end-batchIDs >= len(keys) {
					return
				}
				failed[w] = cycle(ctx, l.Deduper, keys[end-batchIDs:min(end, len(keys))])
			}
		})
	}
	workers.Wait()
	return errors.Join(failed...)
}

// cycle claims keys in batches and completes what was won.
func cycle(ctx context.Context, d *dedup.Deduper, keys []string) error {
	for len(keys) > 0 {
		some := keys[:min(batchIDs, len(keys))]
		keys = keys[len(some):]
		reqs := make([]dedup.Request, len(some))
		for i, key := range some {
			reqs[i].Key = key
		}
		claims, err := d.ClaimBatch(ctx, reqs)
		if err != nil {
			return err
		}
		var won []dedup.Completion
		for i, c := range claims {
			switch c.Outcome {
			case dedup.Acquired:
				won = append(won, dedup.Completion{Claim: c})
			case dedup.Duplicate, dedup.InFlight: // in this run, by the other worker
			default:
				return fmt.Errorf("%s: %v", some[i], c.Outcome)
			}
		}
		if err := errors.Join(d.CompleteBatch(ctx, won)...); err != nil {
			return err
		}
	}
	return nil
}
