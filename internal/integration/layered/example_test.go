package layered_test

import (
	"context"
	"database/sql"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/bloom"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/layered"
	"github.com/onceward/onceward/redisadapter"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/sqlstore"
)

// Redis has the leases and the records of the last hours, PostgreSQL has the records of three
// weeks, and a filter saves lookups of new keys in PostgreSQL. Three weeks at 100 orders a second
// take 740 MB.
func Example() {
	const window = 21 * 24 * time.Hour
	ctx := context.Background()

	leases, err := redisadapter.New(ctx, redis.NewClient(&redis.Options{Addr: "localhost:6379"}),
		redisadapter.Options{
			// without a guard the filter is never asked
			Amnesia: redisadapter.FailClosed, AmnesiaFor: window,
		})
	if err != nil {
		log.Fatal(err)
	}
	db, err := sql.Open("pgx", "postgres://localhost/orders")
	if err != nil {
		log.Fatal(err)
	}
	records, err := sqlstore.New(db, sqlstore.Options{Dialect: sqladapter.Postgres})
	if err != nil {
		log.Fatal(err)
	}

	filter, err := bloom.New(bloom.Options{Window: window, Rate: 100})
	if err != nil {
		log.Fatal(err)
	}
	go func() { // reads the whole table once, and then the new rows every minute
		err := filter.Follow(ctx, bloom.Source{Name: "orders"}, bloom.FollowConfig{
			Every: time.Minute, Overlap: time.Hour, // no commit takes longer
			Scan: func(ctx context.Context, age time.Duration,
				yield func([16]byte, time.Duration) error) error {
				opts := sqlstore.ScanOptions{Age: age, ShortestWindow: window}
				return records.Scan(ctx, opts, func(id driver.ID, age time.Duration) error {
					return yield(id, age)
				})
			},
		})
		log.Print(err)
	}()

	store, err := layered.New(leases, records, layered.Config{
		HotWindow: 6 * time.Hour, LeaseTTL: 30 * time.Second, Filter: filter,
		Observer: dedup.Observer{Filtered: func(e dedup.Event) {
			log.Print(e.FilterAnswer, e.Reason, e.Saved)
		}},
	})
	if err != nil {
		log.Fatal(err)
	}
	orders, err := dedup.New(store, dedup.Config{
		Namespace: "orders", Window: window, LeaseTTL: 30 * time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = orders.Close(ctx) }()
}
