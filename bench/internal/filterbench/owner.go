package filterbench

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/redisscript"
	"github.com/onceward/onceward/owned"
	"github.com/onceward/onceward/redisadapter"
)

const (
	// freshMembers is how many keys a fresh set of ownedPlan has before it is folded.
	freshMembers = 16 << 10
	// ownedPlan is for how many keys a window a partition is planned: with 32 of them some twelve
	// millions.
	ownedPlan = 370_000
	// ownedParts is how many partitions there are: each timing has some that nobody has used.
	ownedParts = 256
	// patience is for what takes milliseconds.
	patience = time.Minute
)

// owner holds a partition for each worker.
type owner struct {
	client  *redis.Client
	store   *owned.Store
	prefix  string
	held    [workers]*owned.Ownership
	origins [workers]dedup.Origin
	used    int32 // partitions
	ran     int   // keys of those that are held
	nudge   *owned.Ownership
}

// ownedOptions plan partitions for so many keys each.
func ownedOptions(prefix string, keys int) owned.Options {
	return owned.Options{
		Prefix: prefix, Secret: []byte("secret of the benchmarks"), Window: 24 * time.Hour,
		Hold: time.Hour, Lease: 30 * time.Second, ExpectedKeys: keys,
	}
}

// openOwned boots a prefix of its own and opens a store there, for the time of a setup.
func openOwned(ctx context.Context, s *harness.Setup, addr string,
	plan func(prefix string) owned.Options) *owner {
	o := &owner{client: server.NewClient(s, addr, 0, 0), prefix: "o" + harness.Fresh()[:8]}
	opts := plan(o.prefix)
	inner := must.Get(redisadapter.New(ctx, o.client, redisadapter.Options{
		Prefix: o.prefix + "i", Owned: true, Layout: redisadapter.SeenOnly,
		OnFinding: func(redisadapter.Finding) {},
	}))
	must.Do(owned.Boot(ctx, o.client, opts))
	o.store = must.Get(owned.New(ctx, o.client, inner, opts))
	s.Defer(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		return o.store.Close(ctx)
	})
	return o
}

const ownedSource = "group/topic"

// take gives the partitions up that are held, and acquires others, of which nothing is known.
func (o *owner) take(ctx context.Context) {
	o.ran = 0
	for w := range workers {
		if o.held[w] != nil {
			must.Do(o.held[w].Release(ctx))
		}
		must.True(o.used < ownedParts, "filterbench: all %d partitions were used", ownedParts)
		o.held[w] = o.acquire(ctx,
			owned.Partition{Source: ownedSource, Number: o.used, Count: ownedParts})
		o.origins[w] = dedup.Origin{Source: ownedSource, Partition: o.used}
		o.used++
	}
}

// acquire waits until the filter is loaded.
func (o *owner) acquire(ctx context.Context, p owned.Partition) *owned.Ownership {
	own := must.Get(o.store.Acquire(ctx, p))
	until(ctx, func(int) bool {
		must.Do(context.Cause(own.Context()))
		return own.Stats().Loaded
	})
	return own
}

// until asks every millisecond. The question knows how often it was asked.
func until(ctx context.Context, over func(n int) bool) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for n := 0; !over(n); n++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			must.Do(fmt.Errorf("filterbench: waited in vain: %w", context.Cause(ctx)))
		}
	}
}

// fold waits until the sets that are full have been folded: work of a timing that would else be
// done in the next one, another side's. The store folds with its renewals, some seconds later, and
// looks for what is to be done when it acquires something: so it is made to.
func (o *owner) fold(ctx context.Context) {
	until(ctx, func(n int) bool {
		for w := range workers {
			if o.unfolded(ctx, o.origins[w].Partition) == 0 {
				continue
			}
			if n%50 == 0 {
				o.wake(ctx)
			}
			return false
		}
		return true
	})
}

func (o *owner) wake(ctx context.Context) {
	if o.nudge != nil {
		must.Do(o.nudge.Release(ctx))
	}
	o.nudge = must.Get(o.store.Acquire(ctx, owned.Partition{Source: "nobody", Count: 1}))
}

// unfolded counts the full sets of a partition.
func (o *owner) unfolded(ctx context.Context, number int32) (sets uint64) {
	fields := must.Get(o.client.HGetAll(ctx,
		o.prefix+":{"+tag(ownedSource, number)+"}:head").Result())
	head := must.Get(redisscript.ReadOwnHead(fields))
	must.True(head != nil, "filterbench: partition %d has no head", number)
	for _, g := range head.Gens {
		if g.Newest > g.Folded+1 {
			sets += g.Newest - g.Folded - 1
		}
	}
	return sets
}

// tag is how keys of Redis name a partition.
func tag(source string, number int32) string {
	sum := sha256.Sum256(binary.BigEndian.AppendUint32(append([]byte(source), 0), uint32(number))) //nolint:gosec // counts from 0
	return hex.EncodeToString(sum[:8])
}

// proven notes that so many new keys have run, and fails unless nearly all that did were begun
// without a claim of the inner store: or what was timed would be that.
func (o *owner) proven(ran int) {
	o.ran += ran
	saved := 0
	for _, own := range o.held {
		saved += int(own.Stats().Saved) //nolint:gosec // a few
	}
	must.True(saved >= o.ran*99/100,
		"filterbench: %d keys were begun without a claim, of %d that were new", saved, o.ran)
}
