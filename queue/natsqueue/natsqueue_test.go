package natsqueue_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/servertest/redisrecords"
	"github.com/onceward/onceward/queue"
	"github.com/onceward/onceward/queue/natsqueue"
	"github.com/onceward/onceward/queue/queuetest"
)

const ackWait = time.Second

// broker is a real nats-server in this process, with its files in a directory of the test.
type broker struct {
	opts *server.Options
	srv  *server.Server
}

func startBroker(t testing.TB) *broker {
	t.Helper()
	b := &broker{opts: &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true,
		NoSigs: true, JetStream: true, StoreDir: t.TempDir()}}
	b.start(t)
	t.Cleanup(func() { b.srv.Shutdown(); b.srv.WaitForShutdown() })
	return b
}

func (b *broker) start(t testing.TB) {
	t.Helper()
	srv, err := server.NewServer(b.opts)
	require.NoError(t, err)
	srv.Start()
	require.True(t, srv.ReadyForConnections(30*time.Second), "nats-server does not answer")
	b.srv = srv
}

// restart stops the server and starts it on its port with its files.
func (b *broker) restart(t testing.TB) {
	t.Helper()
	b.opts.Port = b.port()
	b.srv.Shutdown()
	b.srv.WaitForShutdown()
	b.start(t)
}

func (b *broker) port() int {
	var port int
	_, _ = fmt.Sscanf(b.srv.ClientURL(), "nats://127.0.0.1:%d", &port)
	return port
}

func (b *broker) connect(t testing.TB) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(b.srv.ClientURL(), nats.ReconnectWait(50*time.Millisecond),
		nats.MaxReconnects(-1))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	return js
}

var streams atomic.Int32

// newQueue makes a stream with a consumer, and one for dead letters.
func newQueue(t testing.TB, b *broker) queuetest.Queue {
	t.Helper()
	ctx := t.Context()
	js := b.connect(t)
	n := streams.Add(1)
	name, dead := fmt.Sprintf("ORDERS-%d", n), fmt.Sprintf("DEAD-%d", n)
	orders, err := js.CreateStream(ctx,
		jetstream.StreamConfig{Name: name, Subjects: []string{name}})
	require.NoError(t, err)
	letters, err := js.CreateStream(ctx,
		jetstream.StreamConfig{Name: dead, Subjects: []string{dead}})
	require.NoError(t, err)
	consumer, err := js.CreateConsumer(ctx, name, jetstream.ConsumerConfig{Durable: "billing",
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait})
	require.NoError(t, err)
	return queuetest.Queue{
		AckWait: ackWait,
		Send: func(t testing.TB, messages ...queuetest.Message) {
			t.Helper()
			for _, m := range messages {
				// Not as Nats-Msg-Id: the stream would drop the copies that the suite sends.
				msg := nats.NewMsg(name)
				msg.Data = queuetest.PayloadOf(m.ID)
				msg.Header.Set("Order", m.ID)
				_, err := js.PublishMsg(t.Context(), msg)
				require.NoError(t, err)
			}
		},
		Connect: func(t testing.TB) (queue.Source, func()) {
			t.Helper()
			own := b.connect(t)
			consumer, err := own.Consumer(t.Context(), name, "billing")
			require.NoError(t, err)
			src, err := natsqueue.New(consumer, natsqueue.Options{DeadLetters: dead, Publisher: own,
				ID: func(m jetstream.Msg) string { return m.Headers().Get("Order") }})
			require.NoError(t, err)
			return src, own.Conn().Close
		},
		Left: func(t testing.TB) int {
			t.Helper()
			info, err := consumer.Info(t.Context())
			require.NoError(t, err)
			sent, err := orders.Info(t.Context())
			require.NoError(t, err)
			// Not NumPending: the server counts a message there some time after its publisher has
			// the acknowledgement.
			return int(sent.State.LastSeq-info.Delivered.Stream) + info.NumAckPending
		},
		Parked: func(t testing.TB) (ids []string) {
			t.Helper()
			info, err := letters.Info(t.Context())
			require.NoError(t, err)
			for seq := uint64(1); seq <= info.State.LastSeq; seq++ {
				m, err := letters.GetMsg(t.Context(), seq)
				require.NoError(t, err)
				assert.NotEmpty(t, m.Header.Get(natsqueue.HeaderError))
				ids = append(ids, m.Header.Get(natsqueue.HeaderID))
			}
			return ids
		},
		Restart: b.restart, Records: redisrecords.Start,
	}
}

func TestConforms(t *testing.T) {
	b := startBroker(t)
	queuetest.Run(t, func(t testing.TB) queuetest.Queue { return newQueue(t, b) })
}
