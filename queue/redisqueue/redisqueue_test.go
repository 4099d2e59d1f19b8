package redisqueue_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/internal/servertest/redisrecords"
	"github.com/onceward/onceward/queue"
	"github.com/onceward/onceward/queue/queuetest"
	"github.com/onceward/onceward/queue/redisqueue"
)

const ackWait = time.Second

func connect(t testing.TB, addr string) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// newQueue makes a stream with a group.
func newQueue(t testing.TB, addr, name string) queuetest.Queue {
	t.Helper()
	client, dead := connect(t, addr), name+".dead"
	require.NoError(t, client.XGroupCreateMkStream(t.Context(), name, "billing", "0").Err())
	var processes atomic.Int32
	return queuetest.Queue{
		AckWait: ackWait, Records: redisrecords.Start,
		Send: func(t testing.TB, messages ...queuetest.Message) {
			t.Helper()
			pipe := client.Pipeline()
			for _, m := range messages {
				pipe.XAdd(t.Context(), &redis.XAddArgs{Stream: name,
					Values: []any{"id", m.ID, "payload", queuetest.PayloadOf(m.ID)}})
			}
			_, err := pipe.Exec(t.Context())
			require.NoError(t, err)
		},
		Connect: func(t testing.TB) (queue.Source, func()) {
			t.Helper()
			own := connect(t, addr)
			src, err := redisqueue.New(own, redisqueue.Options{Stream: name, Group: "billing",
				Consumer: fmt.Sprintf("process %d", processes.Add(1)), AckWait: ackWait,
				DeadLetters: dead})
			require.NoError(t, err)
			return src, func() { _ = own.Close() }
		},
		Left: func(t testing.TB) int {
			t.Helper()
			groups, err := client.XInfoGroups(t.Context(), name).Result()
			require.NoError(t, err)
			require.Len(t, groups, 1)
			return int(groups[0].Lag + groups[0].Pending)
		},
		Parked: func(t testing.TB) (ids []string) {
			t.Helper()
			letters, err := client.XRange(t.Context(), dead, "-", "+").Result()
			require.NoError(t, err)
			for _, m := range letters {
				assert.NotEmpty(t, m.Values[redisqueue.FieldError])
				ids = append(ids, m.Values[redisqueue.FieldID].(string))
			}
			return ids
		},
	}
}

func TestConforms(t *testing.T) {
	srv := servertest.Private(t, servertest.KindRedis)
	// A restart is to lose nothing that was acknowledged to the test.
	require.NoError(t, connect(t, srv.Addr).ConfigSet(t.Context(), "appendfsync", "always").Err())
	var queues atomic.Int32
	queuetest.Run(t, func(t testing.TB) queuetest.Queue {
		q := newQueue(t, srv.Addr, fmt.Sprintf("orders-%d", queues.Add(1)))
		q.Restart = func(testing.TB) {
			srv.Kill(1)
			srv.Start(1)
		}
		return q
	})
}
