package drivertest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// Everything is handled once and committed, with the topic's UUID; the member leaves the group, and
// the next one continues where it ended.
func once(s *scene) {
	s.topic(orders, 3)
	for p := range int32(3) {
		s.produce(p, int(p)*1000, 500)
	}
	m := s.join(nil)
	s.committed()
	progress := m.consumer.Progress()
	require.Len(s, progress, 3)
	assert.Zero(s, progress[1].Lag)
	assert.Equal(s, int64(499), progress[1].Received)
	assert.Equal(s, int64(500), progress[1].Watermark)
	m.leave()
	assert.Empty(s, m.consumer.Progress(), "after Run")
	s.once(1500)
	members, _ := s.cluster.Members(group)
	assert.Empty(s, members, "the group was not left")
	_, metadata := s.cluster.Committed(group, orders, 0)
	assert.Equal(s, kafkadriver.Stamp(s.cluster.TopicID(orders)), metadata, "the commit's UUID")
	next := s.join(nil)
	s.produce(0, 5000, 10)
	s.committed()
	next.leave()
	s.once(1510)
	assert.Zero(s, s.noted("skipped"), "messages that were read again")
	assert.Empty(s, s.groupErrors())
}

// A producer has sent each message twice. The second one is skipped, and committed.
func duplicate(s *scene) {
	s.topic(orders, 1)
	s.produce(0, 0, 20)
	s.produce(0, 0, 20)
	m := s.join(nil)
	s.committed()
	m.leave()
	s.once(20)
	assert.Equal(s, 20, s.noted("skipped"), "duplicates")
}

// Messages of a key are handled in their order, even when one of them fails; others do not wait.
func orderByKey(s *scene) {
	s.topic(orders, 2)
	var all []*kafkaadapter.Message
	for i := range 200 {
		m := message(orders, int32(i%2), number(i))
		m.Key = fmt.Append(nil, "key ", i%2, i%10)
		all = append(all, m)
	}
	s.send(all...)
	var mu sync.Mutex
	handled := map[string][]string{}
	m := s.join(func(_ context.Context, m *kafkaadapter.Message) error {
		mu.Lock()
		defer mu.Unlock()
		if m.Offset%7 == 3 && m.Attempt == 1 {
			return errBroken
		}
		handled[string(m.Key)] = append(handled[string(m.Key)], m.ID)
		return nil
	})
	s.committed()
	m.leave()
	s.once(200)
	assert.Len(s, handled, 10)
	for key, ids := range handled {
		assert.True(s, slices.IsSorted(ids), "%s: %v", key, ids)
	}
}

// A message that fails is handled again, and neither its offset nor those behind it are committed
// until it succeeds. Messages of other keys go on.
func retry(s *scene) {
	s.topic(orders, 1)
	s.produce(0, 0, 10)
	healed := make(chan struct{})
	m := s.join(func(_ context.Context, m *kafkaadapter.Message) error {
		if m.Offset != 3 {
			return nil
		}
		s.note("tried")
		select {
		case <-healed:
			assert.Greater(s, m.Attempt, 2)
			return nil
		default:
			return errBroken
		}
	})
	s.affected(9)
	s.committedTo(3)
	s.eventually(func() (bool, string) { return s.noted("tried") >= 3, "not tried again" })
	to, _ := s.cluster.Committed(group, orders, 0)
	assert.Equal(s, int64(3), to, "committed while a message fails")
	close(healed)
	s.committed()
	m.leave()
	s.once(10)
}

// A batch handler gets the messages that may run, returns an error for each, and the one that fails
// is run again.
func batch(s *scene) {
	s.topic(orders, 2)
	s.produce(0, 0, 500)
	s.produce(1, 500, 500)
	var mu sync.Mutex
	largest, failed := 0, false
	m := s.join(nil, configured(func(c *kafkaadapter.Config) {
		c.Handler = nil
		c.BatchHandler = func(_ context.Context, ms []*kafkaadapter.Message) []error {
			mu.Lock()
			defer mu.Unlock()
			largest = max(largest, len(ms))
			errs := make([]error, len(ms))
			for i, m := range ms {
				if m.ID == number(123) && !failed {
					failed, errs[i] = true, errBroken
					continue
				}
				s.affect(m)
			}
			return errs
		}
	}))
	s.committed()
	m.leave()
	s.once(1000)
	assert.GreaterOrEqual(s, largest, 2, "messages in the largest batch")
	assert.True(s, failed)
}

// The handler records messages itself.
func unclaimed(s *scene) {
	s.topic(orders, 1)
	s.produce(0, 0, 100)
	m := s.join(nil, configured(func(c *kafkaadapter.Config) {
		c.Deduper, c.Unclaimed = nil, true
		c.Handler = func(ctx context.Context, m *kafkaadapter.Message) error {
			if m.Attempt == 1 && m.Offset%10 == 0 {
				return errBroken
			}
			key, err := driver.NewID("t", m.Scope, m.ID)
			if err != nil {
				return err
			}
			token := driver.Token{1}
			s.store.Claim(ctx, []driver.ClaimRequest{{ID: key, Token: token, Lease: time.Second,
				Hold: time.Minute}})
			s.store.Finish(ctx, []driver.Finish{{ID: key, Token: token,
				State: driver.StateSucceeded, Window: time.Hour}})
			s.affect(m)
			return nil
		}
	}))
	s.committed()
	m.leave()
	s.once(100)
}

// A retry keeps the label of the first attempt, and a duplicate finds it.
func labels(s *scene) {
	s.topic(orders, 1)
	s.produce(0, 0, 1)
	var mu sync.Mutex
	var told []string
	tell := func(what string, m *kafkaadapter.Message) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, what+" "+m.Label+" found "+m.Found)
	}
	m := s.join(func(_ context.Context, m *kafkaadapter.Message) error {
		if m.Attempt == 1 {
			return errBroken
		}
		return nil
	}, configured(func(c *kafkaadapter.Config) {
		c.Label = func(m *kafkaadapter.Message) string { return fmt.Sprint("at ", m.Offset) }
		c.Observer = kafkaadapter.Observer{
			Handled: func(m *kafkaadapter.Message, _ time.Duration, _ error) {
				tell("handled", m)
			},
			Recorded: func(m *kafkaadapter.Message, _ time.Duration) { tell("recorded", m) },
			Skipped: func(m *kafkaadapter.Message, _ driver.Cause, _ time.Duration) {
				tell("skipped", m)
			},
		}
	}))
	s.committed()
	s.produce(0, 0, 1)
	s.committed()
	m.leave()
	assert.Equal(s, []string{"handled at 0 found ", "handled at 0 found ", "recorded at 0 found ",
		"skipped at 1 found at 0"}, told)
}

// Messages of two topics have the same ids. They are different messages.
func twoTopics(s *scene) {
	s.topic(orders, 2)
	s.topic(payments, 1)
	for i := range 20 {
		s.send(message(orders, int32(i%2), number(i)), message(payments, 0, number(i)))
	}
	m := s.join(nil, func(m *Member) { m.Topics = []string{orders, payments} })
	s.committed()
	m.leave()
	s.once(40)
}

// Two groups read one topic. Each handles, and commits, every message.
func twoGroups(s *scene) {
	s.topic(orders, 2)
	s.produce(0, 0, 20)
	s.produce(1, 20, 20)
	one := s.join(nil)
	two := s.join(nil, func(m *Member) { m.Group = "h" })
	s.committed()
	s.committedBy("h")
	one.leave()
	two.leave()
	s.once(80)
	assert.Zero(s, s.noted("skipped"))
}

// A group that has committed nothing begins at the oldest message that is left.
func oldest(s *scene) {
	s.free()
	s.topic(orders, 1)
	s.produce(0, 0, 10)
	require.NoError(s, s.cluster.DeleteRecords(orders, 0, 4))
	m := s.join(nil)
	s.committed()
	m.leave()
	s.once(6)
	assert.Empty(s, s.groupErrors())
}

// An offset that retention has deleted is an error until somebody decides. It is reported again and
// again, and nothing is skipped.
func gap(s *scene) {
	s.topic(orders, 1)
	s.produce(0, 0, 10)
	m := s.join(nil)
	s.committed()
	m.leave()
	s.produce(0, 10, 10)
	require.NoError(s, s.cluster.DeleteRecords(orders, 0, 15))
	before := len(s.groupErrors())
	m = s.join(nil)
	s.eventually(func() (bool, string) {
		return len(s.groupErrors()) >= before+3, "no error is told"
	})
	m.leave()
	s.once(10)
}

// Messages without an id are identified by their position, which has the topic's UUID: messages of
// a topic that was created again are other messages.
func positions(s *scene) {
	s.topic(orders, 1)
	join := func() *member {
		return s.join(nil, configured(func(c *kafkaadapter.Config) { c.Positions = true }))
	}
	send := func() {
		for range 5 {
			s.send(&kafkaadapter.Message{Topic: orders, Value: []byte("x"),
				Timestamp: time.UnixMilli(1e12)})
		}
	}
	m := join()
	send()
	s.committed()
	m.leave()
	s.replace(orders)
	send()
	m = join()
	s.affected(10)
	s.committed()
	m.leave()
	s.once(10)
	assert.GreaterOrEqual(s, s.noted("without id"), 10)
}
