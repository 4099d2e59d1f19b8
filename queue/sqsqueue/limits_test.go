package sqsqueue_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/queue/sqsqueue"
)

// request is what a source sends.
type request struct {
	VisibilityTimeout int
	MessageAttributes map[string]struct{ StringValue string }
}

// recorder answers each request with an empty answer, and keeps the last one.
type recorder struct{ last request }

func (r *recorder) Do(req *http.Request) (*http.Response, error) {
	r.last = request{}
	if err := json.NewDecoder(req.Body).Decode(&r.last); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{},
		Body: io.NopCloser(strings.NewReader("{}")), Request: req}, nil
}

func recording(t *testing.T, opts sqsqueue.Options) (*sqsqueue.Source, *recorder) {
	t.Helper()
	r := new(recorder)
	client := sqs.New(sqs.Options{Region: "eu-west-1", HTTPClient: r,
		BaseEndpoint: aws.String("http://sqs.example.com"), DisableMessageChecksumValidation: true,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
		})})
	opts.QueueURL = "https://sqs.example.com/123/orders"
	src, err := sqsqueue.New(client, opts)
	require.NoError(t, err)
	return src, r
}

// SQS refuses a visibility timeout that would end more than 12 hours after the message was received
// (github.com/aws/aws-sdk-net/issues/794). A message whose nack is refused is redelivered after
// AckWait.
func TestTwelveHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, sent := recording(t, sqsqueue.Options{AckWait: 12 * time.Hour})
		m := &types.Message{MessageId: aws.String("m"), ReceiptHandle: aws.String("r")}
		received := time.Now()
		d := src.Delivery(m)
		const limit = 12 * 60 * 60
		for _, c := range []struct {
			name string
			call func() error
		}{
			{"nack", func() error { return d.Nack(t.Context(), 24*time.Hour) }},
			{"extend", func() error { return d.Extend(t.Context()) }},
		} {
			for _, elapsed := range []int{0, 3 * 60 * 60} {
				time.Sleep(time.Duration(elapsed) * time.Second)
				since := int(time.Since(received) / time.Second)
				require.NoError(t, c.call())
				assert.Less(t, since+sent.last.VisibilityTimeout, limit, c.name)
				assert.Greater(t, since+sent.last.VisibilityTimeout, limit-120, c.name)
			}
		}
		require.NoError(t, d.Nack(t.Context(), time.Minute))
		assert.Equal(t, 60, sent.last.VisibilityTimeout)
		time.Sleep(6 * time.Hour)
		sent.last = request{}
		require.Error(t, d.Extend(t.Context()), "the time is used up")
		require.Error(t, d.Nack(t.Context(), time.Minute))
		require.NoError(t, d.Nack(t.Context(), 0))
		assert.Zero(t, sent.last.VisibilityTimeout)
	})
}

// SQS refuses a message with control characters, and one that is too large.
func TestReasonOfADeadLetter(t *testing.T) {
	src, sent := recording(t, sqsqueue.Options{DeadLetters: "https://sqs.example.com/123/dead"})
	d := src.Delivery(&types.Message{MessageId: aws.String("m"), Body: aws.String("body")})
	require.NoError(t, d.Park(t.Context(), errors.New("bad\x00 byte\x1b[31m \xff"+
		strings.Repeat("ä", 1000))))
	got := sent.last.MessageAttributes[sqsqueue.AttributeError].StringValue
	assert.True(t, strings.HasPrefix(got, "bad byte[31m ää"), got)
	assert.LessOrEqual(t, len(got), 1024)
	assert.NotContains(t, got, "\uFFFD")
}
