package pubsubqueue_test

import (
	"context"
	"errors"
	"flag"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/servertest/redisrecords"
	"github.com/onceward/onceward/queue"
	"github.com/onceward/onceward/queue/pubsubqueue"
	"github.com/onceward/onceward/queue/queuetest"
)

const (
	orders  = "projects/p/topics/orders"
	dead    = "projects/p/topics/dead"
	billing = "projects/p/subscriptions/billing"
)

func connect(t testing.TB, server *pstest.Server) *pubsub.Client {
	t.Helper()
	client, err := pubsub.NewClient(t.Context(), "p", option.WithEndpoint(server.Addr),
		option.WithoutAuthentication(),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// subscriber is quick to give up what a dead process holds: the service allows no less than 10 s.
func subscriber(client *pubsub.Client) *pubsub.Subscriber {
	sub := client.Subscriber("billing")
	sub.ReceiveSettings.MaxDurationPerAckExtension = 10 * time.Second
	sub.ReceiveSettings.MaxOutstandingMessages = 100
	sub.ReceiveSettings.ShutdownOptions = &pubsub.ShutdownOptions{Timeout: time.Second,
		Behavior: pubsub.ShutdownBehaviorNackImmediately}
	return sub
}

// serve starts a server with a topic, its subscription, and a topic for dead letters.
func serve(t testing.TB) (*pstest.Server, *pubsub.Client) {
	t.Helper()
	server := pstest.NewServer()
	t.Cleanup(func() { _ = server.Close() })
	client := connect(t, server)
	for _, topic := range []string{orders, dead} {
		_, err := client.TopicAdminClient.CreateTopic(t.Context(), &pubsubpb.Topic{Name: topic})
		require.NoError(t, err)
	}
	_, err := client.SubscriptionAdminClient.CreateSubscription(t.Context(),
		&pubsubpb.Subscription{Name: billing, Topic: orders, AckDeadlineSeconds: 10})
	require.NoError(t, err)
	return server, client
}

func newQueue(t testing.TB) queuetest.Queue {
	t.Helper()
	server, _ := serve(t)
	return queuetest.Queue{
		Send: func(_ testing.TB, messages ...queuetest.Message) {
			for _, m := range messages {
				server.Publish(orders, queuetest.PayloadOf(m.ID), map[string]string{"id": m.ID})
			}
		},
		Connect: func(t testing.TB) (queue.Source, func()) {
			t.Helper()
			own := connect(t, server)
			src, err := pubsubqueue.New(subscriber(own),
				pubsubqueue.Options{DeadLetters: own.Publisher("dead")})
			require.NoError(t, err)
			return src, func() {
				_ = own.Close()
				src.Close()
			}
		},
		Left: func(testing.TB) (n int) {
			for _, m := range server.Messages() {
				if m.Topic == orders && m.Acks == 0 {
					n++
				}
			}
			return n
		},
		Parked: func(t testing.TB) (ids []string) {
			t.Helper()
			for _, m := range server.Messages() {
				if m.Topic == dead {
					assert.NotEmpty(t, m.Attributes[pubsubqueue.AttributeError])
					ids = append(ids, m.Attributes[pubsubqueue.AttributeID])
				}
			}
			return ids
		},
		Records: redisrecords.Start,
	}
}

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", atOnce); err != nil {
		panic(err)
	}
	m.Run()
}

func TestConforms(t *testing.T) {
	queuetest.Run(t, func(t testing.TB) queuetest.Queue {
		q := newQueue(t)
		q.IDs = ids // pstest looks at every message of a topic for each one
		return q
	})
}

func TestNewRefuses(t *testing.T) {
	var input *dedup.InputError
	_, err := pubsubqueue.New(nil, pubsubqueue.Options{})
	require.ErrorAs(t, err, &input)
	server := pstest.NewServer()
	t.Cleanup(func() { _ = server.Close() })
	sub := subscriber(connect(t, server))
	sub.ReceiveSettings.MaxExtension = -1
	_, err = pubsubqueue.New(sub, pubsubqueue.Options{})
	require.ErrorAs(t, err, &input)
	assert.Equal(t, "pubsubqueue.ReceiveSettings.MaxExtension", input.Field)
}

// newSource is that of a new topic and subscription, with a topic for dead letters.
func newSource(t *testing.T) (*pubsubqueue.Source, *pstest.Server) {
	t.Helper()
	server, client := serve(t)
	src, err := pubsubqueue.New(subscriber(client),
		pubsubqueue.Options{DeadLetters: client.Publisher("dead")})
	require.NoError(t, err)
	t.Cleanup(src.Close)
	return src, server
}

func fetchOne(t *testing.T, src queue.Source) *queue.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	ds, err := src.Fetch(ctx, 1)
	require.NoError(t, err)
	require.Len(t, ds, 1)
	return ds[0]
}

func TestDelivery(t *testing.T) {
	src, server := newSource(t)
	server.Publish(orders, []byte("body"), map[string]string{"id": "order-1"})
	d := fetchOne(t, src)
	assert.Equal(t, "order-1", d.ID)
	assert.Equal(t, billing, d.Scope)
	assert.Equal(t, "body", string(d.Payload))
	require.NoError(t, d.Ack(t.Context()))
	m := server.Publish(orders, nil, nil)
	d = fetchOne(t, src)
	assert.Equal(t, m, d.ID, "the id that the service gave it")
	require.NoError(t, d.Ack(t.Context()))
}

// A message that is not done is redelivered after its time, and not before.
func TestNack(t *testing.T) {
	const wait = 300 * time.Millisecond
	src, server := newSource(t)
	server.Publish(orders, nil, map[string]string{"id": "order-1"})
	require.NoError(t, fetchOne(t, src).Nack(t.Context(), 0))
	d, began := fetchOne(t, src), time.Now()
	require.NoError(t, d.Nack(t.Context(), wait))
	d = fetchOne(t, src)
	assert.GreaterOrEqual(t, time.Since(began), wait)
	require.NoError(t, d.Ack(t.Context()))
}

// A dead letter is the message with its attributes, and with a reason that an attribute can hold.
func TestDeadLetter(t *testing.T) {
	src, server := newSource(t)
	server.Publish(orders, []byte("body"), map[string]string{"id": "order-1", "tenant": "a"})
	d := fetchOne(t, src)
	reason := "no\nsuch \xff" + strings.Repeat("\u20ac", 1000)
	require.NoError(t, d.Park(t.Context(), errors.New(reason)))
	require.NoError(t, d.Ack(t.Context()))
	for _, m := range server.Messages() {
		if m.Topic != dead {
			continue
		}
		text := m.Attributes[pubsubqueue.AttributeError]
		assert.True(t, strings.HasPrefix(text, "no such \u20ac\u20ac"), text)
		assert.Greater(t, len(text), 1020)
		assert.LessOrEqual(t, len(text), 1024)
		m.Attributes[pubsubqueue.AttributeError] = ""
		assert.Equal(t, map[string]string{"id": "order-1", "tenant": "a",
			pubsubqueue.AttributeID: "order-1", pubsubqueue.AttributeScope: billing,
			pubsubqueue.AttributeError: ""}, m.Attributes)
		assert.Equal(t, "body", string(m.Data))
		return
	}
	assert.Fail(t, "there is no letter")
}

// A subscription that does not exist is not asked forever.
func TestGone(t *testing.T) {
	server := pstest.NewServer()
	t.Cleanup(func() { _ = server.Close() })
	src, err := pubsubqueue.New(subscriber(connect(t, server)), pubsubqueue.Options{})
	require.NoError(t, err)
	_, err = src.Fetch(t.Context(), 1)
	assert.True(t, dedup.IsPermanent(err), "%v", err)
	src.Close()
}
