package lease_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/lease"
)

func Example() {
	server, err := miniredis.Run() // your Redis
	if err != nil {
		panic(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = client.Close() }()
	ctx := context.Background()

	leases, err := lease.New(client, lease.Options{})
	if err != nil {
		panic(err)
	}
	l, err := leases.Acquire(ctx, "nightly-report", 30*time.Second)
	if err != nil {
		panic(err)
	}

	_, err = leases.Acquire(ctx, "nightly-report", 30*time.Second)
	fmt.Println("somebody else is at it:", errors.Is(err, lease.ErrHeld))

	run, stop := l.KeepAlive(ctx) // renewed until stop
	fmt.Println("working:", run.Err() == nil)
	stop()
	fmt.Println("released:", l.Release(ctx) == nil)

	next, err := leases.Acquire(ctx, "nightly-report", 30*time.Second)
	fmt.Println("next:", err == nil && next.Fence() > l.Fence())
	// Output:
	// somebody else is at it: true
	// working: true
	// released: true
	// next: true
}
