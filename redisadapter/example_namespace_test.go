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

// The namespace "pay" becomes "payments" while messages keep coming. In the middle steps
// of the move every message is claimed in both, so a key that is done in one is done in the other.
func Example_namespace() {
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
	open := func(namespace string) *dedup.Deduper {
		d, err := dedup.New(store,
			dedup.Config{Namespace: namespace, Window: 72 * time.Hour, LeaseTTL: 30 * time.Second})
		if err != nil {
			panic(err)
		}
		return d
	}
	old, next := open("pay"), open("payments")

	charge := func(context.Context) (string, error) {
		fmt.Println("charged")
		return "receipt", nil
	}
	in := func(d *dedup.Deduper, key string,
		effect func(context.Context) (string, error)) func(context.Context) (string, error) {
		return func(ctx context.Context) (string, error) {
			return dedup.Do(ctx, d, key, effect)
		}
	}
	steps := []func(key string) (string, error){
		func(key string) (string, error) { return in(old, key, charge)(ctx) },
		// old is recorded first
		func(key string) (string, error) { return in(next, key, in(old, key, charge))(ctx) },
		// next is recorded first
		func(key string) (string, error) { return in(old, key, in(next, key, charge))(ctx) },
		func(key string) (string, error) { return in(next, key, charge)(ctx) },
	}
	// each message comes to a process of a step, and again to one of the next
	for n := range len(steps) - 1 {
		key := fmt.Sprint("order-", n)
		first, err1 := steps[n](key)
		again, err2 := steps[n+1](key)
		fmt.Println(key, first, err1, again, err2)
	}
	// Output:
	// charged
	// order-0 receipt <nil> receipt <nil>
	// charged
	// order-1 receipt <nil> receipt <nil>
	// charged
	// order-2 receipt <nil> receipt <nil>
}
