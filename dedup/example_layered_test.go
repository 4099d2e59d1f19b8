package dedup_test

import (
	"context"
	"fmt"
	"time"

	"github.com/onceward/onceward/dedup"
)

// Leases for hours, records for weeks. Here both are in memory; in a service the leases are in
// Redis (redisadapter) and the records in a database (sqladapter.Store). With Config.Filter, a
// bloom.Filter that follows Store.Scan, a new message costs no question to the database.
func ExampleConfig_leases() {
	ctx := context.Background()
	orders, err := dedup.New(dedup.Memory(1000), dedup.Config{
		Namespace: "orders", Window: 21 * 24 * time.Hour, LeaseTTL: 30 * time.Second,
		Leases: dedup.Memory(1000), HotWindow: 6 * time.Hour,
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
