package kafka_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/kafkaadapter"
)

// consumer consumes with any flavor while the test creates and deletes its topics.
type consumer struct {
	t       *testing.T
	brokers []string
	group   string
	topics  []string
	dedup   *dedup.Deduper
	logs    *lineCounter
	hold    chan struct{} // handlers of messages whose ids begin with "hold" wait for it
	holding chan struct{} // one of them has begun

	mu   sync.Mutex
	runs map[string]int
}

// lineCounter is a slog.Handler that counts, and keeps the first lines.
type lineCounter struct {
	slog.Handler

	mu    sync.Mutex
	lines []string
}

// Enabled implements slog.Handler.
func (*lineCounter) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn
}

// Handle implements slog.Handler.
func (l *lineCounter) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	b.WriteString(r.Message)
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, b.String())
	return nil
}

// all are the lines so far.
func (l *lineCounter) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}

// newConsumer makes a consumer of topics, which the caller creates with one partition each.
func newConsumer(t *testing.T, topics ...string) *consumer {
	t.Helper()
	name := servertest.Prefix(t)
	c := &consumer{
		t: t, brokers: servertest.Kafka(t), group: name + "_group", logs: &lineCounter{},
		hold: make(chan struct{}), holding: make(chan struct{}, 1), runs: make(map[string]int),
	}
	for _, topic := range topics {
		c.topics = append(c.topics, name+topic)
	}
	var err error
	c.dedup, err = dedup.New(dedup.Memory(1<<16),
		dedup.Config{Namespace: "t", Window: time.Hour, LeaseTTL: 5 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = c.dedup.Close(ctx)
	})
	return c
}

// handle counts the runs of each id.
func (c *consumer) handle(ctx context.Context, m *kafkaadapter.Message) error {
	if strings.HasPrefix(m.ID, "hold") {
		select {
		case c.holding <- struct{}{}:
		default:
		}
		select {
		case <-c.hold:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs[m.ID]++
	return nil
}

// handled is how many messages with this prefix had an effect, and how many had more than one.
func (c *consumer) handled(prefix string) (effects, twice int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, runs := range c.runs {
		if strings.HasPrefix(id, prefix) {
			effects++
			if runs > 1 {
				twice++
			}
		}
	}
	return effects, twice
}

// send adds messages to a topic with one partition.
func (c *consumer) send(topic string, at map[int32][]string, prefix string, n int) {
	c.t.Helper()
	records := make([]record, n)
	for i := range records {
		records[i] = record{id: fmt.Sprint(prefix, i), key: fmt.Sprint(prefix, i)}
	}
	produceAt(c.t, c.brokers, topic, at, records)
}

// wantHandled waits until n messages with this prefix had their effect, and returns how long.
func (c *consumer) wantHandled(prefix string, n int) time.Duration {
	c.t.Helper()
	began := time.Now()
	eventually(c.t, 20*time.Second, func() (bool, string) {
		effects, _ := c.handled(prefix)
		return effects == n, fmt.Sprintf("%d of %d %q are handled; log:\n%s", effects, n,
			prefix, strings.Join(c.logs.all(), "\n"))
	})
	return time.Since(began)
}

// wantCommitted waits until the group's offset of partition 0 is offset.
func (c *consumer) wantCommitted(topic string, offset int64) {
	c.t.Helper()
	admin, err := sarama.NewClusterAdmin(c.brokers, adminConfig())
	require.NoError(c.t, err)
	defer func() { _ = admin.Close() }()
	eventually(c.t, 20*time.Second, func() (bool, string) {
		answer, err := admin.ListConsumerGroupOffsets(c.group, map[string][]int32{topic: {0}})
		if err != nil {
			return false, err.Error()
		}
		block := answer.GetBlock(topic, 0)
		return block != nil && block.Offset == offset,
			fmt.Sprintf("committed: %+v, want %d", block, offset)
	})
}

// delete deletes a topic, and waits until the brokers have forgotten it.
func (c *consumer) delete(topic string) {
	c.t.Helper()
	admin, err := sarama.NewClusterAdmin(c.brokers, adminConfig())
	require.NoError(c.t, err)
	defer func() { _ = admin.Close() }()
	require.NoError(c.t, admin.DeleteTopic(topic))
	eventually(c.t, 60*time.Second, func() (bool, string) {
		answer, err := admin.DescribeTopics([]string{topic})
		return err == nil && answer[0].Err == sarama.ErrUnknownTopicOrPartition,
			fmt.Sprint(answer, err)
	})
}

// run starts the consumer; it is stopped when the test ends.
func (c *consumer) run(start func(*consumer) func(context.Context) error) {
	c.t.Helper()
	run := start(c)
	ctx, stop := context.WithCancel(context.WithoutCancel(c.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	c.t.Cleanup(func() {
		stop()
		assert.NoError(c.t, waitFor(c.t, ended, "Run does not return"))
	})
}

// A topic is deleted and created again under a running consumer. Every message of the new one is
// handled. kafkasarama used to begin at the offset of the old one, or to commit it into the new
// one. kafkafranz did not read the new one, and logged a line for each of 2,000 errors a second.
func TestTopicRecreatedUnderConsumer(t *testing.T) {
	servertest.Kafka(t)
	for _, f := range topicFlavors {
		for _, work := range []string{"idle", "handlers at work"} {
			for _, n := range []int{30, 600} {
				t.Run(fmt.Sprintf("%s/%s/%d", f.name, work, n), func(t *testing.T) {
					t.Parallel()
					recreated(t, f, work != "idle", n)
				})
			}
		}
	}
}

func recreated(t *testing.T, f topicFlavor, busy bool, n int) {
	const before = 200
	c := newConsumer(t, "")
	topic := c.topics[0]
	createTopic(t, c.brokers, topic, 1, 1)
	if f.prepare != nil {
		f.prepare(c)
	}
	at := make(map[int32][]string)
	c.send(topic, at, "old", before)
	c.run(f.start)
	c.wantHandled("old", before)
	if f.offsets {
		c.wantCommitted(topic, before)
	}
	if busy {
		c.send(topic, at, "hold", 40)
		waitFor(t, c.holding, "no handler is at work")
	}
	c.delete(topic)
	createTopic(t, c.brokers, topic, 1, 1)
	close(c.hold) // the commits of these handlers must not go into the new topic
	began := time.Now()
	c.send(topic, make(map[int32][]string), "new", n)
	c.wantHandled("new", n)
	took := time.Since(began)
	if f.offsets {
		c.wantCommitted(topic, int64(n))
	}
	_, twice := c.handled("new")
	assert.Zero(t, twice, "messages of the new topic that had two effects")
	lines := c.logs.all()
	t.Logf("all %d after %v, %d log lines", n, took.Round(10*time.Millisecond), len(lines))
	assert.LessOrEqual(t, len(lines), 20, "log lines: %s", strings.Join(lines, "\n"))
}

// A subscribed topic that does not exist yet, or that was deleted, does not stop the others. It is
// read when it exists.
func TestMissingTopicDoesNotStopOthers(t *testing.T) {
	servertest.Kafka(t)
	for _, f := range topicFlavors {
		if !f.offsets {
			continue // see TestDeletedTopicOfShareGroup
		}
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			missing(t, f)
		})
	}
}

// When a topic of a share group is deleted, the broker fails the member's fetches, but locks the
// messages that they would have returned. The other topics do not wait until these locks have
// lapsed, which takes half a minute.
func TestDeletedTopicOfShareGroup(t *testing.T) {
	t.Parallel()
	c := newConsumer(t, "_there", "_gone")
	there, gone := c.topics[0], c.topics[1]
	at := make(map[int32][]string)
	for _, topic := range c.topics {
		createTopic(t, c.brokers, topic, 1, 1)
	}
	readShareFromStart(c)
	c.send(there, at, "first", 20)
	c.send(gone, make(map[int32][]string), "gone", 20)
	c.run(shareConsumer)
	c.wantHandled("first", 20)
	c.wantHandled("gone", 20)
	c.delete(gone)
	sent := 0
	for began := time.Now(); time.Since(began) < 4*time.Second; sent++ {
		c.send(there, at, fmt.Sprint("meanwhile", sent, "-"), 5)
		_ = backoff.Sleep(t.Context(), 200*time.Millisecond)
	}
	t.Log("the other one was behind by", c.wantHandled("meanwhile", 5*sent))
	_, twice := c.handled("")
	assert.Zero(t, twice, "messages that had two effects")
}

func missing(t *testing.T, f topicFlavor) {
	c := newConsumer(t, "_there", "_gone")
	there, gone := c.topics[0], c.topics[1]
	createTopic(t, c.brokers, there, 1, 1)
	if f.prepare != nil {
		f.prepare(c)
	}
	at := make(map[int32][]string)
	c.send(there, at, "first", 20)
	c.run(f.start)
	c.wantHandled("first", 20) // the other one does not exist

	createTopic(t, c.brokers, gone, 1, 1)
	c.send(gone, make(map[int32][]string), "created", 20)
	created := c.wantHandled("created", 20)

	c.delete(gone)
	began := time.Now()
	sent := 0
	for time.Since(began) < 4*time.Second { // so long that the client notices the deletion
		c.send(there, at, fmt.Sprint("meanwhile", sent, "-"), 5)
		sent++
		_ = backoff.Sleep(t.Context(), 200*time.Millisecond)
	}
	alone := c.wantHandled("meanwhile", 5*sent)

	createTopic(t, c.brokers, gone, 1, 1)
	c.send(gone, make(map[int32][]string), "again", 20)
	again := c.wantHandled("again", 20)
	lines := c.logs.all()
	t.Logf("created: read after %v; deleted: the other one was behind by %v; again: read after %v; %d log lines",
		created.Round(10*time.Millisecond), alone.Round(10*time.Millisecond),
		again.Round(10*time.Millisecond), len(lines))
	assert.LessOrEqual(t, len(lines), 30, "log lines: %s", strings.Join(lines, "\n"))
}
