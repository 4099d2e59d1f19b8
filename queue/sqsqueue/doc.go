// Package sqsqueue handles the messages of an Amazon SQS queue, through package queue: the effect
// of every message happens once, and a message is deleted only after its effect and its record have
// landed.
//
//	err := sqsqueue.Consume(ctx, sqs.NewFromConfig(cfg), queue.Config{Deduper: d, Handler: bill},
//		sqsqueue.Options{QueueURL: url})
//
// # Acknowledgements
//
// Done and parked are DeleteMessage. Not done is a visibility timeout of the time to wait, in whole
// seconds. While a handler works the timeout is set to Options.AckWait again, each quarter of it,
// for at most the 12 hours that SQS allows. A message of a process that has died is redelivered
// when the timeout is over.
//
// A redrive policy moves a message that was received too often, also when it has merely waited. Set
// its maxReceiveCount well above queue.Attempts.Max.
//
// # Ids
//
// The id is the message attribute Options.IDAttribute, which tells copies that a producer sent.
// Next is the MessageDeduplicationId of a FIFO queue, unless it is the digest of the body: two
// messages of one body may be two operations. A message without either has its MessageId, which
// tells redeliveries only. The scope is the path of the queue's URL, "account/queue".
//
// # Order
//
// In a FIFO queue messages of one MessageGroupId are handled one at a time. Their order after a
// failure is not proven: moto, on which this is tested, does not keep it. A group waits while one
// of its messages is not deleted.
package sqsqueue
