package owned_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/contrib/owned"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/redisadapter"
)

// A consumer by hand: it holds one partition, and runs the batches that come from it.
func ExampleStore_Acquire() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	opts := owned.Options{
		Secret: []byte("at least 16 random bytes"), Window: 24 * time.Hour, Hold: time.Hour,
		Lease: 30 * time.Second, ExpectedKeys: 1_000_000,
	}
	inner, err := redisadapter.New(ctx, client,
		redisadapter.Options{Prefix: "pay", WrappedBy: owned.Name})
	if err != nil {
		log.Fatal(err)
	}
	// owned.Init was called when it was deployed first
	store, err := owned.New(ctx, client, inner, opts)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = store.Close(ctx) }()
	d, err := dedup.New(store, dedup.Config{
		Namespace: "pay", Window: opts.Window, Hold: opts.Hold, LeaseTTL: opts.Lease / 3,
		SeenOnly: true,
	})
	if err != nil {
		log.Fatal(err)
	}
	own, err := store.Acquire(ctx, owned.Partition{Source: "group/payments", Number: 7, Count: 32})
	if err != nil {
		log.Fatal(err) // an *owned.HeldError says for how long to wait
	}
	defer func() { _ = own.Release(ctx) }()
	run(own.Context(), d, []string{"order 1", "order 2"})
}

// run has the effects of one batch, and marks them all at once.
func run(ctx context.Context, d *dedup.Deduper, keys []string) {
	reqs := make([]dedup.Request, len(keys))
	for i, key := range keys {
		reqs[i] = dedup.Request{Key: key,
			Origin: driver.Origin{Source: "group/payments", Partition: 7}}
	}
	claims, err := d.ClaimBatch(ctx, reqs)
	if err != nil {
		return
	}
	var done []dedup.Completion
	for _, claim := range claims {
		if claim.Outcome == dedup.Acquired && claim.Alias == nil {
			done = append(done, dedup.Completion{Claim: claim, Err: charge(ctx, claim.Key)})
		}
	}
	for _, err := range d.CompleteBatch(ctx, done) {
		if err != nil {
			log.Print(err) // not on record: the message is redelivered
		}
	}
}

func charge(_ context.Context, key string) error {
	fmt.Println("charged", key)
	return nil
}
