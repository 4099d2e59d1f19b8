package replay

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/lease"
)

// A consumer parks messages that fail. When it works again, a message that is sent back is
// processed once, under its id. A second run finds nothing to do.
func TestParkedMessagesComeBackOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.produce(3)
	broken := r.consume(true)
	r.wantConsumed(3)
	broken.stop()
	repaired := r.consume(false)
	out := r.replay(cli.Done)
	r.wantIn(out, `sent     id="id-0" from="orders/0@0" at=orders.dead/0@`,
		` scope="consumer/orders" attempts="1" record=failed error="cannot be charged"`,
		"3 sent, 0 processed since, 0 left")
	r.wantConsumed(6)
	repaired.wantEffects(t, 3)
	r.wantCommitted(3, "")
	r.wantIn(r.replay(cli.Done), "0 sent, 0 processed since, 0 left")
	r.wantIn(r.replay(cli.Done, "--group", "another"),
		"settled", "0 sent, 3 processed since, 0 left")
	r.wantConsumed(6)
	got := len(r.ids(orders))
	assert.Equal(t, 6, got, "%d messages, want 6", got)
}

// A run dies after it has sent a message, and before its offset is committed. The next run may come
// before the message is processed, or after.
func TestCrashBetweenSendAndCommit(t *testing.T) {
	for name, processed := range map[string]bool{"processed before the next run": true,
		"after it": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.park(2)
			crash := r.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit},
				Group: DefaultGroup, Err: kerr.NotCoordinator, Count: -1})
			r.wantIn(r.replay(cli.No), "sent ", "the offset cannot be committed", "1 sent")
			crash.Remove()
			r.wantCommitted(-1, "")
			var c *consumer
			want := "2 sent, 0 processed since"
			if processed {
				c = r.consume(false)
				r.wantConsumed(1)
				want = "1 sent, 1 processed since"
			}
			if !processed { // the first run freed the key, so nothing is on record
				r.wantIn(r.replay(cli.No), "--unrecorded sends it",
					"1 sent, 0 processed since, 1 left")
				want = "1 sent, 0 processed since"
			}
			r.wantIn(r.replay(cli.Done, "--unrecorded"), want)
			r.wantCommitted(2, "")
			if !processed {
				c = r.consume(false)
			}
			r.wantConsumed(int64(len(r.ids(orders))))
			c.wantEffects(t, 2)
		})
	}
}

// If the broker does not acknowledge a message, the message is not done, although its key was
// freed. The run ends.
func TestSendFails(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.park(2)
	down := r.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: orders,
		Err: kerr.NotEnoughReplicas, Count: -1})
	r.wantIn(r.replay(cli.No), `failed   id="id-0"`, "in-sync replicas", "0 sent")
	r.wantCommitted(-1, "")
	down.Remove()
	r.wantIn(r.replay(cli.No), "record=none", "--unrecorded sends it",
		"1 sent, 0 processed since, 1 left")
	r.wantIn(r.replay(cli.Done, "--unrecorded"), "record=none", "1 sent")
	got := r.ids(orders)
	assert.Equal(t, []string{"id-1", "id-0"}, got, "sent %v", got)
}

func TestDryRunChangesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.park(3)
	before := r.redis.Dump()
	out := r.replay(cli.Done, "-n", "--max", "2")
	r.wantIn(out, `would    id="id-0"`, `would    id="id-1"`, "2 would be sent, 0 processed since")
	after := r.redis.Dump()
	assert.Equal(t, before, after, "Redis has changed:\n%s\nbefore:\n%s", after, before)
	sent := r.ids(orders)
	assert.Empty(t, sent, "sent %v", sent)
	assert.Nil(t, r.cluster.GroupInfo(DefaultGroup), "there is a group")
	r.wantIn(r.replay(cli.Done), "3 sent")
}

// A later run finds the messages that a filter left out. It does not send the others again,
// although they have larger offsets.
func TestFiltersLoseNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.park(5)
	r.fail("slow")
	r.parkOne("slow", fmt.Errorf("timed out"))
	r.wantIn(r.replay(cli.Done, "--id", "id-1", "--id", "id-3"),
		"2 sent, 0 processed since, 0 left where they are, 4 not selected")
	r.wantCommitted(0, "onceward-replay/1 1+1 1+1")
	r.wantIn(r.replay(cli.Done, "--error", "timed out"), `id="slow"`,
		"1 sent, 0 processed since, 0 left where they are, 3 not selected")
	r.wantCommitted(0, "onceward-replay/1 1+1 1+1 1+1")
	r.wantIn(r.replay(cli.Done, "--max", "1"), `id="id-0"`, "1 sent")
	r.wantCommitted(2, "onceward-replay/1 1+1 1+1")
	r.redis.FastForward(2 * window) // until all records have expired
	r.wantIn(r.replay(cli.Done, "--unrecorded"),
		"2 sent, 0 processed since, 0 left where they are, 0 not selected")
	r.wantCommitted(6, "")
	want := []string{"id-1", "id-3", "slow", "id-0", "id-2", "id-4"}
	got := r.ids(orders)
	assert.Equal(t, want, got, "sent %v, want %v", got, want)
}

// A message that cannot be sent stays, is named by every run, and does not stop other messages.
func TestWhatStays(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	uncertain, held := r.uncertain("uncertain"), r.claim("held")
	for _, id := range []string{"uncertain", "held"} {
		r.parkOne(id, errBroken)
	}
	r.send(&kgo.Record{Topic: dead, Value: []byte("no letter")})
	r.fail("bound")
	r.parkOne("bound", fmt.Errorf("%w", dedup.ErrMismatch))
	for _, topic := range []string{"gone", dead} {
		r.send(&kgo.Record{Topic: dead, Headers: []kgo.RecordHeader{
			{Key: kafkaadapter.HeaderTopic, Value: []byte(topic)}}})
	}
	r.park(2)

	out := r.replay(cli.No)
	r.wantIn(out, "2 sent, 0 processed since, 6 left", dedup.ErrUncertain.Error(),
		dedup.ErrInFlight.Error(), "not a dead letter",
		"another payload", `no topic \"gone\"`, "is not a dead-letter topic")
	r.wantCommitted(0, "onceward-replay/1 6+2")
	uncertain()
	held()
	r.wantIn(r.replay(cli.No), "1 sent, 1 processed since, 4 left")
	r.wantCommitted(2, "onceward-replay/1 4+2")
	got := r.ids(orders)
	assert.Equal(t, []string{"id-0", "id-1", "held"}, got, "sent %v", got)
}

// claim holds an id in flight until release is called.
func (r *rig) claim(id string) (release func()) {
	r.t.Helper()
	c, err := r.dedup.Claim(r.t.Context(), id, scoped)
	require.NoError(r.t, err)
	require.Equal(r.t, dedup.Acquired, c.Outcome)
	return func() {
		assert.NoError(r.t, c.Release(context.WithoutCancel(r.t.Context())))
	}
}

// uncertain leaves an id uncertain until happened is called, which marks it as done.
func (r *rig) uncertain(id string) (happened func()) {
	r.t.Helper()
	_, err := dedup.Do(r.t.Context(), r.dedup, id, func(ctx context.Context) (struct{}, error) {
		if err := dedup.MarkIrreversible(ctx); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, errBroken
	}, scoped)
	rec, lookErr := r.dedup.Lookup(r.t.Context(), id, scoped)
	require.NoError(r.t, lookErr, err)
	require.Equal(r.t, driver.StateUncertain, rec.State, err)
	return func() {
		_, err := r.dedup.Mark(r.t.Context(), id, scoped)
		assert.NoError(r.t, err)
	}
}

func (r *rig) send(m *kgo.Record) {
	r.t.Helper()
	require.NoError(r.t, r.newClient().ProduceSync(r.t.Context(), m).FirstErr())
}

// A message that is older than the window, and has no record, may have succeeded.
func TestOlderThanTheWindow(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.send(&kgo.Record{Topic: dead, Timestamp: time.Now().Add(-window - time.Minute),
		Headers: []kgo.RecordHeader{{Key: kafkaadapter.HeaderTopic, Value: []byte(orders)},
			{Key: kafkaadapter.HeaderID, Value: []byte("old")}}})
	r.wantIn(r.replay(cli.No), "record=none", "--expired sends it", "1 left")
	r.wantCommitted(-1, "")
	r.wantIn(r.replay(cli.Done, "--expired"), "1 sent")
	r.wantCommitted(1, "")
}

// If a message cannot be recorded as done, it is not sent.
func TestTooManyGaps(t *testing.T) {
	p := &part{done: finished{{}}}
	for offset := int64(1); len(p.done.text()) <= maxFinished-len(" 1+1"); offset += 2 {
		p.done = p.done.with(offset, offset+1)
	}
	r := &run{Options: new(Options), count: map[fate]int{}}
	l := newDeadLetter(&kafkaadapter.Message{Topic: dead,
		Offset: p.done[len(p.done)-1].to + 1})
	err := r.handle(t.Context(), p, l)
	assert.ErrorContains(t, err, "too many messages are left")
}

// cancelling cancels a context when the first text is written.
type cancelling struct {
	bytes.Buffer
	cancel context.CancelFunc
}

// Write implements io.Writer.
func (c *cancelling) Write(p []byte) (int, error) {
	c.cancel()
	return c.Buffer.Write(p)
}

// An interrupted run completes the message under way, and the next run continues.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.park(4)
	// The commit of the offset takes two tries, after the line was written.
	r.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Group: DefaultGroup,
		Err: kerr.NotCoordinator, Count: 1})
	ctx, cancel := context.WithCancel(t.Context())
	r.wantIn(r.replayTo(ctx, &cancelling{cancel: cancel}, cli.Interrupted), "1 sent", "interrupted")
	r.wantCommitted(1, "")
	r.wantIn(r.replay(cli.Done), "3 sent")
	got := r.ids(orders)
	assert.Equal(t, []string{"id-0", "id-1", "id-2", "id-3"}, got, "sent %v", got)
}

// Two runs at a time could free a key that has just succeeded.
func TestOneRunAtATime(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.park(1)
	client := redis.NewClient(&redis.Options{Addr: r.redis.Addr()})
	defer func() { _ = client.Close() }()
	leases, err := lease.New(client, lease.Options{})
	require.NoError(t, err)
	_, err = leases.Acquire(t.Context(), "onceward replay ow payments "+dead,
		time.Minute)
	require.NoError(t, err)
	r.wantIn(r.replay(cli.Usage), "another run")
	r.wantIn(r.replay(cli.Done, "-n"), "1 would be sent") // a dry run frees no key
	sent := r.ids(orders)
	assert.Empty(t, sent, "sent %v", sent)
}

// A topic that was written in transactions ends with a marker that consumers do not get.
func TestEndsAtAMarker(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.fail("id-0")
	client := r.newClient(kgo.TransactionalID("parking"))
	for _, end := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit} {
		require.NoError(t, client.BeginTransaction())
		require.NoError(t, client.ProduceSync(t.Context(), &kgo.Record{Topic: dead,
			Headers: []kgo.RecordHeader{{Key: kafkaadapter.HeaderTopic, Value: []byte(orders)},
				{Key: kafkaadapter.HeaderID, Value: []byte("id-0")},
				{Key: kafkaadapter.HeaderScope,
					Value: []byte(kafkaadapter.ScopeOf("consumer", orders))},
			}}).FirstErr())
		require.NoError(t, client.EndTransaction(t.Context(), end))
	}
	r.wantIn(r.replay(cli.Done), "at=orders.dead/0@2",
		"nothing came for 5s from offset 3 on, below its end at 4", "1 sent")
	r.wantCommitted(3, "")
}

// Brokers accept the connection and hang. Ctrl-C ends the command anyway.
func TestInterruptedWhileBrokersHang(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan struct{})
	go func() {
		defer close(served)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		_, _ = c.Read(make([]byte, 1))
		cancel()
		<-t.Context().Done()
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-served
	})
	var errOut bytes.Buffer
	began := time.Now()
	code := execute(ctx, strings.Fields("--brokers "+l.Addr().String()+
		" --topic t --redis redis://127.0.0.1:1 --namespace n --window 1h"), io.Discard, &errOut)
	took := time.Since(began)
	assert.Equal(t, cli.Interrupted, code, errOut.String())
	assert.LessOrEqual(t, took, 5*time.Second, errOut.String())
}

// Wrong servers and names are refused before anything is sent.
func TestMainRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.park(1)
	r.redis.Set("other:layout", "x") //nolint:errcheck // it fails only for another type
	member := r.consume(false)
	r.eventually(func() (bool, string) {
		info := r.cluster.GroupInfo("consumer")
		return info != nil && len(info.Members) > 0, "nobody has joined"
	})
	for _, row := range []struct{ args, want string }{
		{"--topic missing", `--topic "missing"`},
		{"--brokers 127.0.0.1:1", "--brokers: "},
		{"--redis redis://127.0.0.1:1", "--redis: "},
		{"--redis http://x", `--redis has the scheme "http"`},
		{"--prefix nobody", `nobody has kept records under "nobody"`},
		{"--prefix other", "is not known to this version"},
		{"--namespace a/b", "Namespace"},
		{"--group consumer", "has members"},
		{"--tls --tls-ca /nonexistent", "--tls-ca: "},
		{"--tls --tls-cert /nonexistent --tls-key /nonexistent", "--tls-cert"},
	} {
		r.wantIn(r.replay(cli.Usage, strings.Fields(row.args)...), "onceward replay: ", row.want)
	}
	member.stop()
	sent := r.ids(orders)
	assert.Empty(t, sent, "sent %v", sent)
}

// A message returns to its own partition, with the others of its key, if that partition exists.
func TestHomePartition(t *testing.T) {
	p := homePartitioner().ForTopic(orders)
	from := func(home string) *kgo.Record {
		return &kgo.Record{Topic: orders, Key: []byte("k"), Headers: []kgo.RecordHeader{
			{Key: kafkaadapter.HeaderPartition, Value: []byte(home)}}}
	}
	for home := range 3 {
		assert.Equal(t, home, p.Partition(from(fmt.Sprint(home)), 3))
	}
	byKey := p.Partition(&kgo.Record{Topic: orders, Key: []byte("k")}, 3)
	for _, gone := range []string{"3", "-1", ""} {
		assert.Equal(t, byKey, p.Partition(from(gone), 3), gone)
	}
	assert.True(t, p.RequiresConsistency(from("0")), "a partition that is down is waited for")
}
