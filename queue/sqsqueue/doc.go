// Package sqsqueue handles the messages of an Amazon SQS queue, through package queue. The effect
// of every message happens once, and a message is deleted only after its effect has happened and
// its record is stored.
//
//	err := sqsqueue.Consume(ctx, sqs.NewFromConfig(cfg), queue.Config{Deduper: d, Handler: bill},
//		sqsqueue.Options{QueueURL: url})
//
// # Acknowledgements
//
// DeleteMessage acknowledges a message that is done or parked. A message that is not done gets its
// time to wait as its visibility timeout, in whole seconds. While a handler works, the timeout is
// set to Options.AckWait again in each quarter of it. No timeout ends more than 12 hours after the
// message was received, because SQS allows no more. A message of a process that has died is
// redelivered when the timeout is over.
//
// A redrive policy moves a message that was received too often, even if it only waited. Set its
// maxReceiveCount well above [queue.Attempts].Max.
//
// # Ids
//
// The id is the message attribute Options.IDAttribute. With it, copies that a producer sent are
// recognized. Without it the id is the MessageDeduplicationId of a FIFO queue, unless that is the
// digest of the body: two messages with the same body may be two operations. Without either the id
// is the MessageId, with which only redeliveries are recognized. The scope is the path of the
// queue's URL, "account/queue".
//
// # Order
//
// In a FIFO queue messages of one MessageGroupId are handled one at a time. Their order after a
// failure is not proven: moto, on which this is tested, does not keep it. A group waits while one
// of its messages is not deleted.
package sqsqueue
