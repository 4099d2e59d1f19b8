package owned_test

import (
	"context"
	"log"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/contrib/owned"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkasarama"
	"github.com/onceward/onceward/redisadapter"
)

// A consumer that owns its partitions: a message whose key is new needs no claim of its own. The
// producers use the Java client's partitioner. Before the first start of all, owned.Init was called
// with the same options.
func Example_kafka() {
	const window, hold = 8 * 24 * time.Hour, time.Hour
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	inner, err := redisadapter.New(ctx, client,
		redisadapter.Options{Prefix: "payments", WrappedBy: owned.Name})
	if err != nil {
		log.Fatal(err)
	}
	store, err := owned.New(ctx, client, inner, owned.Options{
		// 16 random bytes at least
		Prefix: "payments-own", Secret: []byte(os.Getenv("ONCEWARD_SECRET")),
		Window: window, Hold: hold,
		Lease:        30 * time.Second, // after a crash nobody works on its partitions for so long
		ExpectedKeys: 10_000_000,       // of a partition, within the window
	})
	if err != nil {
		log.Fatal(err)
	}
	d, err := dedup.New(store, dedup.Config{Namespace: "payments", Window: window, Hold: hold,
		LeaseTTL: 10 * time.Second, SeenOnly: true})
	if err != nil {
		log.Fatal(err)
	}
	acquire := func(ctx context.Context, at kafkaadapter.Assigned) (kafkaadapter.Ownership, error) {
		return store.Acquire(ctx, owned.Partition{
			Source: at.Group + "/" + at.Topic, Number: at.Partition, Count: at.Count,
			Mapping: "murmur2", Generation: at.Generation,
		})
	}
	err = kafkasarama.Consume(ctx, []string{"localhost:9092"}, "payments", []string{"charges"}, nil,
		kafkaadapter.Config{
			Deduper: d,
			Handler: func(ctx context.Context, m *kafkaadapter.Message) error {
				return charge(ctx, m.ID)
			},
			Own: &kafkaadapter.Owning{Acquire: acquire, Partitioner: kafkaadapter.Murmur2},
		})
	if err != nil {
		log.Fatal(err)
	}
}
