package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/redisadapter"
)

const (
	// lease and hold are short: what a killed run leaves in flight is gone with the window.
	lease = 10 * time.Second
	// scanned is how many names a SCAN looks at.
	scanned = 1000
	// fullShare of the memory that is allowed is where nothing more is written.
	fullShare = 0.8
)

// onRedis is a Redis, or a Cluster.
type onRedis struct {
	o      *Options
	client redis.UniversalClient
	bare   redis.UniversalClient // of the bare side: Onceward asks its client behind its calls, too
	prefix string
	sent   [2]counter // by onceward, and by bare
	result []byte
	opened []*dedup.Deduper
	secret []byte
}

func newRedis(o *Options, name string) (*onRedis, error) {
	client, err := o.Server.OpenRedis()
	if err != nil {
		return nil, err
	}
	bare, err := o.Server.OpenRedis()
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	r := &onRedis{o: o, client: client, bare: bare, prefix: name, result: noise(o.Result),
		secret: noise(16)}
	r.sent[0].watch(client)
	r.sent[1].watch(bare)
	return r, nil
}

// noise is bytes that nothing compresses.
func noise(n int) []byte {
	if n == 0 {
		return nil
	}
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return b
}

func (r *onRedis) title() string { return "redis " + r.o.Layout.String() }

func (r *onRedis) close() {
	_ = r.client.Close()
	_ = r.bare.Close()
}

func (r *onRedis) traffic(side int) traffic {
	sent := &r.sent[side]
	return traffic{sent.commands.Load(), sent.trips.Load(), true}
}

func (r *onRedis) kind(err error) string {
	if name := commonKind(err); name != "" {
		return name
	}
	if class := redisadapter.Classify(err); class != "" {
		return class
	}
	return "other"
}

// look wants room, and a server that evicts nothing; and what removes the keys must be allowed.
func (r *onRedis) look(ctx context.Context) error {
	infos, err := r.infos(ctx)
	if err != nil {
		return fmt.Errorf("--redis: %w", err)
	}
	_, cluster := r.client.(*redis.ClusterClient)
	for addr, i := range infos {
		switch policy := i.text["maxmemory_policy"]; {
		case i.number["cluster_enabled"] == 1 && !cluster:
			return errors.New("--redis: the server is part of a Cluster: add --cluster")
		case r.o.Force:
		case policy != "" && policy != "noeviction":
			return fmt.Errorf("%s: maxmemory-policy is %s: it would evict the keys of others to make room (--force runs it anyway)", addr, policy)
		case i.full() > fullShare:
			return fmt.Errorf("%s: %.0f %% of maxmemory are in use, more than %.0f %% (--force runs it anyway)", addr, 100*i.full(), 100*fullShare)
		}
	}
	err = r.masters(ctx, func(ctx context.Context, node *redis.Client) error {
		return node.Scan(ctx, 0, r.prefix+"*", 1).Err()
	})
	if err == nil {
		err = r.client.Del(ctx, r.prefix+":none").Err()
	}
	if err != nil {
		return fmt.Errorf("--redis: SCAN and DEL are needed to remove the keys again: %w", err)
	}
	return nil
}

// masters asks one after the other on a Cluster: what they return needs no lock.
func (r *onRedis) masters(ctx context.Context,
	ask func(context.Context, *redis.Client) error) error {
	var mu sync.Mutex
	each := func(ctx context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		return ask(ctx, node)
	}
	switch c := r.client.(type) {
	case *redis.ClusterClient:
		return c.ForEachMaster(ctx, each)
	case *redis.Client:
		return each(ctx, c)
	}
	return fmt.Errorf("--redis: a %T cannot be measured", r.client)
}

// open has the layout with buckets planned for the keys that come, or their sets would be too
// small, or too large, to tell what a key takes.
func (r *onRedis) open(ctx context.Context, warm bool, expected int) (ours, bare work, err error) {
	opts := redisadapter.Options{ // what the server may lose is doctor's concern
		Prefix: r.prefix, Layout: r.o.Layout, AllowEviction: true,
		OnFinding: func(preflight.Finding) {},
	}
	switch {
	case warm:
		opts.Prefix += ".warm"
		opts.Layout = redisadapter.Full
	case r.o.bucketed():
		opts.Window, opts.ExpectedKeys, opts.Secret = r.o.Window, expected, r.secret
	}
	store, err := redisadapter.New(ctx, r.client, opts)
	if err != nil {
		return nil, nil, fmt.Errorf("--redis: %w", err)
	}
	// These have no expiry of their own. The stores that are open do not read them again.
	for _, name := range []string{":layout", ":irreversible_complete", ":irreversible_by_slot"} {
		if err := r.client.PExpire(ctx, opts.Prefix+name, 2*r.o.Window).Err(); err != nil {
			return nil, nil, fmt.Errorf("--redis: %w", err)
		}
	}
	d, err := dedup.New(store, dedup.Config{
		Namespace: "bench", Window: r.o.Window, LeaseTTL: lease, Hold: r.o.Window,
		SeenOnly: !warm && r.o.Result == 0,
	})
	if err != nil {
		return nil, nil, err
	}
	r.opened = append(r.opened, d)
	if r.o.Batch > 1 {
		return func(ctx context.Context, batch []message) []error {
			return cycle(ctx, d, batch, r.result)
		}, r.bareBatch, nil
	}
	return func(ctx context.Context, batch []message) []error {
		return one(ctx, d, batch[0], r.result)
	}, r.bareOne, nil
}

// one is what a program does with a message: its effect is nothing.
func one(ctx context.Context, d *dedup.Deduper, m message, result []byte) []error {
	var err error
	var outcome driver.Outcome
	if len(result) == 0 {
		var res dedup.Result[struct{}]
		res, err = dedup.DoResult(ctx, d, m.key, func(context.Context) (struct{}, error) {
			return struct{}{}, nil
		})
		outcome = res.Outcome
	} else {
		var res dedup.Result[[]byte]
		res, err = dedup.DoResult(ctx, d, m.key, func(context.Context) ([]byte, error) {
			return result, nil
		})
		outcome = res.Outcome
	}
	if err == nil {
		err = judge(m, outcome)
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// cycle is what a consumer of batches does.
func cycle(ctx context.Context, d *dedup.Deduper, batch []message, result []byte) []error {
	errs := make([]error, len(batch))
	reqs := make([]dedup.Request, len(batch))
	for i := range batch {
		reqs[i].Key = batch[i].key
	}
	claims, err := d.ClaimBatch(ctx, reqs)
	if err != nil {
		return all(errs, err)
	}
	done, of := make([]dedup.Completion, 0, len(batch)), make([]int, 0, len(batch))
	failed := false
	for i, c := range claims {
		if c.Outcome == dedup.Acquired {
			done, of = append(done, dedup.Completion{Claim: c, Result: result}), append(of, i)
		} else if c.Outcome != dedup.Duplicate {
			errs[i] = c.Err()
		}
		if errs[i] == nil {
			errs[i] = judge(batch[i], c.Outcome)
		}
		failed = failed || errs[i] != nil
	}
	for i, err := range d.CompleteBatch(ctx, done) {
		if err != nil {
			errs[of[i]], failed = err, true
		}
	}
	if !failed {
		return nil
	}
	return errs
}

func all(errs []error, err error) []error {
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// remains names what a killed run leaves.
func (r *onRedis) remains() string {
	return fmt.Sprintf("keys that begin with %s; they expire within %v, or, with host and port of each master: redis-cli -h HOST -p PORT --scan --pattern '%s*' | xargs -n 1 redis-cli -h HOST -p PORT del", r.prefix, 2*r.o.Window, r.prefix)
}

// clean has the calls under way end first.
func (r *onRedis) clean(ctx context.Context, thorough bool) error {
	var errs []error
	for _, d := range r.opened {
		closing, cancel := context.WithTimeout(ctx, lease)
		_ = d.Close(closing) // what it gives up is removed here
		cancel()
	}
	passes := 1
	if thorough {
		passes = 2
	}
	for range passes {
		errs = append(errs, r.masters(ctx, r.remove))
	}
	return errors.Join(errs...)
}

// remove deletes by name on one master. Keys of a Cluster's slots go one by one, in a pipeline.
func (r *onRedis) remove(ctx context.Context, node *redis.Client) error {
	for cursor := uint64(0); ; {
		names, next, err := node.Scan(ctx, cursor, r.prefix+"*", scanned).Result()
		if err != nil {
			return err
		}
		if len(names) > 0 {
			_, err = node.Pipelined(ctx, func(p redis.Pipeliner) error {
				for _, name := range names {
					if strings.HasPrefix(name, r.prefix) {
						p.Del(ctx, name)
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}
