package rabbitqueue_test

import (
	"context"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/queue"
	"github.com/onceward/onceward/queue/rabbitqueue"
)

func bill(_ context.Context, d *queue.Delivery) error {
	m := d.Raw.(*amqp.Delivery)
	fmt.Println("billed", d.ID, "of", m.Headers["customer"])
	return nil
}

func ExampleConsume() {
	run := func(ctx context.Context, url string, d *dedup.Deduper) error {
		return rabbitqueue.Consume(ctx, queue.Config{Deduper: d, Handler: bill},
			rabbitqueue.Options{
				Queue:       "orders",
				Dial:        func() (*amqp.Connection, error) { return amqp.Dial(url) },
				DeadLetters: "orders.dead",
			})
	}
	_ = run
}
