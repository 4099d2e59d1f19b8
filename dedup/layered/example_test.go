package layered_test

import (
	"context"
	"fmt"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/layered"
)

// Claims and the last hours in one store, weeks in the other. Here both are in memory; in a service
// the hot one is in Redis (redisadapter) and the cold one in a database (sqlstore.Store). With
// Config.Filter, a bloom.Filter that follows Store.Scan, a new message costs no question to the
// database.
func ExampleNew() {
	ctx := context.Background()
	store, err := layered.New(dedup.Memory(1000), dedup.Memory(1000), layered.Config{
		HotWindow: 6 * time.Hour, LeaseTTL: 30 * time.Second,
	})
	if err != nil {
		panic(err)
	}
	orders, err := dedup.New(store, dedup.Config{
		Namespace: "orders", Window: 21 * 24 * time.Hour, LeaseTTL: 30 * time.Second,
	})
	if err != nil {
		panic(err)
	}
	defer func() { _ = orders.Close(ctx) }()
	for range 2 {
		res, err := dedup.DoResult(ctx, orders, "order 4711",
			func(context.Context) (string, error) {
				fmt.Println("shipping")
				return "parcel 1", nil
			})
		fmt.Println(res.Value, res.Outcome, err)
	}
	// Output:
	// shipping
	// parcel 1 acquired <nil>
	// parcel 1 duplicate <nil>
}
