package pubsubqueue_test

import (
	"context"
	"fmt"

	"cloud.google.com/go/pubsub/v2"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/queue"
	"github.com/onceward/onceward/queue/pubsubqueue"
)

func bill(_ context.Context, d *queue.Delivery) error {
	m := d.Raw.(*pubsub.Message)
	fmt.Println("billed", d.ID, "of", m.Attributes["customer"])
	return nil
}

func ExampleConsume() {
	run := func(ctx context.Context, client *pubsub.Client, d *dedup.Deduper) error {
		return pubsubqueue.Consume(ctx, client.Subscriber("billing"),
			queue.Config{Deduper: d, Handler: bill},
			pubsubqueue.Options{DeadLetters: client.Publisher("orders-dead")})
	}
	_ = run
}
