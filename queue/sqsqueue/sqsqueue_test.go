package sqsqueue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/internal/servertest/redisrecords"
	"github.com/onceward/onceward/queue"
	"github.com/onceward/onceward/queue/queuetest"
	"github.com/onceward/onceward/queue/sqsqueue"
)

// ackWait is long enough for moto, which may take two seconds on a busy machine. There a
// deletion that comes after it may block a FIFO group for good.
const ackWait = 3 * time.Second

// wire is a connection that can be cut for good, and that can be bad: then some requests are
// refused, some are slow, and some are executed and not answered.
type wire struct {
	cut atomic.Bool
	bad bool
}

var errWire = errors.New("the wire is cut")

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	fate := 0
	if w.bad {
		fate = rand.IntN(20)
	}
	if w.cut.Load() || fate == 1 {
		return nil, errWire
	}
	if fate == 2 {
		select {
		case <-time.After(200 * time.Millisecond):
		case <-r.Context().Done():
		}
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err == nil && (w.cut.Load() || fate == 3) {
		_ = res.Body.Close()
		return nil, errWire
	}
	return res, err
}

func connect(server string, w *wire) *sqs.Client {
	return sqs.New(sqs.Options{Region: "eu-west-1", BaseEndpoint: &server,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
		}),
		HTTPClient: &http.Client{Transport: w}})
}

func create(t testing.TB, client *sqs.Client, name string) *string {
	t.Helper()
	attributes := map[string]string{}
	if strings.HasSuffix(name, ".fifo") {
		attributes["FifoQueue"] = "true"
	}
	out, err := client.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &name,
		Attributes: attributes})
	require.NoError(t, err)
	return out.QueueUrl
}

func text(s string) types.MessageAttributeValue {
	return types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &s}
}

// newQueue makes a queue, and one for dead letters.
func newQueue(t testing.TB, server, name, suffix string, bad bool) queuetest.Queue {
	t.Helper()
	client := connect(server, new(wire))
	at, dead := create(t, client, name+suffix), create(t, client, name+"-dead")
	var sent int
	var letters []types.Message
	return queuetest.Queue{
		AckWait: ackWait, Records: redisrecords.Start,
		Send: func(t testing.TB, messages ...queuetest.Message) {
			t.Helper()
			var batch []types.SendMessageBatchRequestEntry
			for i, m := range messages {
				sent++
				entry := types.SendMessageBatchRequestEntry{Id: aws.String(fmt.Sprint(i)),
					MessageBody:       aws.String(string(queuetest.PayloadOf(m.ID))),
					MessageAttributes: map[string]types.MessageAttributeValue{"id": text(m.ID)}}
				if suffix != "" {
					entry.MessageGroupId = &m.ID
					if m.Key != "" {
						entry.MessageGroupId = &m.Key
					}
					// Copies are not dropped.
					entry.MessageDeduplicationId = aws.String(fmt.Sprint(sent))
				}
				if batch = append(batch, entry); len(batch) == 10 || i == len(messages)-1 {
					out, err := client.SendMessageBatch(t.Context(),
						&sqs.SendMessageBatchInput{QueueUrl: at, Entries: batch})
					require.NoError(t, err)
					require.Empty(t, out.Failed)
					batch = nil
				}
			}
		},
		Connect: func(t testing.TB) (queue.Source, func()) {
			t.Helper()
			w := &wire{bad: bad}
			src, err := sqsqueue.New(connect(server, w), sqsqueue.Options{QueueURL: *at,
				AckWait: ackWait, DeadLetters: *dead})
			require.NoError(t, err)
			return src, func() { w.cut.Store(true) }
		},
		Left: func(t testing.TB) int {
			t.Helper()
			return count(t, client, at)
		},
		Parked: func(t testing.TB) (ids []string) {
			t.Helper()
			letters = append(letters, receive(t, client, dead, count(t, client, dead))...)
			for _, m := range letters {
				assert.NotEmpty(t, *m.MessageAttributes[sqsqueue.AttributeError].StringValue)
				ids = append(ids, *m.MessageAttributes[sqsqueue.AttributeID].StringValue)
			}
			return ids
		},
	}
}

// receive takes n messages off a queue.
func receive(t testing.TB, client *sqs.Client, at *string, n int) (all []types.Message) {
	t.Helper()
	for len(all) < n {
		out, err := client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: at,
			MaxNumberOfMessages: 10, MessageAttributeNames: []string{"All"}})
		require.NoError(t, err)
		all = append(all, out.Messages...)
		for _, m := range out.Messages {
			_, err := client.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: at,
				ReceiptHandle: m.ReceiptHandle})
			require.NoError(t, err)
		}
	}
	return all
}

// count is how many messages a queue has, in whatever state.
func count(t testing.TB, client *sqs.Client, at *string) (n int) {
	t.Helper()
	out, err := client.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: at,
		AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll}})
	require.NoError(t, err)
	for _, name := range []types.QueueAttributeName{
		types.QueueAttributeNameApproximateNumberOfMessages,
		types.QueueAttributeNameApproximateNumberOfMessagesNotVisible,
		types.QueueAttributeNameApproximateNumberOfMessagesDelayed,
	} {
		var some int
		_, err := fmt.Sscan(out.Attributes[string(name)], &some)
		require.NoError(t, err)
		n += some
	}
	return n
}

func TestConforms(t *testing.T) {
	server := servertest.Moto(t)
	var queues atomic.Int32
	for name, suffix := range suites {
		t.Run(name, func(t *testing.T) {
			queuetest.Run(t, func(t testing.TB) queuetest.Queue {
				// Sent again after its answer was lost, a dead letter is there twice.
				bad := strings.HasSuffix(t.Name(), "/storm") || strings.HasSuffix(t.Name(), "_fails")
				q := newQueue(t, server, fmt.Sprint("orders-", queues.Add(1)), suffix, bad)
				q.IDs = ids // moto looks at every message of a queue in each request
				return q
			})
		})
	}
}
