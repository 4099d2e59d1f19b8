package redisadapter_test

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/redisadapter"
)

func Example() {
	server, err := miniredis.Run() // your Redis, 7.0 or newer
	if err != nil {
		panic(err)
	}
	defer server.Close()
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{server.Addr()}})
	defer func() { _ = client.Close() }()
	ctx := context.Background()

	store, err := redisadapter.New(ctx, client, redisadapter.Options{})
	if err != nil {
		panic(err)
	}
	d, err := dedup.New(store,
		dedup.Config{Namespace: "payments", Window: 72 * time.Hour, LeaseTTL: 30 * time.Second})
	if err != nil {
		panic(err)
	}
	defer func() { _ = d.Close(ctx) }()

	for range 2 { // the same message, delivered twice
		receipt, err := dedup.Do(ctx, d, "evt_4711", func(context.Context) (string, error) {
			fmt.Println("charging")
			return "receipt 1", nil
		})
		fmt.Println(receipt, err)
	}
	// Output:
	// charging
	// receipt 1 <nil>
	// receipt 1 <nil>
}
