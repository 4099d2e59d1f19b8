package sqsqueue_test

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/queue/sqsqueue"
)

func TestNewNamesTheBadOption(t *testing.T) {
	client := connect("http://127.0.0.1:1", new(wire))
	good := sqsqueue.Options{QueueURL: "https://sqs.example.com/123/orders"}
	for field, change := range map[string]func(*sqsqueue.Options){
		"QueueURL":    func(o *sqsqueue.Options) { o.QueueURL = "" },
		"AckWait":     func(o *sqsqueue.Options) { o.AckWait = 1500 * time.Millisecond },
		"AckWait ":    func(o *sqsqueue.Options) { o.AckWait = 13 * time.Hour },
		"DeadLetters": func(o *sqsqueue.Options) { o.DeadLetters = o.QueueURL },
	} {
		opts := good
		change(&opts)
		_, err := sqsqueue.New(client, opts)
		var input *dedup.InputError
		require.ErrorAs(t, err, &input, field)
		assert.Contains(t, "sqsqueue.Options."+field, input.Field)
	}
	_, err := sqsqueue.New(nil, good)
	require.Error(t, err)
}

// Two operations may have the same body. So its digest, which is the deduplication id in a queue
// with content-based deduplication, must not be their id.
func TestID(t *testing.T) {
	digest := sha256.Sum256([]byte("body"))
	for name, c := range map[string]struct {
		attribute, deduplication, want string
	}{
		"attribute":          {"order-1", "other", "order-1"},
		"deduplication id":   {"", "order-1", "order-1"},
		"digest of the body": {"", hex.EncodeToString(digest[:]), "message"},
		"neither":            {"", "", "message"},
	} {
		m := &types.Message{MessageId: aws.String("message"), Body: aws.String("body"),
			MessageAttributes: map[string]types.MessageAttributeValue{},
			Attributes: map[string]string{"MessageGroupId": "customer-1",
				"ApproximateReceiveCount": "3", "MessageDeduplicationId": c.deduplication}}
		if c.attribute != "" {
			m.MessageAttributes["id"] = text(c.attribute)
		}
		for queue, key := range map[string]string{"orders": "", "orders.fifo": "customer-1"} {
			src, err := sqsqueue.New(connect("http://127.0.0.1:1", new(wire)),
				sqsqueue.Options{QueueURL: "https://sqs.example.com/123/" + queue})
			require.NoError(t, err)
			d := src.Delivery(m)
			assert.Equal(t, c.want, d.ID, name)
			assert.Equal(t, "123/"+queue, d.Scope)
			assert.Equal(t, key, d.Key)
			assert.Equal(t, 3, d.Deliveries)
			assert.Equal(t, "body", string(d.Payload))
		}
	}
}
