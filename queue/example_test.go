package queue_test

import (
	"context"
	"fmt"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/queue"
	"github.com/onceward/onceward/queue/queuetest"
)

func newDeduper() *dedup.Deduper {
	d, err := dedup.New(dedup.Memory(1000), dedup.Config{Namespace: "billing",
		Window: 24 * time.Hour, LeaseTTL: 30 * time.Second})
	if err != nil {
		panic(err)
	}
	return d
}

// A message that was sent twice has its effect once.
func ExampleConsumer_Run() {
	broker := queuetest.NewBroker(time.Minute) // in memory; adapters have real ones
	broker.Send(queuetest.Message{ID: "order-7"}, queuetest.Message{ID: "order-7"})

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	skipped := make(chan struct{}, 1)
	consumer, err := queue.New(queue.Config{
		Deduper: newDeduper(),
		Workers: 1,
		Handler: func(_ context.Context, d *queue.Delivery) error {
			fmt.Println("billed", d.ID)
			return nil
		},
		Observer: queue.Observer{Skipped: func(d *queue.Delivery, _ driver.Cause, _ time.Duration) {
			fmt.Println("skipped", d.ID)
			skipped <- struct{}{}
		}},
	})
	if err != nil {
		panic(err)
	}
	go func() {
		<-skipped
		stop()
	}()
	fmt.Println(consumer.Run(ctx, broker))
	// Output:
	// billed order-7
	// skipped order-7
	// <nil>
}

// Many deliveries are claimed in one round trip and recorded in one.
func ExampleConsumer_HandleAll() {
	broker := queuetest.NewBroker(time.Minute)
	for i := range 3 {
		broker.Send(queuetest.Message{ID: fmt.Sprint("order-", i)})
	}
	consumer, err := queue.New(queue.Config{Deduper: newDeduper(),
		Handler: func(context.Context, *queue.Delivery) error { return nil }})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	deliveries, err := broker.Fetch(ctx, 10)
	if err != nil {
		panic(err)
	}
	fmt.Println(consumer.HandleAll(ctx, deliveries), broker.Left())
	// Output: [<nil> <nil> <nil>] 0
}
