package kafkaconfluent_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkaconfluent"
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
	defer stop()
	var shipped atomic.Int32
	err = kafkaconfluent.Consume(ctx, []string{os.Getenv("KAFKA_BROKERS")}, "shipping",
		[]string{"orders"}, nil, kafkaadapter.Config{
			Deduper: d,
			ID:      kafkaadapter.FromHeader("message-id"),
			Handler: func(_ context.Context, m *kafkaadapter.Message) error {
				fmt.Println("shipped", m.ID)
				if shipped.Add(1) == 2 {
					stop() // Consume drains, commits and returns
				}
				return nil
			},
		})
	fmt.Println(err)
	// It prints, in any order:
	// shipped order-1
	// shipped order-2
	// <nil>
}
