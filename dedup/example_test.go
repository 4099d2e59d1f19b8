package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceward/onceward/dedup"
)

func exampleDeduper() *dedup.Deduper {
	d, err := dedup.New(dedup.Memory(1000), dedup.Config{
		Namespace: "payments", Window: 72 * time.Hour, LeaseTTL: 30 * time.Second,
	})
	if err != nil {
		panic(err)
	}
	return d
}

// The second delivery of a message gets the result of the first.
func ExampleDo() {
	d, ctx := exampleDeduper(), context.Background()
	defer func() { _ = d.Close(ctx) }()

	type Receipt struct{ Charge string }
	for range 2 {
		receipt, err := dedup.Do(ctx, d, "evt_1", func(context.Context) (Receipt, error) {
			fmt.Println("charging")
			return Receipt{Charge: "ch_1"}, nil
		})
		if err != nil {
			fmt.Println(err) // not done: do not acknowledge
			return
		}
		fmt.Println(receipt.Charge)
	}
	// Output:
	// charging
	// ch_1
	// ch_1
}

// DoResult tells who has run the effect.
func ExampleDoResult() {
	d, ctx := exampleDeduper(), context.Background()
	defer func() { _ = d.Close(ctx) }()

	for range 2 {
		res, err := dedup.DoResult(ctx, d, "evt_1", func(context.Context) (string, error) {
			return "ch_1", nil
		})
		fmt.Println(res.Outcome, res.Attempt, res.Value, err)
	}
	// Output:
	// acquired 1 ch_1 <nil>
	// duplicate 1 ch_1 <nil>
}

// A failure that no retry can fix is stored and replayed; any other one releases the
// key for the next attempt.
func ExamplePermanent() {
	d, ctx := exampleDeduper(), context.Background()
	defer func() { _ = d.Close(ctx) }()

	for range 2 {
		_, err := dedup.Do(ctx, d, "evt_1", func(context.Context) (string, error) {
			return "", dedup.Permanent(errors.New("card declined"))
		})
		fmt.Println(err)
	}
	// Output:
	// card declined
	// dedup: failed for good earlier: card declined
}

// Claiming by hand separates the claim from its end.
func ExampleDeduper_Claim() {
	d, ctx := exampleDeduper(), context.Background()
	defer func() { _ = d.Close(ctx) }()

	body := []byte(`{"amount": 100}`)
	c, err := d.Claim(ctx, "evt_1", dedup.WithFingerprint(body))
	if err != nil {
		fmt.Println(err)
		return
	}
	if c.Outcome != dedup.Acquired {
		fmt.Println(c.Outcome, c.Err())
		return
	}
	run, stop := c.KeepAlive(ctx) // renewed until stop; canceled when the lease is lost
	defer stop()
	if err := charge(run); err != nil {
		fmt.Println(c.Release(ctx))
		return
	}
	fmt.Println(c.Complete(ctx, []byte("ch_1"))) // then acknowledge, not before

	again, err := d.Claim(ctx, "evt_1", dedup.WithFingerprint([]byte("something else")))
	fmt.Println(again.Outcome, again.Cause, err)
	// Output:
	// <nil>
	// mismatch key_reuse <nil>
}

func charge(context.Context) error { return nil }

// A consumer claims and completes a whole poll in two round trips.
func ExampleDeduper_ClaimBatch() {
	d, ctx := exampleDeduper(), context.Background()
	defer func() { _ = d.Close(ctx) }()

	claims, err := d.ClaimBatch(ctx, []dedup.Request{{Key: "a"}, {Key: "b"}, {Key: "a"}, {Key: ""}})
	if err != nil {
		fmt.Println(err)
		return
	}
	var done []dedup.Completion
	for _, c := range claims {
		switch {
		case c.Outcome == dedup.Acquired:
			done = append(done, dedup.Completion{Claim: c, Err: charge(ctx)})
		case c.Alias != nil:
			fmt.Println(c.Key, "again in this batch: shares the fate of the first")
		default:
			fmt.Println(c.Outcome, c.Err())
		}
	}
	for i, err := range d.CompleteBatch(ctx, done) {
		fmt.Println(done[i].Claim.Key, err)
	}
	fmt.Println(len(done), "completed")
	// Output:
	// a again in this batch: shares the fate of the first
	// unknown dedup: Key is empty
	// 2 completed
}

// The simplest receiver: skip what is marked, mark what is done.
func ExampleDeduper_Seen() {
	d, ctx := exampleDeduper(), context.Background()
	defer func() { _ = d.Close(ctx) }()

	for range 2 {
		seen, err := d.Seen(ctx, "evt_1")
		if err != nil {
			fmt.Println(err)
			return
		}
		if seen {
			fmt.Println("skipped")
			continue
		}
		fmt.Println("handled")
		first, err := d.Mark(ctx, "evt_1") // after the effect
		fmt.Println("first:", first, err)
	}
	// Output:
	// handled
	// first: true <nil>
	// skipped
}

// Every attempt hands the same idempotency key to the next system.
func ExampleAttempt_DownstreamKey() {
	d, ctx := exampleDeduper(), context.Background()
	defer func() { _ = d.Close(ctx) }()

	for range 2 {
		_, _ = dedup.Do(ctx, d, "evt_1", func(ctx context.Context) (string, error) {
			a, _ := dedup.FromContext(ctx)
			fmt.Println("attempt", a.Number, a.DownstreamKey("stripe", "charge"))
			return "", errors.New("try again")
		})
	}
	// Output:
	// attempt 1 otOkCfm1OqzLGyhSt4MdEQ
	// attempt 2 otOkCfm1OqzLGyhSt4MdEQ
}
