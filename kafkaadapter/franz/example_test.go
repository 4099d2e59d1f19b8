package franz_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter/franz"
)

// The producer has sent each order twice. Each is shipped once.
func Example() {
	// in production: redisadapter.New instead of dedup.Memory
	d, err := dedup.New(dedup.Memory(1<<20), dedup.Config{
		Namespace: "shipping", Window: 8 * 24 * time.Hour, LeaseTTL: 30 * time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = d.Close(context.Background()) }()
	ctx, stop := context.WithCancel(context.Background())
	var shipped atomic.Int32
	c, err := franz.New(franz.Config{
		Deduper: d,
		ID:      franz.Header("message-id"),
		Workers: 8, // handlers of a partition at once; messages of one Kafka key stay in order
		Handler: func(_ context.Context, m *franz.Message) error {
			fmt.Println("shipped", m.ID)
			if shipped.Add(1) == 2 {
				stop() // Run drains, commits and returns
			}
			return nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(c.Run(ctx,
		kgo.SeedBrokers(os.Getenv("KAFKA_BROKERS")),
		kgo.ConsumerGroup("shipping"),
		kgo.ConsumeTopics("orders"),
	))
	// It prints, in any order:
	// shipped order-1
	// shipped order-2
	// <nil>
}
