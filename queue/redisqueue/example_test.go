package redisqueue_test

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/queue"
	"github.com/onceward/onceward/queue/redisqueue"
)

func bill(_ context.Context, d *queue.Delivery) error {
	m := d.Raw.(redis.XMessage)
	fmt.Println("billed", d.ID, "of", m.Values["customer"])
	return nil
}

func ExampleConsume() {
	run := func(ctx context.Context, client *redis.Client, d *dedup.Deduper) error {
		return redisqueue.Consume(ctx, client, queue.Config{Deduper: d, Handler: bill},
			redisqueue.Options{Stream: "orders", Group: "billing", Consumer: "pod-1",
				DeadLetters: "orders.dead"})
	}
	_ = run
}
