package redismetric_test

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel"

	"github.com/onceward/onceward/contrib/telemetry/redismetric"
	"github.com/onceward/onceward/redisadapter"
)

// A store whose findings are counted from its first look at the server.
func Example() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	metrics, err := redismetric.New(otel.GetMeterProvider(), "payments")
	if err != nil {
		panic(err)
	}
	store, err := redisadapter.New(ctx, client,
		redisadapter.Options{OnFinding: metrics.OnFinding})
	if err != nil {
		panic(err)
	}
	defer func() { _ = errors.Join(metrics.Close(), client.Close()) }()
	if err := metrics.ObserveStore(store); err != nil {
		panic(err)
	}
	// ... dedup.New(store, ...) and the work
}
