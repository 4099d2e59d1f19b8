package resolver_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/resolver"
)

// A payment whose answer is lost leaves its key uncertain. The resolver asks the gateway about it,
// by the idempotency key that the payment had.
func ExampleNew() {
	ctx := context.Background()
	store := dedup.Memory(1000) // or a store of redisadapter or sqlstore
	cfg := dedup.Config{Namespace: "payments", Window: 72 * time.Hour, LeaseTTL: 30 * time.Second}
	payments, err := dedup.New(store, cfg)
	if err != nil {
		log.Fatal(err)
	}
	gateway := make(map[string]string)
	pay := func(ctx context.Context) (string, error) {
		attempt, _ := dedup.FromContext(ctx)
		if err := dedup.MarkIrreversible(ctx); err != nil {
			return "", dedup.NotStarted(err)
		}
		gateway[attempt.DownstreamKey("charge")] = "receipt 1"
		return "", context.DeadlineExceeded // the answer is lost
	}
	_, err = dedup.Do(ctx, payments, "order 4711", pay)
	fmt.Println(err)

	r, err := resolver.New(store, resolver.Config{
		Window: cfg.Window,
		Ask: func(_ context.Context, u resolver.UncertainRecord) (dedup.Resolution, error) {
			if receipt, charged := gateway[u.ID.DownstreamKey("charge")]; charged {
				return dedup.Happened([]byte(receipt)), nil
			}
			return dedup.DidNotHappen(), nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	resolved, err := r.Pass(ctx) // or go r.Run(ctx), in any number of processes
	fmt.Println(resolved.Succeeded, err)
	res, err := dedup.DoResult(ctx, payments, "order 4711", pay)
	fmt.Println(res.Value, res.Outcome, err)
	// Output:
	// context deadline exceeded
	// 1 <nil>
	// receipt 1 duplicate <nil>
}
