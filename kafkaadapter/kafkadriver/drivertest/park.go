package drivertest

import (
	"context"
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
)

const (
	dead = "dead" // the dead-letter topic

	produceAPI    = 0
	invalidRecord = 87
)

type parkFunc = func(context.Context, *kafkaadapter.Message, error) error

// deadLetters makes a dead-letter topic, and returns a producer and a Park for it.
func (s *scene) deadLetters(limit int) (kafkaadapter.Producer, parkFunc) {
	s.Helper()
	require.NoError(s, s.cluster.CreateTopic(dead, 1, nil))
	p := s.d.Producer(s, s.cluster.ListenAddrs(), limit)
	park, err := kafkaadapter.DeadLetters(kafkaadapter.DeadLetterConfig{Producer: p,
		Topic: func(*kafkaadapter.Message) string { return dead }})
	require.NoError(s, err)
	return p, park
}

// readDeadLetters reads n dead letters, as a driver would deliver them.
func (s *scene) readDeadLetters(n int) []*kafkaadapter.Message {
	s.Helper()
	found := make(chan *kafkaadapter.Message, 2*n)
	m := s.join(nil, func(m *Member) {
		m.Group, m.Topics = readers, []string{dead}
		m.Config.Deduper, m.Config.Unclaimed, m.Config.Positions = nil, true, true
		m.Config.Handler = func(_ context.Context, m *kafkaadapter.Message) error {
			found <- m
			return nil
		}
	})
	all := make([]*kafkaadapter.Message, n)
	for i := range all {
		select {
		case all[i] = <-found:
		case <-time.After(patience):
			require.FailNow(s, "letters are missing")
		}
	}
	m.leave()
	assert.Empty(s, found, "letters that are too many")
	return all
}

// stops checks that a message that can never be processed stops a consumer without Park.
func stops(s *scene, odd *kafkaadapter.Message, want error) {
	s.Helper()
	s.topic(orders, 1)
	s.produce(0, 0, 5)
	s.send(odd)
	m := s.join(func(_ context.Context, m *kafkaadapter.Message) error {
		if m.Offset == 5 {
			return dedup.Permanent(errBroken)
		}
		return nil
	})
	err := m.wait()
	var message *kafkaadapter.UnprocessableError
	require.ErrorAs(s, err, &message)
	require.ErrorIs(s, err, want)
	assert.Equal(s, orders, message.Topic)
	assert.EqualValues(s, 5, message.Offset)
	s.committedTo(5)
	s.once(5)
}

func permanent(s *scene) { stops(s, message(orders, 0, "bad"), errBroken) }

func noID(s *scene) {
	stops(s, &kafkaadapter.Message{Topic: orders, Value: []byte("x")}, kafkaadapter.ErrNoID)
}

// A poison message uses its attempts up, goes to the dead-letter topic with all that is known about
// it, and comes back under its own id. Meanwhile the topic is down.
func replayedDeadLetter(s *scene) {
	s.topic(orders, 1)
	producer, park := s.deadLetters(0)
	fault := s.cluster.Fail(Failure{API: produceAPI, Topic: dead, Code: invalidRecord, Count: 2})
	healed := make(chan struct{})
	m := s.join(func(_ context.Context, m *kafkaadapter.Message) error {
		select {
		case <-healed:
			return nil
		default:
		}
		if m.ID == number(3) {
			return kafkaadapter.RetryAfter(time.Millisecond, errBroken)
		}
		return nil
	}, configured(func(c *kafkaadapter.Config) { c.Attempts.Max, c.Park = 3, park }))
	s.mu.Lock()
	s.parked[number(3)] = true // its attempts are used up, but it has not failed for good
	s.mu.Unlock()
	s.produce(0, 0, 6)
	s.committed()
	assert.Equal(s, 2, fault.Hits(), "letters for which the dead-letter topic was down")
	s.once(5)

	found := s.readDeadLetters(1)[0]
	for key, want := range map[string]string{
		kafkaadapter.HeaderID: number(3), kafkaadapter.HeaderTopic: orders,
		kafkaadapter.HeaderPartition: "0", kafkaadapter.HeaderOffset: "3",
		kafkaadapter.HeaderAttempts: "3", idHeader: number(3),
	} {
		assert.Equal(s, want, found.Header(key), key)
	}
	assert.Contains(s, found.Header(kafkaadapter.HeaderError), "broken")
	assert.Equal(s, number(3), string(found.Value))

	close(healed)
	d := s.deduper(s.store)
	again, err := kafkaadapter.Replay(s.Context(), d, found)
	require.NoError(s, err)
	s.mu.Lock()
	at := position{"", orders, 0}
	s.log[at] = append(s.log[at], number(3))
	s.mu.Unlock()
	require.NoError(s, producer.Send(s.Context(), again))
	s.committed()
	m.leave()
	s.once(6)
	_, err = kafkaadapter.Replay(s.Context(), d, found)
	require.ErrorIs(s, err, kafkaadapter.ErrSettled, "replayed again")
}

// A letter that is too large goes without its value, and if necessary without key and headers. A
// letter without a value cannot be sent back.
func largeDeadLetters(s *scene) {
	s.topic(orders, 1)
	_, park := s.deadLetters(10_000)
	huge := []byte(strings.Repeat("x", 20_000))
	value := &kafkaadapter.Message{Topic: orders, Key: []byte("k"), Value: huge}
	all := &kafkaadapter.Message{Topic: orders, Key: huge, Value: huge}
	all.SetHeaders(kafkaadapter.Headers{{Key: "h", Value: huge}})
	require.NoError(s, park(s.Context(), value, errBroken))
	require.NoError(s, park(s.Context(), all, errBroken))
	found := s.readDeadLetters(2)
	for _, l := range found {
		assert.Empty(s, l.Value)
		assert.Equal(s, "20000", l.Header(kafkaadapter.HeaderTooLarge))
		assert.Equal(s, l.Offset == 0, len(l.Key) > 0, "letter %d has a key", l.Offset)
		assert.Empty(s, l.Header("h"))
	}
	_, err := kafkaadapter.Replay(s.Context(), nil, found[0])
	require.ErrorIs(s, err, kafkaadapter.ErrNoDeadLetter)
}

// The dead-letter topic of one topic is missing, and more letters than may be sent at a time wait
// for it. The letters of the other topic do not wait.
func otherDeadLetters(s *scene) {
	const n = 40
	s.free() // parked messages have no record
	s.topic(orders, 1)
	s.topic(payments, 1)
	waiting := make(chan struct{}, n)
	m := s.join(func(context.Context, *kafkaadapter.Message) error {
		return dedup.Permanent(errBroken)
	}, func(m *Member) {
		m.Topics = []string{orders, payments}
		m.Config.Park = func(ctx context.Context, m *kafkaadapter.Message, _ error) error {
			if m.Topic == payments {
				return nil
			}
			waiting <- struct{}{}
			<-ctx.Done()
			return context.Cause(ctx)
		}
		m.Config.Observer.Parked = func(m *kafkaadapter.Message, _ error) { s.note(m.Topic) }
	})
	s.produce(0, 0, n)
	for range 16 {
		<-waiting
	}
	for i := range n {
		s.send(message(payments, 0, number(i)))
	}
	s.eventually(func() (bool, string) { return s.noted(payments) == n, "letters are missing" })
	assert.Zero(s, s.noted(orders))
	m.leave()
}
