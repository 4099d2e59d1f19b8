package kafkafranz_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkafranz"
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
	err = kafkafranz.Consume(ctx, []string{os.Getenv("KAFKA_BROKERS")}, "shipping",
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

// A member of a share group: no order, and as many members as there is work for.
func ExampleNewShare() {
	var d *dedup.Deduper
	var ship kafkaadapter.Handler
	// see kafkaadapter.DeadLetters
	var park func(context.Context, *kafkaadapter.Message, error) error
	s, err := kafkafranz.NewShare("shipping", kafkaadapter.Config{Deduper: d, Handler: ship,
		Park: park, Attempts: kafkaadapter.Attempts{Timeout: time.Minute}},
		kafkafranz.ShareOptions{}) // Deliveries is the group's limit of 5
	if err != nil {
		log.Fatal(err)
	}
	err = s.Run(context.Background(), kgo.SeedBrokers(os.Getenv("KAFKA_BROKERS")),
		kgo.ConsumeTopics("orders"))
	if err != nil {
		log.Fatal(err)
	}
}
