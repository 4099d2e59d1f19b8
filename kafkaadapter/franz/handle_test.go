package franz

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

var errBroken = errors.New("broken")

// A batch handler gets what may run, answers for each, and the one that fails is run again.
func TestBatchHandler(t *testing.T) {
	r := newRig(t, cooperative, 2)
	r.produce(0, 0, 500)
	r.produce(1, 500, 500)
	var mu sync.Mutex
	largest, failed := 0, false
	m := r.join(nil, func(c *Config) {
		c.Handler = nil
		c.BatchHandler = func(_ context.Context, ms []*Message) []error {
			mu.Lock()
			defer mu.Unlock()
			largest = max(largest, len(ms))
			errs := make([]error, len(ms))
			for i, m := range ms {
				if m.ID == "evt_000123" && !failed {
					failed, errs[i] = true, errBroken
					continue
				}
				r.affect(m)
			}
			return errs
		}
	})
	r.committed()
	m.leave()
	r.once(1000)
	if largest < 2 || !failed {
		t.Errorf("the largest batch had %d messages, failed: %v", largest, failed)
	}
}

// What can never be processed stops the consumer where nobody parks it, and stays.
func TestUnprocessable(t *testing.T) {
	for _, row := range []struct {
		name   string
		record *kgo.Record
		err    error
	}{
		{"permanent", &kgo.Record{Headers: []kgo.RecordHeader{{Key: "message-id",
			Value: []byte("bad")}}}, errBroken},
		{"no id", &kgo.Record{Value: []byte("x")}, ErrNoID},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t, cooperative, 1)
			r.produce(0, 0, 5)
			row.record.Topic = orders
			r.send(row.record)
			m := r.join(func(_ context.Context, m *Message) error {
				if m.ID == "bad" {
					return dedup.Permanent(errBroken)
				}
				return nil
			}, nil)
			err := m.wait()
			var message *UnprocessableError
			if !errors.As(err, &message) || message.Topic != orders || message.Offset != 5 ||
				!errors.Is(err, row.err) {
				t.Errorf("Run: %v", err)
			}
			r.eventually(func() (bool, string) {
				at := r.cluster.GroupInfo(group).Commits[orders][0].Offset
				return at == 5, fmt.Sprint("committed to ", at)
			})
		})
	}
}

// A poison message uses its attempts up, is sent to the dead-letter topic with what there is
// to know of it, and comes back under its own id. Meanwhile the topic is down.
func TestDeadLetterAndReplay(t *testing.T) {
	r := newRig(t, cooperative, 1)
	if err := r.cluster.CreateTopic("dead", 1, nil); err != nil {
		t.Fatal(err)
	}
	park, err := DeadLetters(DeadLetterConfig{
		Client: r.newClient(kgo.RecordDeliveryTimeout(5 * time.Second)),
		Topic:  func(*Message) string { return "dead" },
	})
	if err != nil {
		t.Fatal(err)
	}
	fault := r.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "dead",
		Err: kerr.InvalidRecord, Count: 2})
	healed := make(chan struct{})
	m := r.join(func(_ context.Context, m *Message) error {
		select {
		case <-healed:
			return nil
		default:
		}
		if m.ID == "evt_000003" {
			return RetryAfter(time.Millisecond, errBroken)
		}
		return nil
	}, func(c *Config) { c.MaxAttempts, c.Park = 3, park })
	r.parked["evt_000003"] = true // given up on, which is no failure for good
	r.produce(0, 0, 6)
	r.committed()
	if fault.Hits() != 2 {
		t.Errorf("the dead-letter topic was down for %d letters, want 2", fault.Hits())
	}
	r.once(5)

	reader := r.newClient(kgo.ConsumeTopics("dead"))
	fetches := reader.PollFetches(t.Context())
	letters := fetches.Records()
	if len(letters) != 1 {
		t.Fatalf("%d letters", len(letters))
	}
	for key, want := range map[string]string{
		HeaderID: "evt_000003", HeaderTopic: orders, HeaderPartition: "0", HeaderOffset: "3",
		HeaderAttempts: "3", "message-id": "evt_000003",
	} {
		if got := lastHeader(letters[0], key); got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
	if why := lastHeader(letters[0], HeaderError); !strings.Contains(why, "broken") ||
		string(letters[0].Value) != "evt_000003" {
		t.Errorf("the letter says %q, with %q", why, letters[0].Value)
	}

	close(healed)
	d, err := dedup.New(r.store,
		dedup.Config{Namespace: "t", Window: time.Hour, LeaseTTL: time.Second, Hold: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	again, err := Replay(t.Context(), d, letters[0])
	if err != nil {
		t.Fatal(err)
	}
	r.send(again)
	r.committed()
	m.leave()
	r.once(6)
	if _, err := Replay(t.Context(), d, letters[0]); !errors.Is(err, ErrSettled) {
		t.Errorf("replayed again: %v", err)
	}
	if _, err := Replay(t.Context(), d, &kgo.Record{}); !errors.Is(err, ErrNoLetter) {
		t.Errorf("no letter: %v", err)
	}
}

// A letter that is too large goes without its value, and if need be without key and headers.
func TestLargeLetters(t *testing.T) {
	r := newRig(t, cooperative, 1)
	if err := r.cluster.CreateTopic("dead", 1, nil); err != nil {
		t.Fatal(err)
	}
	park, err := DeadLetters(DeadLetterConfig{
		Client: r.newClient(kgo.ProducerBatchMaxBytes(10_000),
			kgo.RecordDeliveryTimeout(5*time.Second)), Topic: func(*Message) string {
			return "dead"
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	huge := []byte(strings.Repeat("x", 20_000))
	for _, rec := range []*kgo.Record{
		{Topic: orders, Key: []byte("k"), Value: huge},
		{Topic: orders, Key: huge, Value: huge,
			Headers: []kgo.RecordHeader{{Key: "h", Value: huge}}},
	} {
		if err := park(t.Context(), &Message{Record: rec, ID: "a"}, errBroken); err != nil {
			t.Fatal(err)
		}
	}
	reader := r.newClient(kgo.ConsumeTopics("dead"))
	var letters []*kgo.Record
	for len(letters) < 2 {
		letters = append(letters, reader.PollFetches(t.Context()).Records()...)
	}
	for i, l := range letters {
		if len(l.Value) > 0 || lastHeader(l, HeaderTooLarge) != "20000" ||
			(len(l.Key) > 0) != (i == 0) || lastHeader(l, "h") != "" {
			t.Errorf("letter %d: %d bytes, key %q, %v", i, len(l.Value), l.Key, l.Headers)
		}
	}
	if _, err := Replay(t.Context(), nil, letters[0]); !errors.Is(err, ErrNoLetter) {
		t.Errorf("replayed: %v", err)
	}
}

// A client that could lose a letter, or wait for one for ever, is refused.
func TestBadDeadLetters(t *testing.T) {
	r := newRig(t, cooperative, 1)
	limit := kgo.RecordDeliveryTimeout(time.Second)
	topic := func(*Message) string { return "dead" }
	for name, c := range map[string]struct {
		cfg  DeadLetterConfig
		want string
	}{
		"no client": {DeadLetterConfig{Topic: topic}, "is nil"},
		"no topic":  {DeadLetterConfig{Client: r.newClient(limit)}, "is nil"},
		"acks": {DeadLetterConfig{Client: r.newClient(limit,
			kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite()), Topic: topic},
			"RequiredAcks"},
		"transaction": {DeadLetterConfig{Client: r.newClient(limit, kgo.TransactionalID("t")),
			Topic: topic}, "TransactionalID"},
		"for ever": {DeadLetterConfig{Client: r.newClient(), Topic: topic},
			"RecordDeliveryTimeout"},
	} {
		_, err := DeadLetters(c.cfg)
		var input *dedup.InputError
		if !errors.As(err, &input) || !strings.Contains(input.Reason, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	park, err := DeadLetters(DeadLetterConfig{Client: r.newClient(limit),
		Topic: func(*Message) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	if err := park(t.Context(), &Message{Record: &kgo.Record{}}, errBroken); err == nil {
		t.Error("a letter went nowhere")
	}
}

// Messages without an id are known by their position, which has the topic's UUID: those of a
// topic that was made anew are other messages.
func TestPositions(t *testing.T) {
	r := newRig(t, cooperative, 1)
	var mu sync.Mutex
	var ids []string
	member := func() *member {
		return r.join(func(_ context.Context, m *Message) error {
			mu.Lock()
			defer mu.Unlock()
			ids = append(ids, m.ID)
			return nil
		}, func(c *Config) {
			c.Positions = true
			c.Observer.MissingID = func(*kgo.Record) { r.note("missing") }
		})
	}
	at := time.UnixMilli(1e12)
	send := func() {
		for range 5 {
			r.send(&kgo.Record{Topic: orders, Value: []byte("x"), Timestamp: at})
		}
	}
	m := member()
	send()
	r.committed()
	m.leave()
	if err := r.cluster.DeleteTopic(orders); err != nil {
		t.Fatal(err)
	}
	if err := r.cluster.CreateTopic(orders, 1, nil); err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	clear(r.log)
	clear(r.last)
	r.mu.Unlock()
	r.client = r.newClient(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	send()
	m = member()
	r.eventually(func() (bool, string) {
		return r.totalEffects() == 10, fmt.Sprint(r.totalEffects(), " effects")
	})
	m.leave()
	slices.Sort(ids)
	if n := len(slices.Compact(ids)); n != 10 || r.noted("missing") < 10 {
		t.Errorf("%d ids of 10 messages, %d without one", n, r.noted("missing"))
	}
}

// Too much in flight pauses a partition, and others go on; Progress says so.
func TestPause(t *testing.T) {
	r := newRig(t, cooperative, 2)
	g := newGateway()
	paused := make(chan bool, 100)
	m := r.join(func(ctx context.Context, m *Message) error {
		if m.Partition == 0 {
			return g.handle(ctx, m)
		}
		return nil
	}, func(c *Config) {
		c.HighWater, c.LowWater, c.Workers = 100, 50, 4
		c.Observer.Paused = func(_ string, p int32, on bool) {
			if p == 0 {
				paused <- on
			}
		}
	}, kgo.FetchMaxPartitionBytes(4<<10))
	for i := range 20 { // batches that are small against what may be in flight
		r.produce(0, 50*i, 50)
		r.produce(1, 1000+50*i, 50)
	}
	if on := <-paused; !on {
		t.Error("resumed first")
	}
	r.eventually(func() (bool, string) {
		return r.totalEffects() == 1000, "the other partition does not go on"
	})
	all := m.consumer.Progress()
	if len(all) != 2 || !all[0].Backlogged || all[0].Oldest != 0 || all[0].InFlight < 100 ||
		all[0].InFlight >= 1000 {
		t.Errorf("progress: %+v", all)
	}
	close(g.open)
	r.committed()
	if on := <-paused; on {
		t.Error("paused twice")
	}
	if all := m.consumer.Progress(); len(all) != 2 || all[0].Lag != 0 || all[0].Watermark != 1000 {
		t.Errorf("progress at the end: %+v", all)
	}
	m.leave()
	if all := m.consumer.Progress(); len(all) != 0 {
		t.Errorf("progress after Run: %+v", all)
	}
	r.once(2000)
}

// The handler records messages itself.
func TestUnclaimed(t *testing.T) {
	r := newRig(t, cooperative, 1)
	r.produce(0, 0, 100)
	m := r.join(nil, func(c *Config) {
		c.Deduper, c.Unclaimed = nil, true
		c.Handler = func(ctx context.Context, m *Message) error {
			if m.Attempt == 1 && m.Offset%10 == 0 {
				return errBroken
			}
			key, err := driver.NewID("t", ScopeOf(group, orders), m.ID)
			if err != nil {
				return err
			}
			token := driver.Token{1}
			r.store.Claim(ctx, []driver.ClaimRequest{{ID: key, Token: token, Lease: time.Second,
				Hold: time.Minute}})
			r.store.Finish(ctx, []driver.Finish{{ID: key, Token: token,
				State:  driver.StateSucceeded,
				Window: time.Hour}})
			r.affect(m)
			return nil
		}
	})
	r.committed()
	m.leave()
	r.once(100)
}

// A hook may ask for Progress while partitions come and are committed.
func TestProgressInHooks(t *testing.T) {
	r := newRig(t, cooperative, 4)
	for p := range int32(4) {
		r.produce(p, int(p)*10, 10)
	}
	var consumer atomic.Pointer[Consumer]
	ask := func() {
		if c := consumer.Load(); c != nil {
			c.Progress()
		}
	}
	m := r.join(nil, func(c *Config) {
		c.Observer.Assigned = func(string, int32, int32) { r.note("assigned"); ask() }
		c.Observer.Committing = func(string, int32, int64) { ask() }
		c.Observer.Committed = func(string, int32, int64) { ask() }
		c.Observer.Revoked = func(string, int32, int, int) { ask() }
	})
	consumer.Store(m.consumer)
	r.committed()
	other := r.join(nil, nil)
	r.members(2)
	other.leave()
	r.eventually(func() (bool, string) {
		return r.noted("assigned") >= 6, "the partitions have not come back"
	})
	m.leave()
	r.once(40)
}
