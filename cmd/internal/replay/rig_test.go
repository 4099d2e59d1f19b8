package replay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkafranz"
	"github.com/onceward/onceward/redisadapter"
)

const (
	orders = "orders"
	dead   = "orders.dead"
	window = time.Hour
)

// scoped is the scope of the consumer's records.
var scoped = dedup.WithScope(kafkaadapter.ScopeOf("consumer", orders))

var errBroken = errors.New("cannot be charged")

// rig is a broker, a Redis, and the consumer's Deduper.
type rig struct {
	t       *testing.T
	cluster *kfake.Cluster
	opts    []kgo.Opt            // of this test's own clients
	redis   *miniredis.Miniredis // nil if the Redis is a real one
	flags   []string             // where the records are
	dedup   *dedup.Deduper
	client  *kgo.Client
	parked  func(context.Context, *kafkaadapter.Message, error) error
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return newRigOn(t, nil)
}

// newRigOn is a rig on a broker that needs more options.
func newRigOn(t *testing.T, own []kgo.Opt, opts ...kfake.Opt) *rig {
	t.Helper()
	opts = append(opts, kfake.NumBrokers(1), kfake.SeedTopics(1, orders, dead),
		kfake.GroupMinSessionTimeout(200*time.Millisecond))
	cluster, err := kfake.NewCluster(opts...)
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	r := &rig{t: t, cluster: cluster, redis: miniredis.RunT(t),
		opts: append(own, kgo.SeedBrokers(cluster.ListenAddrs()...))}
	r.keep(r.redis.Addr(), redisadapter.Options{})
	r.client = r.newClient(kgo.ConsumeTopics(), kgo.RecordDeliveryTimeout(30*time.Second))
	producer, err := kafkafranz.Producer(r.client)
	require.NoError(t, err)
	r.parked, err = kafkaadapter.DeadLetters(kafkaadapter.DeadLetterConfig{
		Producer: producer, Topic: func(*kafkaadapter.Message) string { return dead },
	})
	require.NoError(t, err)
	return r
}

// keep lets the consumer keep its records in the Redis at addr.
func (r *rig) keep(addr string, opts redisadapter.Options) {
	r.t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr})
	r.t.Cleanup(func() { _ = client.Close() })
	opts.OnFinding = func(preflight.Finding) {}
	store, err := redisadapter.New(r.t.Context(), client, opts)
	require.NoError(r.t, err)
	r.dedup, err = dedup.New(store, dedup.Config{Namespace: "payments", Window: window,
		LeaseTTL: time.Minute, SeenOnly: opts.Layout == redisadapter.Compact})
	require.NoError(r.t, err)
	r.flags = []string{"--redis", "redis://" + addr}
	if opts.Prefix != "" {
		r.flags = append(r.flags, "--prefix", opts.Prefix)
	}
}

// newClient returns a client of this test.
func (r *rig) newClient(opts ...kgo.Opt) *kgo.Client {
	r.t.Helper()
	client, err := kgo.NewClient(append(opts, r.opts...)...)
	require.NoError(r.t, err)
	r.t.Cleanup(client.Close)
	return client
}

// produce sends n messages with the ids id-0, id-1, ...
func (r *rig) produce(n int) {
	r.t.Helper()
	for i := range n {
		id := fmt.Sprint("id-", i)
		r.send(&kgo.Record{Topic: orders, Key: []byte(id), Value: []byte("value of " + id),
			Headers: []kgo.RecordHeader{{Key: "message-id", Value: []byte(id)}}})
	}
}

// park parks n messages that have failed for good, without a consumer.
func (r *rig) park(n int) {
	r.t.Helper()
	for i := range n {
		r.fail(fmt.Sprint("id-", i))
		r.parkOne(fmt.Sprint("id-", i), errBroken)
	}
}

// fail records an id as failed for good.
func (r *rig) fail(id string) {
	r.t.Helper()
	_, err := dedup.Do(r.t.Context(), r.dedup, id, func(context.Context) (struct{}, error) {
		return struct{}{}, dedup.Permanent(errBroken)
	}, scoped)
	require.True(r.t, dedup.IsPermanent(err))
}

// parkOne parks a message.
func (r *rig) parkOne(id string, reason error) {
	r.t.Helper()
	m := &kafkaadapter.Message{ID: id, Scope: kafkaadapter.ScopeOf("consumer", orders), Attempt: 3,
		Topic: orders, Offset: 7, Key: []byte(id), Value: []byte("value of " + id),
		Timestamp: time.Now()}
	require.NoError(r.t, r.parked(r.t.Context(), m, reason))
}

// replay runs the command.
func (r *rig) replay(wantCode int, args ...string) (out string) {
	r.t.Helper()
	var buffer bytes.Buffer
	return r.replayTo(r.t.Context(), &buffer, wantCode, args...)
}

type output interface {
	Write(p []byte) (int, error)
	String() string
}

func (r *rig) replayTo(ctx context.Context, out output, wantCode int, args ...string) string {
	r.t.Helper()
	var errOut bytes.Buffer
	r.main(ctx, out, &errOut, wantCode, args...)
	return out.String() + errOut.String()
}

func (r *rig) main(ctx context.Context, out, errOut io.Writer, wantCode int, args ...string) {
	r.t.Helper()
	args = append([]string{"--brokers", strings.Join(r.cluster.ListenAddrs(), ","), "--topic",
		dead, "--namespace", "payments", "--window", window.String()},
		append(slices.Clone(r.flags), args...)...)
	code := execute(ctx, args, out, errOut)
	assert.Equal(r.t, wantCode, code, "onceward replay %q: exit code %d, want %d\n%v%v", args,
		code, wantCode, out, errOut)
}

// wantIn insists that out contains the texts.
func (r *rig) wantIn(out string, texts ...string) {
	r.t.Helper()
	for _, text := range texts {
		assert.Contains(r.t, out, text, "not in the output: %s\n%s", text, out)
	}
}

// ids returns the ids of a topic's messages, in order.
func (r *rig) ids(topic string) []string {
	r.t.Helper()
	client := r.newClient(kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	ends, err := kadm.NewClient(client).ListEndOffsets(r.t.Context(), topic)
	require.NoError(r.t, err)
	ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Second)
	defer cancel()
	var ids []string
	for int64(len(ids)) < ends[topic][0].Offset {
		fetches := client.PollFetches(ctx)
		require.NoError(r.t, fetches.Err())
		for _, m := range fetches.Records() {
			id, _ := kafkaadapter.DefaultID()(kafkafranz.Message(m))
			ids = append(ids, id)
		}
	}
	return ids
}

// committed returns the offset that the replay's group has committed, or -1 for none.
func (r *rig) committed() (int64, string) {
	if info := r.cluster.GroupInfo(DefaultGroup); info != nil {
		if c, ok := info.Commits[dead][0]; ok {
			return c.Offset, c.Metadata
		}
	}
	return -1, ""
}

func (r *rig) wantCommitted(offset int64, metadata string) {
	r.t.Helper()
	at, text := r.committed()
	assert.Equal(r.t, offset, at, "committed %d %q, want %d %q", at, text, offset, metadata)
	assert.Equal(r.t, metadata, text, "committed %d %q, want %d %q", at, text, offset, metadata)
}

// consumer is a group member that parks failed messages and counts effects.
type consumer struct {
	mu      sync.Mutex
	broken  bool
	effects map[string]int
	stop    func()
}

// consume starts a consumer.
func (r *rig) consume(broken bool) *consumer {
	r.t.Helper()
	c := &consumer{broken: broken, effects: map[string]int{}}
	member, err := kafkafranz.New("consumer", kafkaadapter.Config{
		Deduper: r.dedup, Park: r.parked, Handler: c.handle,
		Tuning: kafkaadapter.Tuning{CommitEvery: 20 * time.Millisecond, Drain: time.Second},
	})
	require.NoError(r.t, err)
	ctx, cancel := context.WithCancel(r.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- member.Run(ctx, append(r.opts, kgo.ConsumeTopics(orders))...) }()
	c.stop = sync.OnceFunc(func() {
		cancel()
		err := <-ended
		assert.NoError(r.t, err, "Run: %v", err)
	})
	r.t.Cleanup(c.stop)
	return c
}

func (c *consumer) handle(_ context.Context, m *kafkaadapter.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken {
		return dedup.Permanent(errBroken)
	}
	c.effects[m.ID]++
	return nil
}

// wantConsumed waits until the consumer has committed n messages.
func (r *rig) wantConsumed(n int64) {
	r.t.Helper()
	r.eventually(func() (bool, string) {
		var at int64
		if info := r.cluster.GroupInfo("consumer"); info != nil {
			at = info.Commits[orders][0].Offset
		}
		return at == n, fmt.Sprintf("%d of %d messages are committed", at, n)
	})
}

// eventually polls until cond holds, and otherwise fails with cond's text.
func (r *rig) eventually(cond func() (bool, string)) {
	r.t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		ok, state := cond()
		if ok {
			return
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			r.t.Fatal(state)
		}
	}
}

func (c *consumer) wantEffects(t *testing.T, n int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	assert.Len(t, c.effects, n, "effects of %d ids, want %d: %v", len(c.effects), n, c.effects)
	for id, times := range c.effects {
		assert.Equal(t, 1, times, "%s has happened %d times", id, times)
	}
}
