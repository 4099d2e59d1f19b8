package redisproxy_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/redisproxy"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/internal/servertest"
)

// world is a Redis, a client that sees it as it is, and one behind the proxy.
type world struct {
	proxy  *redisproxy.Proxy
	direct *redis.Client
	broken *redis.Client
	prefix string
}

// eachRedis runs a test against miniredis, and a real Redis when there is one. retries
// is go-redis's MaxRetries: -1 for none, 0 for its default.
func eachRedis(t *testing.T, retries int, test func(t *testing.T, w *world)) {
	t.Run("miniredis", func(t *testing.T) {
		m, direct := redistest.Mini(t)
		test(t, newWorld(t, m.Addr(), direct, retries))
	})
	t.Run("redis", func(t *testing.T) {
		addr := servertest.Redis(t)
		test(t, newWorld(t, addr, redistest.Client(t, &redis.Options{Addr: addr}), retries))
	})
}

func newWorld(t *testing.T, addr string, direct *redis.Client, retries int) *world {
	t.Helper()
	p := redisproxy.Start(t, addr)
	broken := redistest.Client(t, &redis.Options{
		Addr: p.Addr(), MaxRetries: retries, ReadTimeout: time.Minute,
		MinRetryBackoff: time.Millisecond, MaxRetryBackoff: time.Millisecond,
	})
	return &world{proxy: p, direct: direct, broken: broken, prefix: servertest.Prefix(t)}
}

// key is removed when the test ends.
func (w *world) key(t *testing.T, name string) string {
	key := w.prefix + ":" + name
	t.Cleanup(func() { w.direct.Del(context.WithoutCancel(t.Context()), key) })
	return key
}

func (w *world) wantValue(t *testing.T, key, want string) {
	t.Helper()
	got, err := w.direct.Get(t.Context(), key).Result()
	if errors.Is(err, redis.Nil) {
		got, err = "", nil
	}
	assert.Equal(t, want, got, "%s = %q", key, got)
	assert.NoError(t, err, "%s = %q", key, got)
}

// TestExecutedWithoutReply is what the proxy is for: the server has executed the command
// and the client has an error; or the server has never seen it.
func TestExecutedWithoutReply(t *testing.T) {
	eachRedis(t, -1, func(t *testing.T, w *world) {
		for _, tt := range []struct {
			action redisproxy.Action
			value  string
		}{
			{redisproxy.DropReply, "v"},
			{redisproxy.TearReply, "v"},
			{redisproxy.DropRequest, ""},
		} {
			t.Run(tt.action.String(), func(t *testing.T) {
				key := w.key(t, tt.action.String())
				w.proxy.SetRules(redisproxy.Rule{Command: "SET", Action: tt.action})
				assert.Error(t, w.broken.Set(t.Context(), key, "v", time.Minute).Err(),
					"the client got an answer")
				w.wantValue(t, key, tt.value)
			})
		}
	})
}

// TestOwnClaimLooksTaken shows the trap that these faults are for: with the client's
// default retries a SET NX whose reply is lost answers "not set", of its own value.
func TestOwnClaimLooksTaken(t *testing.T) {
	eachRedis(t, 0, func(t *testing.T, w *world) {
		w.proxy.SetRules(redisproxy.Rule{Command: "SET", Action: redisproxy.DropReply, Count: 1})
		key := w.key(t, "claim")
		err := w.broken.SetArgs(t.Context(), key, "mine", redis.SetArgs{Mode: "NX"}).Err()
		assert.ErrorIs(t, err, redis.Nil, "SET NX")
		w.wantValue(t, key, "mine")
	})
}

// TestBlackHole: the client waits in vain, although the server has executed the command.
func TestBlackHole(t *testing.T) {
	eachRedis(t, -1, func(t *testing.T, w *world) {
		onFire, acted := fired()
		w.proxy.SetRules(redisproxy.Rule{Command: "INCR", Action: redisproxy.DropReply, Hang: true,
			OnFire: onFire})
		key := w.key(t, "counter")
		hung := redistest.Client(t,
			&redis.Options{Addr: w.proxy.Addr(), MaxRetries: -1, ReadTimeout: time.Minute})
		// hung has a connection now, so INCR is sent in any case
		require.NoError(t, hung.Ping(t.Context()).Err())
		err := hung.WithTimeout(50*time.Millisecond).Incr(t.Context(), key).Err()
		assert.ErrorContains(t, err, "timeout", "INCR")
		<-acted
		w.wantValue(t, key, "1")
	})
}

// TestScripts: a rule by the script's SHA-1 meets EVALSHA, and the EVAL that a client
// falls back to when the server does not know the script.
func TestScripts(t *testing.T) {
	eachRedis(t, -1, func(t *testing.T, w *world) {
		key := w.key(t, "script")
		script := redis.NewScript("return redis.call('INCR', KEYS[1]) -- " + w.prefix)
		other := redis.NewScript("return 'other' -- " + w.prefix)
		w.proxy.SetRules(redisproxy.Rule{Script: script.Hash(), Action: redisproxy.DropReply,
			Skip: 1})
		// NOSCRIPT is skipped; the reply to EVAL is dropped, and those to EVALSHA.
		for i := range 3 {
			assert.Error(t, script.Run(t.Context(), w.broken, []string{key}).Err(),
				"run %d got an answer", i)
			w.wantValue(t, key, fmt.Sprint(i+1))
		}
		got, err := other.Run(t.Context(), w.broken, []string{key}).Text()
		assert.Equal(t, "other", got, "the other script")
		assert.NoError(t, err, "the other script")
	})
}

// TestPipelineCut: the first k commands are executed and answered, the others are not
// executed. (go-redis then reports an error for all of them, also the answered ones.)
func TestPipelineCut(t *testing.T) {
	eachRedis(t, -1, func(t *testing.T, w *world) {
		for k := 1; k <= 4; k++ {
			w.proxy.SetRules(redisproxy.Rule{Command: "SET", Position: k,
				Action: redisproxy.CutPipeline})
			pipe := w.broken.Pipeline()
			var keys []string
			for i := range 5 {
				keys = append(keys, w.key(t, fmt.Sprintf("cut at %d: %d", k, i)))
				pipe.Set(t.Context(), keys[i], "v", time.Minute)
			}
			cmds, err := pipe.Exec(t.Context())
			require.Error(t, err, "the pipeline was not cut")
			for i, cmd := range cmds {
				if i < k {
					w.wantValue(t, keys[i], "v")
				} else {
					w.wantValue(t, keys[i], "")
				}
				assert.False(t, i >= k && cmd.Err() == nil, "cut at %d: command %d got an answer",
					k, i)
			}
		}
	})
}

// TestTransaction: MULTI and EXEC have their replies matched like any other command.
func TestTransaction(t *testing.T) {
	eachRedis(t, -1, func(t *testing.T, w *world) {
		key := w.key(t, "tx")
		w.proxy.SetRules(redisproxy.Rule{Command: "EXEC", Action: redisproxy.DropReply, Count: 1})
		incr := func() error {
			_, err := w.broken.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
				p.Incr(t.Context(), key)
				p.Expire(t.Context(), key, time.Minute)
				return nil
			})
			return err
		}
		assert.Error(t, incr(), "EXEC got an answer")
		w.wantValue(t, key, "1")
		assert.NoError(t, incr())
		w.wantValue(t, key, "2")
	})
}

// TestSubscription: a connection that subscribes is left alone, in both protocols.
func TestSubscription(t *testing.T) {
	eachRedis(t, -1, func(t *testing.T, w *world) {
		w.proxy.SetRules(redisproxy.Rule{Command: "PUBLISH", Action: redisproxy.DropReply})
		for _, protocol := range []int{2, 3} {
			rdb := redistest.Client(t, &redis.Options{Addr: w.proxy.Addr(), Protocol: protocol})
			channel := w.prefix + fmt.Sprint(protocol)
			sub := rdb.Subscribe(t.Context(), channel)
			_, err := sub.Receive(t.Context())
			require.NoError(t, err)
			require.NoError(t, w.direct.Publish(t.Context(), channel, "hello").Err())
			m, err := sub.ReceiveMessage(t.Context())
			if assert.NoError(t, err, "RESP%d: %v", protocol, m) {
				assert.Equal(t, "hello", m.Payload, "RESP%d: %v", protocol, m)
			}
			assert.NoError(t, sub.Close())
		}
	})
}

// TestRealRESP3: what a real server says in RESP3, pushes in the middle of it included.
func TestRealRESP3(t *testing.T) {
	addr := servertest.Redis(t)
	w := newWorld(t, addr, redistest.Client(t, &redis.Options{Addr: addr}), -1)
	hash, set, tracked := w.key(t, "hash"), w.key(t, "set"), w.key(t, "tracked")
	c := dial(t, w.proxy)
	c.send("HELLO 3", "HSET "+hash+" f v", "ZADD "+set+" 1.5 m", "CLIENT TRACKING ON",
		"GET "+tracked)
	hello := readUntil(t, c, ":1\r\n:1\r\n+OK\r\n_\r\n")
	assert.EqualValues(t, '%', hello[0], "HELLO 3 answered %q", hello)
	assert.Contains(t, hello, "proto\r\n:3\r\n", "HELLO 3 answered %q", hello)
	require.NoError(t, w.direct.Set(t.Context(), tracked, "v", time.Minute).Err())
	c.want(">2\r\n$10\r\ninvalidate\r\n*1\r\n" + fmt.Sprintf("$%d\r\n%s\r\n",
		len(tracked), tracked))
	w.proxy.SetRules(redisproxy.Rule{Command: "GET", Action: redisproxy.DropReply})
	c.send("HGETALL "+hash, "ZSCORE "+set+" m", "GET "+tracked)
	c.want("%1\r\n$1\r\nf\r\n$1\r\nv\r\n,1.5\r\n")
	got, err := c.rest()
	assert.Empty(t, got, "after the dropped reply")
	assert.Error(t, err, "after the dropped reply")
	s := w.proxy.Stats()
	assert.Equal(t, 1, s.Pushes, "stats %+v", s)
	assert.Equal(t, 1, s.RepliesDropped, "stats %+v", s)
	assert.Equal(t, 7, s.Replies, "stats %+v", s)
}

// readUntil reads up to and with what is expected after something that depends on the server,
// such as the modules that HELLO lists.
func readUntil(t *testing.T, c *client, end string) string {
	t.Helper()
	var got []byte
	one := make([]byte, 1)
	for !strings.HasSuffix(string(got), end) {
		_, err := c.Read(one)
		require.NoError(t, err, "after %q", got)
		got = append(got, one[0])
	}
	return string(got)
}

// TestStorm: every fault by chance, eight clients. Each counter is at least what its
// client knows and at most what it has tried, and the proxy's books are in balance.
func TestStorm(t *testing.T) {
	eachRedis(t, -1, func(t *testing.T, w *world) {
		w.proxy.SetRules(
			redisproxy.Rule{Command: "INCR", Action: redisproxy.DropReply,
				Probability: 0.1, Seed: 1},
			redisproxy.Rule{Command: "INCR", Action: redisproxy.TearReply, Bytes: 1,
				Probability: 0.1, Seed: 2},
			redisproxy.Rule{Command: "INCR", Action: redisproxy.DropRequest,
				Probability: 0.1, Seed: 3},
			redisproxy.Rule{Command: "INCR", Action: redisproxy.CutPipeline,
				Probability: 0.1, Seed: 4},
			redisproxy.Rule{Command: "INCR", Action: redisproxy.DelayReply, Delay: time.Millisecond,
				Probability: 0.1, Seed: 5},
		)
		var wg sync.WaitGroup
		for i := range 8 {
			key := w.key(t, fmt.Sprint("counter", i))
			wg.Go(func() { w.storm(t, key, rand.New(rand.NewPCG(9, uint64(i)))) })
		}
		wg.Wait()
		s := w.proxy.Stats()
		assert.NotZero(t, s.RepliesDropped, "a fault did not happen: %+v", s)
		assert.NotZero(t, s.RepliesTorn, "a fault did not happen: %+v", s)
		assert.NotZero(t, s.RequestsDropped, "a fault did not happen: %+v", s)
		assert.NotZero(t, s.PipelinesCut, "a fault did not happen: %+v", s)
		assert.NotZero(t, s.Delayed, "a fault did not happen: %+v", s)
		w.proxy.Close() // so that all is counted
		s = w.proxy.Stats()
		assert.Equal(t, s.Replies+s.RepliesDropped+s.RepliesTorn+s.Abandoned, s.Requests,
			"the books do not balance: %+v", s)
	})
}

func (w *world) storm(t *testing.T, key string, rng *rand.Rand) {
	tried, known := 0, 0
	for range 60 {
		pipe := w.broken.Pipeline()
		n := 1 + rng.IntN(6)
		for range n {
			pipe.Incr(t.Context(), key)
		}
		tried += n
		cmds, _ := pipe.Exec(t.Context()) // each command has its own error
		for _, cmd := range cmds {
			if cmd.Err() == nil {
				known++
			}
		}
	}
	got, err := w.direct.Get(t.Context(), key).Int()
	assert.NoError(t, err, "counter, the client knows of %d and tried %d", known, tried)
	assert.GreaterOrEqual(t, got, known, "counter, the client knows of %d and tried %d", known,
		tried)
	assert.LessOrEqual(t, got, tried, "counter, the client knows of %d and tried %d", known, tried)
}
