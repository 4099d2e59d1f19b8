package redisadapter_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/redisadapter"
)

// An order is booked on a stock level that lives in Redis: exactly once, also when the
// process dies in the middle, and only while there is stock.
func ExampleStore_DoAtomic() {
	server, err := miniredis.Run() // your Redis, 7.0 or newer
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = client.Close() }()
	store, err := redisadapter.New(ctx, client, redisadapter.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	d, err := dedup.New(store,
		dedup.Config{Namespace: "orders", Window: 72 * time.Hour, LeaseTTL: 10 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}

	client.Set(ctx, "stock", 2, 0)
	book := func(read redis.Cmdable, write redis.Pipeliner) error {
		left, err := read.Get(ctx, "stock").Int()
		if err != nil {
			return err
		}
		if left == 0 {
			return dedup.Permanent(errors.New("sold out"))
		}
		write.Set(ctx, "stock", left-1, 0) // it is watched, so nobody has changed it since
		return nil
	}
	for _, order := range []string{"o-1", "o-1", "o-2", "o-3"} {
		outcome, err := store.DoAtomic(ctx, d, dedup.Request{Key: order}, book, "stock")
		fmt.Println(order, outcome, err, client.Get(ctx, "stock").Val())
	}
	// Output:
	// o-1 acquired <nil> 1
	// o-1 duplicate <nil> 1
	// o-2 acquired <nil> 0
	// o-3 acquired sold out 0
}
