package dedup_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/onceward/onceward/dedup"
)

// payments is a payment service that can be asked what it has done.
type payments map[string]string // charge by idempotency key

func (p payments) charge(ctx context.Context) (string, error) {
	a, _ := dedup.FromContext(ctx)
	p[a.DownstreamKey("payments", "charge")] = "ch_1"
	return "", errors.New("connection reset") // charged, and the answer is lost
}

// find answers what a Deduper wants to know of an uncertain key.
func (p payments) find(ctx context.Context, _ string, _ dedup.Record) (dedup.Resolution, error) {
	a, _ := dedup.FromContext(ctx)
	charge, ok := p[a.DownstreamKey("payments", "charge")]
	if !ok {
		return dedup.DidNotHappen(), nil // it never got there: run it again
	}
	result, err := json.Marshal(payment{charge})
	return dedup.Happened(result), err
}

type payment struct{ Charge string }

// An attempt that ends after MarkIrreversible without saying how is not run again: the payment
// service is asked first.
func ExampleMarkIrreversible() {
	service, ctx := payments{}, context.Background()
	d, err := dedup.New(dedup.Memory(1000), dedup.Config{
		Namespace: "payments", Window: 72 * time.Hour, LeaseTTL: 30 * time.Second,
		Resolve: service.find,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = d.Close(ctx) }()

	for range 2 {
		res, err := dedup.DoResult(ctx, d, "evt_1", func(ctx context.Context) (payment, error) {
			if err := dedup.MarkIrreversible(ctx); err != nil {
				return payment{}, dedup.NotStarted(err) // nothing has been sent
			}
			fmt.Println("charging")
			charge, err := service.charge(ctx)
			return payment{charge}, err
		})
		fmt.Println(res.Outcome, res.Value.Charge, err)
	}
	// Output:
	// charging
	// acquired  connection reset
	// duplicate ch_1 <nil>
}

// The policies for uncertain keys. Without a Resolve they are held until an operator
// calls Mark or Forget.
func ExampleConfig_resolve() {
	hold := dedup.Config{}
	rerun := dedup.Config{
		Resolve: func(context.Context, string, dedup.Record) (dedup.Resolution, error) {
			return dedup.DidNotHappen(), nil // may run twice
		},
	}
	ask := dedup.Config{Resolve: payments{}.find}
	fmt.Println(hold.Resolve == nil, rerun.Resolve != nil, ask.Resolve != nil)
	// Output: true true true
}

// A rerun skips the steps that are finished, and gets their values.
func ExampleStep() {
	d, ctx := exampleDeduper(), context.Background()
	defer func() { _ = d.Close(ctx) }()

	mailServer := errors.New("mail server is down")
	for range 2 {
		_, err := dedup.Do(ctx, d, "evt_1", func(ctx context.Context) (string, error) {
			invoice, err := dedup.Step(ctx, "invoice", func(context.Context) (string, error) {
				fmt.Println("writing the invoice")
				return "inv_1", nil
			})
			if err != nil {
				return "", err
			}
			fmt.Println("mailing", invoice)
			err, mailServer = mailServer, nil
			return invoice, err
		})
		fmt.Println(err)
	}
	// Output:
	// writing the invoice
	// mailing inv_1
	// mail server is down
	// mailing inv_1
	// <nil>
}
