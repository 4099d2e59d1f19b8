package sqsqueue_test

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/queue"
	"github.com/onceward/onceward/queue/sqsqueue"
)

func bill(_ context.Context, d *queue.Delivery) error {
	m := d.Raw.(*types.Message)
	fmt.Println("billed", d.ID, "of", *m.MessageAttributes["customer"].StringValue)
	return nil
}

func ExampleConsume() {
	run := func(ctx context.Context, client *sqs.Client, d *dedup.Deduper, url string) error {
		return sqsqueue.Consume(ctx, client, queue.Config{Deduper: d, Handler: bill},
			sqsqueue.Options{QueueURL: url, DeadLetters: url + "-dead"})
	}
	_ = run
}
