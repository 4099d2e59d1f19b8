package sqsqueue

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/queue"
)

// Message attributes of a dead letter, as package kafkaadapter has them.
const (
	AttributeID    = "onceward-id"    // the id of the message
	AttributeScope = "onceward-scope" // the scope of its key
	AttributeError = "onceward-error" // why it was parked
)

const (
	defaultAckWait = 30 * time.Second
	maxAckWait     = 12 * time.Hour
	maxReceive     = 10 // messages in one ReceiveMessage
	maxAttributes  = 10 // of one message
	longPoll       = 20 // seconds, the most that SQS waits
	maxText        = 1024
	// clockSlack is how much earlier than Delivery SQS may have counted the receipt of a message.
	clockSlack = time.Minute
)

var errTimeUsedUp = errors.New("sqsqueue: 12 hours after the message was received are over")

// Options configures a consumer, in addition to [queue.Config]. QueueURL is required.
type Options struct {
	// QueueURL names the queue.
	QueueURL string
	// AckWait is the visibility timeout of a message that is at work, in whole seconds, at most 12
	// hours. Default 30 s.
	AckWait time.Duration
	// IDAttribute is the message attribute with the id of the message. Default "id".
	IDAttribute string
	// DeadLetters is the URL of the queue that gets the messages that cannot be processed, with the
	// Attribute constants of this package and their own attributes. A message has at most ten
	// attributes: those beyond that are left out. Default: [queue.Config].Park.
	DeadLetters string
}

// Source receives the messages of one queue. It is safe for concurrent use.
type Source struct {
	client *sqs.Client
	opts   Options
	scope  string
	fifo   bool
}

var _ queue.Source = (*Source)(nil)

// New returns the source of a queue. It contacts nobody. An [*dedup.InputError] names the first bad
// option.
func New(client *sqs.Client, opts Options) (*Source, error) {
	opts.AckWait = cmp.Or(opts.AckWait, defaultAckWait)
	opts.IDAttribute = cmp.Or(opts.IDAttribute, "id")
	bad := func(field, reason string) error {
		return &dedup.InputError{Field: "sqsqueue." + field, Reason: reason}
	}
	at, err := url.Parse(opts.QueueURL)
	switch {
	case client == nil:
		return nil, bad("Client", "is nil")
	case err != nil || opts.QueueURL == "":
		return nil, bad("Options.QueueURL", fmt.Sprintf("is %q; it must be a URL", opts.QueueURL))
	case opts.AckWait < time.Second || opts.AckWait > maxAckWait || opts.AckWait%time.Second != 0:
		return nil, bad("Options.AckWait",
			fmt.Sprintf("is %v; 1 s to 12 h in whole seconds are possible", opts.AckWait))
	case opts.DeadLetters == opts.QueueURL:
		return nil, bad("Options.DeadLetters", "is the queue itself")
	}
	return &Source{client: client, opts: opts, scope: strings.Trim(at.Path, "/"),
		fifo: strings.HasSuffix(opts.QueueURL, ".fifo")}, nil
}

// Consume handles the messages of a queue until ctx ends: [queue.Consumer.Run] with the source of
// [New]. It returns their errors.
func Consume(ctx context.Context, client *sqs.Client, cfg queue.Config, opts Options) error {
	src, err := New(client, opts)
	if err != nil {
		return err
	}
	c, err := queue.New(cfg)
	if err != nil {
		return err
	}
	return c.Run(ctx, src)
}

// Fetch implements [queue.Source]. An error for which [dedup.IsPermanent] is true says that the
// queue does not exist.
func (s *Source) Fetch(ctx context.Context, limit int) ([]*queue.Delivery, error) {
	out, err := s.client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl: &s.opts.QueueURL, MaxNumberOfMessages: int32(min(limit, maxReceive)),
		VisibilityTimeout: int32(s.opts.AckWait / time.Second), WaitTimeSeconds: longPoll,
		MessageAttributeNames: []string{"All"},
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{
			types.MessageSystemAttributeNameAll},
	})
	if gone := (*types.QueueDoesNotExist)(nil); errors.As(err, &gone) {
		return nil, dedup.Permanent(err)
	} else if err != nil {
		return nil, err
	}
	ds := make([]*queue.Delivery, len(out.Messages))
	for i := range out.Messages {
		ds[i] = s.Delivery(&out.Messages[i])
	}
	return ds, nil
}

// Delivery makes the delivery of a message that was received from the queue with all attributes and
// a visibility timeout of Options.AckWait. Call it when the message arrives. Use it with
// [queue.Consumer.HandleAll].
func (s *Source) Delivery(m *types.Message) *queue.Delivery {
	d := &queue.Delivery{ID: s.id(m), Scope: s.scope, Payload: []byte(aws.ToString(m.Body)), Raw: m,
		Every: s.opts.AckWait / 4}
	d.Deliveries, _ = strconv.Atoi(
		m.Attributes[string(types.MessageSystemAttributeNameApproximateReceiveCount)])
	if s.fifo {
		d.Key = m.Attributes[string(types.MessageSystemAttributeNameMessageGroupId)]
	}
	d.Ack = func(ctx context.Context) error {
		_, err := s.client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: &s.opts.QueueURL,
			ReceiptHandle: m.ReceiptHandle})
		return err
	}
	received := time.Now()
	d.Extend = func(ctx context.Context) error { return s.hide(ctx, m, received, s.opts.AckWait) }
	d.Nack = func(ctx context.Context, after time.Duration) error {
		return s.hide(ctx, m, received, after)
	}
	if s.opts.DeadLetters != "" {
		d.Park = func(ctx context.Context, reason error) error { return s.park(ctx, d, m, reason) }
	}
	return d
}

func (s *Source) id(m *types.Message) string {
	if given := m.MessageAttributes[s.opts.IDAttribute].StringValue; given != nil {
		return *given
	}
	digest := sha256.Sum256([]byte(aws.ToString(m.Body)))
	id := m.Attributes[string(types.MessageSystemAttributeNameMessageDeduplicationId)]
	if id != "" && id != hex.EncodeToString(digest[:]) {
		return id
	}
	return aws.ToString(m.MessageId)
}

// hide has the message delivered again when d has passed, or before the 12 hours end that SQS
// counts from its receipt: SQS refuses a timeout that ends later, and would then deliver the
// message when the last one ends.
func (s *Source) hide(ctx context.Context, m *types.Message, received time.Time,
	d time.Duration) error {
	left := maxAckWait - time.Since(received) - clockSlack
	if d > 0 && left <= 0 {
		return errTimeUsedUp
	}
	seconds := (min(d, left) + time.Second - 1) / time.Second
	_, err := s.client.ChangeMessageVisibility(ctx, &sqs.ChangeMessageVisibilityInput{
		QueueUrl: &s.opts.QueueURL, ReceiptHandle: m.ReceiptHandle,
		VisibilityTimeout: int32(max(seconds, 0))})
	return err
}

// textOf returns an error's text without the characters that SQS refuses, in one line.
func textOf(err error) string {
	text := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && !unicode.IsSpace(r) || r == utf8.RuneError || r&^1 == 0xFFFE {
			return -1
		}
		return r
	}, err.Error())
	text = strings.Join(strings.Fields(text), " ")
	return strings.ToValidUTF8(text[:min(len(text), maxText)], "")
}

func (s *Source) park(ctx context.Context, d *queue.Delivery, m *types.Message,
	reason error) error {
	attributes := map[string]types.MessageAttributeValue{}
	for name, text := range map[string]string{AttributeID: d.ID, AttributeScope: d.Scope,
		AttributeError: textOf(reason)} {
		if text != "" { // SQS takes no empty one
			attributes[name] = types.MessageAttributeValue{DataType: aws.String("String"),
				StringValue: aws.String(text)}
		}
	}
	for name, value := range m.MessageAttributes {
		if _, own := attributes[name]; !own && len(attributes) < maxAttributes {
			attributes[name] = value
		}
	}
	in := &sqs.SendMessageInput{QueueUrl: &s.opts.DeadLetters, MessageBody: m.Body,
		MessageAttributes: attributes}
	if strings.HasSuffix(s.opts.DeadLetters, ".fifo") {
		in.MessageGroupId = aws.String(cmp.Or(d.Key, "parked"))
		in.MessageDeduplicationId = m.MessageId
	}
	_, err := s.client.SendMessage(ctx, in)
	return err
}
