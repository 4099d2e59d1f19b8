package deduptest_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/deduptest"
)

// A test of one's own store is three lines; this one stands for it with the store in
// memory, whose leases may be short.
func ExampleRun() {
	_ = func(t *testing.T) { // func TestMyStore(t *testing.T)
		deduptest.Run(t, deduptest.Harness{
			New:   func(testing.TB) dedup.Store { return dedup.Memory(1 << 16) },
			Lease: 20 * time.Millisecond,
		})
	}
}

// The reply of the first claim is lost after the store has executed it. The Deduper
// asks again with the same token and learns that the claim is its own.
func ExampleFaulty() {
	store := deduptest.NewFaulty(dedup.Memory(100),
		deduptest.Script(deduptest.OpClaim, deduptest.Fault{Kind: deduptest.DropReply}))
	d, err := dedup.New(store,
		dedup.Config{Namespace: "payments", Window: time.Hour, LeaseTTL: 30 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	res, err := dedup.DoResult(context.Background(), d, "evt_1",
		func(context.Context) (string, error) { return "charged", nil })
	fmt.Println(res.Value, res.Outcome, res.Attempt, err)
	fmt.Println(store.Stats().Calls[deduptest.OpClaim], "claims,", store.Stats().LostReplies,
		"reply lost")
	// Output:
	// charged acquired 1 <nil>
	// 2 claims, 1 reply lost
}

// A test of one's own handler: it is crashed at each of its calls, and nothing may be lost. In a
// bubble of testing/synctest leases lapse at once.
func ExampleTwice() {
	_ = func(t *testing.T) { // func TestMyHandler(t *testing.T)
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			charged := map[string]int{}
			report := deduptest.Twice(t, deduptest.Subject{
				Deliver: func(ctx context.Context, d *dedup.Deduper, message string) error {
					_, err := dedup.Do(ctx, d, message, func(context.Context) (string, error) {
						mu.Lock()
						defer mu.Unlock()
						charged[message]++
						return "charged", nil
					})
					return err
				},
				Effects: func(message string) int { return charged[message] },
			})
			for _, twice := range report.Doubled { // by a crash between effect and record
				t.Log(twice.Story)
			}
		})
	}
}
