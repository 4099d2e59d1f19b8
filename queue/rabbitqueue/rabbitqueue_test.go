package rabbitqueue_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/internal/servertest/redisrecords"
	"github.com/onceward/onceward/queue"
	"github.com/onceward/onceward/queue/queuetest"
	"github.com/onceward/onceward/queue/rabbitqueue"
)

// wire makes connections that can be cut for good.
type wire struct {
	url string

	mu    sync.Mutex
	dead  bool
	conns []net.Conn
}

var errCut = errors.New("the wire is cut")

func (w *wire) dial() (*amqp.Connection, error) {
	return amqp.DialConfig(w.url, amqp.Config{Heartbeat: 10 * time.Second,
		Dial: func(network, addr string) (net.Conn, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.dead {
				return nil, errCut
			}
			conn, err := amqp.DefaultDial(30*time.Second)(network, addr)
			if err == nil {
				w.conns = append(w.conns, conn)
			}
			return conn, err
		}})
}

func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead = true
	for _, conn := range w.conns {
		_ = conn.Close()
	}
}

// looker has a channel to look with, also after a restart of the broker.
type looker struct {
	url string
	ch  *amqp.Channel
}

func (l *looker) channel(t testing.TB) *amqp.Channel {
	t.Helper()
	if l.ch == nil || l.ch.IsClosed() {
		conn, err := amqp.Dial(l.url)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		l.ch, err = conn.Channel()
		require.NoError(t, err)
		require.NoError(t, l.ch.Confirm(false))
	}
	return l.ch
}

func (l *looker) declare(t testing.TB, name string) {
	t.Helper()
	_, err := l.channel(t).QueueDeclare(name, true, false, false, false,
		amqp.Table{"x-queue-type": "quorum"})
	require.NoError(t, err)
}

func (l *looker) ready(t testing.TB, name string) int {
	t.Helper()
	q, err := l.channel(t).QueueDeclarePassive(name, true, false, false, false, nil)
	require.NoError(t, err)
	return q.Messages
}

// send returns when every message is confirmed.
func (l *looker) send(t testing.TB, name string, messages ...amqp.Publishing) {
	t.Helper()
	var last *amqp.DeferredConfirmation
	for _, m := range messages {
		var err error
		last, err = l.channel(t).PublishWithDeferredConfirm("", name, true, false, m)
		require.NoError(t, err)
	}
	taken, err := last.WaitContext(t.Context())
	require.NoError(t, err)
	require.True(t, taken)
}

// total is how many messages a queue has, with those that are delivered and not acknowledged. Only
// the broker knows. It is asked over Erlang's distribution, because rabbitmqctl takes a second.
func total(t testing.TB, s *servertest.Server, name string) (n int) {
	t.Helper()
	var port int
	_, err := fmt.Sscanf(s.Addr, "amqp://guest:guest@127.0.0.1:%d/", &port)
	require.NoError(t, err)
	env := strings.Replace(string(s.File("ctl")), "/usr/lib/rabbitmq/bin/rabbitmqctl", "erl_call",
		1)
	ask := fmt.Sprintf(`{ok, Q} = rabbit_amqqueue:lookup(`+
		`rabbit_misc:r(<<"/">>, queue, <<"%s">>)), {ok, {_, N}, _} = ra:leader_query(`+
		`amqqueue:get_pid(Q), fun rabbit_fifo:query_messages_total/1), N.`+"\n", name)
	var out []byte
	for range 300 { // a broker that is busy, or starts again, refuses the call
		call := exec.CommandContext(context.WithoutCancel(t.Context()), "sh", "-c", env, "ctl",
			"-e", "-address", fmt.Sprintf("127.0.0.1:%d", port+1))
		call.Stdin = strings.NewReader(ask)
		if out, err = call.CombinedOutput(); err == nil {
			break
		}
		<-time.After(100 * time.Millisecond)
	}
	require.NoError(t, err, "%s", out)
	_, err = fmt.Sscanf(string(out), "{ok, %d}", &n)
	require.NoError(t, err, "%s", out)
	return n
}

func newQueue(t testing.TB, s *servertest.Server, name string) queuetest.Queue {
	t.Helper()
	look, dead := &looker{url: s.Addr}, name+".dead"
	look.declare(t, name)
	look.declare(t, dead)
	return queuetest.Queue{
		Send: func(t testing.TB, messages ...queuetest.Message) {
			t.Helper()
			var all []amqp.Publishing
			for _, m := range messages {
				all = append(all, amqp.Publishing{MessageId: m.ID, DeliveryMode: amqp.Persistent,
					Body: queuetest.PayloadOf(m.ID)})
			}
			look.send(t, name, all...)
		},
		Connect: func(t testing.TB) (queue.Source, func()) {
			t.Helper()
			w := &wire{url: s.Addr}
			src, err := rabbitqueue.New(rabbitqueue.Options{Queue: name, Dial: w.dial,
				DeadLetters: dead})
			require.NoError(t, err)
			return src, func() {
				w.cut()
				src.Close()
			}
		},
		Left: func(t testing.TB) int { return total(t, s, name) },
		Parked: func(t testing.TB) (ids []string) {
			t.Helper()
			for range look.ready(t, dead) {
				m, ok, err := look.channel(t).Get(dead, true)
				require.NoError(t, err)
				require.True(t, ok)
				assert.NotEmpty(t, m.Headers[rabbitqueue.HeaderError])
				ids = append(ids, m.Headers[rabbitqueue.HeaderID].(string))
				look.send(t, dead, amqp.Publishing{Headers: m.Headers, Body: m.Body})
			}
			return ids
		},
		Restart: func(testing.TB) {
			s.Kill(1)
			s.Start(1)
		},
		Records: redisrecords.Start,
	}
}

func TestConforms(t *testing.T) {
	s := servertest.Private(t, servertest.KindRabbitMQ)
	var queues atomic.Int32
	queuetest.Run(t, func(t testing.TB) queuetest.Queue {
		return newQueue(t, s, fmt.Sprint("orders-", queues.Add(1)))
	})
}
