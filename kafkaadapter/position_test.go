package kafkaadapter

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter/internal/msgid"
)

// fakeTopics is an admin client that knows topics by their UUIDs.
type fakeTopics struct {
	sarama.ClusterAdmin

	mu    sync.Mutex
	uuids map[string]byte
	err   error
	asked int
}

// DescribeTopics implements sarama.ClusterAdmin.
func (f *fakeTopics) DescribeTopics(topics []string) ([]*sarama.TopicMetadata, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	if f.err != nil {
		return nil, f.err
	}
	var all []*sarama.TopicMetadata
	for _, topic := range topics {
		m := &sarama.TopicMetadata{Name: topic, Err: sarama.ErrUnknownTopicOrPartition}
		if n, ok := f.uuids[topic]; ok {
			m.Err, m.Uuid = sarama.ErrNoError, sarama.Uuid{15: n}
		}
		all = append(all, m)
	}
	return all, nil
}

func (f *fakeTopics) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeTopics) lookUps() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

// positionsOf knows the topics of the fake group, and those named.
func positionsOf(t *testing.T, topics ...string) *Positions {
	t.Helper()
	f := &fakeTopics{uuids: map[string]byte{topic: 1}}
	for i, name := range topics {
		f.uuids[name] = byte(i + 2) // few
	}
	p, err := NewPositions(f, append(topics, topic)...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestNewPositions(t *testing.T) {
	known := &fakeTopics{uuids: map[string]byte{"a": 1, "b": 2, "old": 0}}
	silent := &silentTopics{}
	down := &fakeTopics{err: sarama.ErrOutOfBrokers}
	for _, c := range []struct {
		name   string
		admin  sarama.ClusterAdmin
		topics []string
		want   string // in the error; "" for none
	}{
		{"one", known, []string{"a"}, ""},
		{"two", known, []string{"a", "b"}, ""},
		{"no admin", nil, []string{"a"}, "Admin is nil"},
		{"no topics", known, nil, "Topics is empty"},
		{"a topic without a name", known, []string{"a", ""}, "empty name"},
		{"brokers before 2.8", known, []string{"a", "old"}, `"old" has no UUID: brokers`},
		{"a topic that is not there", known, []string{"a", "c"},
			`"c" has no UUID: kafka server: Request was for a topic`},
		{"a topic that is not answered", silent, []string{"a"}, `"a" was not described`},
		{"brokers that are down", down, []string{"a"}, "looked up: kafka: client has run out"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := NewPositions(c.admin, c.topics...)
			if c.want == "" {
				if err != nil || p == nil {
					t.Fatalf("%v", err)
				}
				return
			}
			if err == nil || p != nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// silentTopics answers without the topics it was asked for.
type silentTopics struct{ sarama.ClusterAdmin }

// DescribeTopics implements sarama.ClusterAdmin.
func (silentTopics) DescribeTopics([]string) ([]*sarama.TopicMetadata, error) { return nil, nil }

// Every part of a position tells two messages apart, and a redelivery is the same.
func TestPositionIDs(t *testing.T) {
	f := &fakeTopics{uuids: map[string]byte{topic: 1, "other": 2}}
	p, err := NewPositions(f, topic, "other")
	if err != nil {
		t.Fatal(err)
	}
	when := time.UnixMilli(1_700_000_000_123)
	base := sarama.ConsumerMessage{Topic: topic, Partition: 3, Offset: 7, Timestamp: when,
		Value: []byte("a")}
	id := func(change func(*sarama.ConsumerMessage)) string {
		m := base
		change(&m)
		id, ok := p.id(&m)
		if !ok || !msgid.IsKey(id) {
			t.Errorf("%+v has the id %q, %v", m, id, ok)
		}
		return id
	}
	same := id(func(*sarama.ConsumerMessage) {})
	if want := "position:AAAAAAAAAAAAAAAAAAAAAQ/3@7/1700000000123"; same != want {
		t.Errorf("%q, want %q", same, want)
	}
	if again := id(func(m *sarama.ConsumerMessage) {
		m.Value, m.Key = nil, []byte("k")
	}); again != same {
		t.Errorf("the same position is %q and %q", same, again)
	}
	seen := []string{same}
	for _, change := range []func(*sarama.ConsumerMessage){
		func(m *sarama.ConsumerMessage) { m.Topic = "other" },
		func(m *sarama.ConsumerMessage) { m.Partition = 4 },
		func(m *sarama.ConsumerMessage) { m.Offset = 8 },
		func(m *sarama.ConsumerMessage) { m.Timestamp = when.Add(time.Millisecond) },
		func(m *sarama.ConsumerMessage) { m.Timestamp = time.Time{} },
	} {
		got := id(change)
		if slices.Contains(seen, got) {
			t.Errorf("another message has the id %q", got)
		}
		seen = append(seen, got)
	}
	f.set(func() { f.uuids[topic] = 9 })
	if err := p.assigned(topic); err != nil {
		t.Fatal(err)
	}
	if again := id(func(*sarama.ConsumerMessage) {}); again == same {
		t.Errorf("the topic is another one, and the id is still %q", again)
	}
	if id, ok := p.id(&sarama.ConsumerMessage{Topic: "unknown"}); ok {
		t.Errorf("a topic that was not looked up has the id %q", id)
	}
}

// Partitions that are assigned together share a look-up; one that began before an
// assignment does not count for it.
func TestPositionsAreLookedUpPerAssignment(t *testing.T) {
	f := &fakeTopics{uuids: map[string]byte{topic: 1}}
	p, err := NewPositions(f, topic)
	if err != nil {
		t.Fatal(err)
	}
	before := time.Now()
	for i, c := range []struct {
		since time.Time
		want  int
	}{{before, 2}, {before, 2}, {time.Now().Add(time.Hour), 3}, {before, 3}} {
		if err := p.lookUpSince(topic, c.since); err != nil || f.lookUps() != c.want {
			t.Errorf("%d: %d look-ups, want %d; %v", i, f.lookUps(), c.want, err)
		}
	}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if err := p.assigned(topic); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// A topic that is created again while a group works on it: the same offsets are other
// messages, and none of them is taken for done. Without an id of their own they have only
// their positions.
func TestRecreatedTopicIsNotTakenForDone(t *testing.T) {
	f := &fakeTopics{uuids: map[string]byte{topic: 1}}
	bare := func(key string) *sarama.ConsumerMessage {
		return &sarama.ConsumerMessage{Key: []byte(key)}
	}
	parked := 0
	inBubble(t, 1, nil, func(r *rig, c *Config) {
		p, err := NewPositions(f, topic)
		if err != nil {
			t.Fatal(err)
		}
		c.Positions = p
		c.Park = func(context.Context, *Message, error) error { parked++; return nil }
		r.group.finished = nil
	}, func(r *rig) {
		r.group.add(message("named", ""), bare("a"), bare("b"))
		r.after(time.Second)
		r.wantCommitted(3)
		r.wantRuns("named", 1)

		// A redelivery is a duplicate, by its position.
		r.group.replay()
		r.after(time.Minute)
		r.wantCommitted(3)
		if n := r.totalRuns(); n != 3 {
			t.Errorf("%d runs of 3 messages that came twice", n)
		}

		// While the look-up fails nothing runs, and nothing is parked.
		f.set(func() { f.err, f.uuids[topic] = sarama.ErrOutOfBrokers, 2 })
		r.group.replay()
		r.after(time.Minute)
		r.wantCommitted(0)
		f.set(func() { f.err = nil })
		r.after(time.Minute)
		r.wantCommitted(3)
		if n := r.totalRuns(); n != 5 || parked != 0 {
			t.Errorf("%d runs, want 2 more for the new topic's messages; %d parked", n, parked)
		}
		r.wantRuns("named", 1)
	})
}

// A letter that was sent back has another position and the id that it had.
func TestReplayedLetterKeepsItsPosition(t *testing.T) {
	p := positionsOf(t)
	id, _ := p.id(&sarama.ConsumerMessage{Topic: topic, Offset: 5})
	sent := whole("dead", &Message{ID: id,
		ConsumerMessage: &sarama.ConsumerMessage{Topic: topic, Offset: 5}}, errBroken)
	back := consumed(sent)
	back.Topic, back.Offset = topic, 99
	if again, ok := p.id(back); !ok || again != id {
		t.Errorf("%q came back as %q", id, again)
	}
}

// An error of the look-up reaches Observer.GroupError with its reason.
func TestFailedLookUpIsTold(t *testing.T) {
	f := &fakeTopics{uuids: map[string]byte{topic: 1}}
	var told []error
	inBubble(t, 1, nil, func(_ *rig, c *Config) {
		var err error
		if c.Positions, err = NewPositions(f, topic); err != nil {
			t.Fatal(err)
		}
		f.set(func() { delete(f.uuids, topic) })
		c.Observer.GroupError = func(err error) { told = append(told, err) }
	}, func(r *rig) {
		r.after(time.Second)
		r.wantRunning()
	})
	if len(told) == 0 || !errors.Is(told[0], sarama.ErrUnknownTopicOrPartition) {
		t.Errorf("told %v", told)
	}
	var input *dedup.InputError
	if len(told) > 0 && errors.As(told[0], &input) {
		t.Errorf("%v is not about an argument", told[0])
	}
}
