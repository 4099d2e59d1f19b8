package docs_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"github.com/aws/aws-sdk-go-v2/aws"
	_ "github.com/aws/aws-sdk-go-v2/config" // of the guide's program
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/servertest"
)

// broker is a broker that the program of the guide connects to.
type broker struct {
	env  []string
	send func(id string)
	left func() int // the messages that are not acknowledged, when no program runs

	shown []string // what the program prints for the messages that the page's commands sent
}

// TestQueuesGuide: with every broker a message that was sent again has no second effect, and all
// are acknowledged when the program has ended.
func TestQueuesGuide(t *testing.T) {
	records := servertest.Private(t, servertest.KindRedis).Addr
	for name, open := range map[string]func(*testing.T, string) broker{"natsqueue": natsBroker,
		"rabbitqueue": rabbitBroker, "redisqueue": redisBroker, "sqsqueue": sqsBroker,
		"pubsubqueue": pubsubBroker} {
		t.Run(name, func(t *testing.T) {
			file := programOf(t, "docs/guides/queues.md", "broker.go",
				"/queue/"+name+`"`, strings.NewReplacer("natsqueue", name))
			b := open(t, records)
			env := append(slices.Clone(b.env), "REDIS_ADDR="+records)
			ids, want := []string(nil), b.shown
			for i := range 20 {
				ids = append(ids, fmt.Sprintf("%s-%d", name, i))
				want = append(want, "billed "+ids[i])
			}
			for _, id := range slices.Concat(ids, ids) {
				b.send(id)
			}
			p := start(t, file, env...)
			for _, line := range want {
				p.until(line)
			}
			each(t, p.stop(), want...)

			for _, id := range append(slices.Clone(ids), "last "+name) {
				b.send(id)
			}
			var got []string // of all rounds: an order that was not begun is given back
			for round := 0; round == 0 || b.left() > 0; round++ {
				require.Less(t, round, 5, "messages are not acknowledged")
				p = start(t, file, env...)
				if round == 0 { // left does not count the messages that a program holds
					p.until("billed last " + name)
				}
				require.Eventually(t, func() bool { return b.left() == 0 }, 3*time.Minute,
					50*time.Millisecond, "messages are not acknowledged")
				got = append(got, p.stop()...)
			}
			each(t, got, "billed last "+name)
		})
	}
}

func natsBroker(t *testing.T, _ string) broker {
	t.Helper()
	srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT,
		NoLog: true, NoSigs: true, JetStream: true, StoreDir: t.TempDir()})
	require.NoError(t, err)
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	require.True(t, srv.ReadyForConnections(time.Minute), "nats-server does not answer")
	conn, err := nats.Connect(srv.ClientURL())
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	for name, subject := range map[string]string{"ORDERS": "orders", "DEAD": "dead.orders"} {
		_, err := js.CreateStream(t.Context(),
			jetstream.StreamConfig{Name: name, Subjects: []string{subject},
				Duplicates: 100 * time.Millisecond}) // short, or NATS would drop the copies
		require.NoError(t, err)
	}
	return broker{env: []string{"NATS_URL=" + srv.ClientURL()},
		send: func(id string) {
			_, err := js.Publish(t.Context(), "orders", []byte(id), jetstream.WithMsgID(id))
			require.NoError(t, err)
		},
		left: func() int {
			consumer, err := js.Consumer(t.Context(), "ORDERS", "billing")
			require.NoError(t, err)
			info := consumer.CachedInfo()
			orders, err := js.Stream(t.Context(), "ORDERS")
			require.NoError(t, err)
			// Not NumPending: the server counts a message there some time after it acknowledges it.
			return int(orders.CachedInfo().State.LastSeq-info.Delivered.Stream) + info.NumAckPending
		}}
}

func rabbitBroker(t *testing.T, _ string) broker {
	t.Helper()
	url := servertest.Private(t, servertest.KindRabbitMQ).Addr
	conn, err := amqp.Dial(url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	require.NoError(t, err)
	require.NoError(t, ch.Confirm(false))
	for _, name := range []string{"orders", "orders.dead"} {
		_, err := ch.QueueDeclare(name, true, false, false, false,
			amqp.Table{"x-queue-type": "quorum"})
		require.NoError(t, err)
	}
	return broker{env: []string{"AMQP_URL=" + url},
		send: func(id string) {
			taken, err := ch.PublishWithDeferredConfirm("", "orders", true, false,
				amqp.Publishing{MessageId: id, DeliveryMode: amqp.Persistent})
			require.NoError(t, err)
			confirmed, err := taken.WaitContext(t.Context())
			require.NoError(t, err)
			require.True(t, confirmed)
		},
		left: func() int { // without those that a program has
			q, err := ch.QueueDeclarePassive("orders", true, false, false, false, nil)
			require.NoError(t, err)
			return q.Messages
		}}
}

func redisBroker(t *testing.T, records string) broker {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: records})
	t.Cleanup(func() { _ = client.Close() })
	host, port, err := net.SplitHostPort(records)
	require.NoError(t, err)
	const page = "docs/guides/queues.md"
	runPage(t, page, "XGROUP CREATE", "redis-cli", "redis-cli -h "+host+" -p "+port)
	return broker{shown: []string{blockWith(t, page, "billed evt_1")},
		send: func(id string) {
			require.NoError(t, client.XAdd(t.Context(), &redis.XAddArgs{Stream: "orders",
				Values: []any{"id", id, "payload", ""}}).Err())
		},
		left: func() int {
			groups, err := client.XInfoGroups(t.Context(), "orders").Result()
			require.NoError(t, err)
			require.Len(t, groups, 1)
			return int(groups[0].Lag + groups[0].Pending)
		}}
}

func sqsBroker(t *testing.T, _ string) broker {
	t.Helper()
	url := servertest.Moto(t)
	client := sqs.New(sqs.Options{Region: "eu-west-1", BaseEndpoint: &url,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
		})})
	var urls []*string
	for _, name := range []string{"orders", "dead"} {
		out, err := client.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &name})
		require.NoError(t, err)
		urls = append(urls, out.QueueUrl)
	}
	return broker{env: []string{"AWS_ENDPOINT_URL=" + url, "AWS_REGION=eu-west-1",
		"AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test", "QUEUE_URL=" + *urls[0],
		"DEAD_LETTERS_URL=" + *urls[1]},
		send: func(id string) {
			_, err := client.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: urls[0],
				MessageBody: aws.String("body"),
				MessageAttributes: map[string]types.MessageAttributeValue{
					"id": {DataType: aws.String("String"), StringValue: &id}}})
			require.NoError(t, err)
		},
		left: func() (n int) {
			out, err := client.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{
				QueueUrl: urls[0], AttributeNames: []types.QueueAttributeName{"All"}})
			require.NoError(t, err)
			for _, state := range []string{"", "NotVisible", "Delayed"} {
				var some int
				_, err := fmt.Sscan(out.Attributes["ApproximateNumberOfMessages"+state], &some)
				require.NoError(t, err)
				n += some
			}
			return n
		}}
}

func pubsubBroker(t *testing.T, _ string) broker {
	t.Helper()
	const topic, dead = "projects/p/topics/orders", "projects/p/topics/orders-dead"
	srv := pstest.NewServer()
	t.Cleanup(func() { _ = srv.Close() })
	t.Setenv("PUBSUB_EMULATOR_HOST", srv.Addr)
	client, err := pubsub.NewClient(t.Context(), "p")
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	for _, name := range []string{topic, dead} {
		_, err := client.TopicAdminClient.CreateTopic(t.Context(), &pubsubpb.Topic{Name: name})
		require.NoError(t, err)
	}
	_, err = client.SubscriptionAdminClient.CreateSubscription(t.Context(),
		&pubsubpb.Subscription{Name: "projects/p/subscriptions/billing", Topic: topic,
			AckDeadlineSeconds: 10})
	require.NoError(t, err)
	return broker{env: []string{"GOOGLE_CLOUD_PROJECT=p"},
		send: func(id string) { srv.Publish(topic, nil, map[string]string{"id": id}) },
		left: func() (n int) {
			for _, m := range srv.Messages() {
				if m.Topic == topic && m.Acks == 0 {
					n++
				}
			}
			return n
		}}
}
