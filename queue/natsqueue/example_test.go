package natsqueue_test

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/queue"
	"github.com/onceward/onceward/queue/natsqueue"
)

func bill(_ context.Context, d *queue.Delivery) error {
	m := d.Raw.(jetstream.Msg)
	fmt.Println("billed", d.ID, "of", m.Subject())
	return nil
}

func ExampleConsume() {
	run := func(ctx context.Context, js jetstream.JetStream, d *dedup.Deduper) error {
		consumer, err := js.Consumer(ctx, "ORDERS", "billing")
		if err != nil {
			return err
		}
		return natsqueue.Consume(ctx, consumer, queue.Config{Deduper: d, Handler: bill},
			natsqueue.Options{DeadLetters: "dead.orders", Publisher: js})
	}
	_ = run
}
