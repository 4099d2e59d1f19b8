package kafkasarama

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/kafkaadapter"
)

// fails is a handler that fails for one id.
func fails(_ context.Context, m *kafkaadapter.Message) error {
	if m.ID == "bad" {
		return errBroken
	}
	return nil
}

// delayed sends failed messages to topics.
func delayed(p *fakeProducer, topics ...string) func(*rig, *kafkaadapter.Config) {
	return func(r *rig, c *kafkaadapter.Config) {
		r.group.finished = nil // a message that was sent on has no record of its end
		c.Attempts.Producer = producer{p}
		for _, t := range topics {
			c.Attempts.Delayed = append(c.Attempts.Delayed,
				kafkaadapter.DelayedTopic{Topic: t, Delay: time.Minute})
		}
		c.Observer.Delayed = func(m *kafkaadapter.Message, topic string, err error) {
			r.note(m.ID + " to " + topic + ": " + err.Error())
		}
	}
}

// A message that fails holds up neither its key nor its offset, and its letter carries all that the
// next attempt is to know.
func TestFailedMessageGoesToTheFirstDelayedTopic(t *testing.T) {
	p := &fakeProducer{}
	inBubble(t, 1, fails, delayed(p, "later-1", "later-2"), func(r *rig) {
		r.group.add(message("bad", "b"), message("behind", "b"))
		r.after(time.Second)
		r.wantRuns("bad", 1)
		r.wantRuns("behind", 1)
		r.wantCommitted(2)
		r.wantFree("bad")
		require.Len(r.t, p.sent(), 1)
		assert.Equal(r.t, "later-1", p.sent()[0].Topic)
		letter := Message(p.sent()[0])
		assert.Equal(r.t, "bad", string(letter.Value))
		for header, want := range map[string]string{
			kafkaadapter.HeaderID: "bad", kafkaadapter.HeaderFirstTopic: topic,
			kafkaadapter.HeaderOffset: "0", kafkaadapter.HeaderAttempts: "1",
			kafkaadapter.HeaderError: errBroken.Error(), "message-id": "bad",
		} {
			assert.Equal(r.t, want, letter.Header(header), header)
		}
		assert.Equal(r.t, []string{"bad to later-1: " + errBroken.Error()}, r.noted())
		assert.Equal(r.t, []string{topic, "later-1", "later-2"}, r.group.subscribed())
	})
}

// letterOf returns a letter as in a topic of Attempts.Delayed, after one attempt and sent now.
func letterOf(id string) *sarama.ConsumerMessage {
	letter := kafkaadapter.DeadLetter(topic, &kafkaadapter.Message{ID: id, Attempt: 1,
		Topic: "payments", Value: []byte(id), Key: []byte("k")}, errBroken)
	m := &sarama.ConsumerMessage{Key: letter.Key, Value: letter.Value, Timestamp: time.Now()}
	for _, h := range letter.Headers() {
		m.Headers = append(m.Headers, &sarama.RecordHeader{Key: []byte(h.Key), Value: h.Value})
	}
	return m
}

// A letter waits for the delay of its topic. Then it runs as the same message, in its next attempt.
// If it fails again, it goes to the next topic.
func TestLetterWaitsInADelayedTopic(t *testing.T) {
	for name, unclaimed := range map[string]bool{"claimed": false, "unclaimed": true} {
		t.Run(name, func(t *testing.T) {
			p := &fakeProducer{}
			var got kafkaadapter.Message
			handler := func(ctx context.Context, m *kafkaadapter.Message) error {
				if m.ID == "bad" {
					got = *m
				}
				return fails(ctx, m)
			}
			inBubble(t, 1, handler, func(r *rig, c *kafkaadapter.Config) {
				delayed(p, topic, "later-2")(r, c)
				c.Unclaimed = unclaimed
			}, func(r *rig) {
				r.group.add(letterOf("bad"))
				r.after(30 * time.Second)
				ahead := letterOf("ahead") // by the clock of its producer
				ahead.Timestamp = ahead.Timestamp.Add(time.Hour)
				r.group.add(ahead)
				r.after(29 * time.Second)
				r.wantRuns("bad", 0)
				r.after(2 * time.Second)
				r.wantRuns("bad", 1)
				r.wantRuns("ahead", 0)
				r.wantCommitted(1)
				assert.Equal(r.t, 2, got.Attempt)
				assert.Equal(r.t, "payments", got.FirstTopic)
				assert.Equal(r.t, kafkaadapter.ScopeOf(groupName, "payments"), got.Scope)
				require.Len(r.t, p.sent(), 1)
				assert.Equal(r.t, "later-2", p.sent()[0].Topic)
				assert.Equal(r.t, "2", Message(p.sent()[0]).Header(kafkaadapter.HeaderAttempts))
				r.after(30 * time.Second)
				r.wantRuns("ahead", 1)
				r.wantCommitted(2)
			})
		})
	}
}

// After the last topic a message goes to Park.
func TestLastDelayedTopicParks(t *testing.T) {
	p := &fakeProducer{}
	var reason error
	inBubble(t, 1, fails, func(r *rig, c *kafkaadapter.Config) {
		delayed(p, "later-1", topic)(r, c)
		c.Park = func(_ context.Context, _ *kafkaadapter.Message, why error) error {
			reason = why
			return nil
		}
	}, func(r *rig) {
		r.group.add(letterOf("bad"))
		r.after(2 * time.Minute)
		r.wantRuns("bad", 1)
		require.ErrorIs(r.t, reason, kafkaadapter.ErrAttempts)
		require.ErrorIs(r.t, reason, errBroken)
		assert.Empty(r.t, p.sent())
		r.wantCommitted(1)
	})
}

// A letter that waits for its time when the partition goes away is there for the next member.
func TestLetterWaitsForTheNextMember(t *testing.T) {
	inBubble(t, 1, nil, delayed(&fakeProducer{}, topic), func(r *rig) {
		r.group.add(letterOf("a"), letterOf("b"))
		r.after(30 * time.Second)
		r.stop()
		r.wantStop()
		r.after(time.Minute)
		r.wantRuns("a", 0)
		r.wantCommitted(0)
	})
}

// Until the brokers have the letter, the message holds up its key and its offset.
func TestDelayedTopicThatIsDown(t *testing.T) {
	p := &fakeProducer{}
	p.failing(func(*sarama.ProducerMessage) error { return sarama.ErrNotEnoughReplicas })
	inBubble(t, 1, fails, delayed(p, "later-1"), func(r *rig) {
		r.group.add(message("first", "a"), message("bad", "b"), message("behind", "b"),
			message("other", "c"))
		r.after(10 * time.Second)
		r.wantCommitted(1)
		r.wantRuns("bad", 1)
		r.wantRuns("behind", 0)
		r.wantRuns("other", 1)
		p.failing(nil)
		r.after(5 * time.Second)
		r.wantRuns("bad", 1)
		r.wantCommitted(4)
		require.Len(r.t, p.sent(), 1)
	})
}

// A message is retried in its own topic if its letter is too large for the delayed topic, or if the
// handler returns RetryAfter.
func TestRetriedInItsPlaceAllTheSame(t *testing.T) {
	p := &fakeProducer{}
	p.failing(func(m *sarama.ProducerMessage) error {
		if value, _ := m.Value.Encode(); string(value) == "large" {
			return sarama.ErrMessageSizeTooLarge
		}
		return nil
	})
	handler := func(_ context.Context, m *kafkaadapter.Message) error {
		switch {
		case m.ID == "large" && m.Attempt < 3:
			return errBroken
		case m.ID == "asks" && m.Attempt < 3:
			return kafkaadapter.RetryAfter(time.Second, errBroken)
		}
		return nil
	}
	inBubble(t, 1, handler, delayed(p, "later-1"), func(r *rig) {
		r.group.add(message("large", "a"), message("asks", "b"))
		r.after(time.Minute)
		r.wantRuns("large", 3)
		r.wantRuns("asks", 3)
		r.wantCommitted(2)
		assert.Empty(r.t, p.sent())
		assert.Empty(r.t, r.noted())
	})
}

// The first bad field of a configuration with delayed topics is named.
func TestDelayedTopicsAreChecked(t *testing.T) {
	to := func(topics ...string) (all []kafkaadapter.DelayedTopic) {
		for _, t := range topics {
			all = append(all, kafkaadapter.DelayedTopic{Topic: t, Delay: time.Second})
		}
		return all
	}
	own := &kafkaadapter.Owning{Partitioner: kafkaadapter.Murmur2,
		Acquire: func(context.Context, kafkaadapter.Assigned) (kafkaadapter.Ownership, error) {
			return nil, errors.New("unused")
		}}
	for field, a := range map[string]kafkaadapter.Attempts{
		"Attempts.Delayed[1].Topic": {Delayed: to("a", ""), Producer: producer{}},
		"Attempts.Delayed[2].Topic": {Delayed: to("a", "b", "a"), Producer: producer{}},
		"Attempts.Delayed[0].Delay": {Producer: producer{},
			Delayed: []kafkaadapter.DelayedTopic{{Topic: "a"}}},
		"Attempts.Delayed[1].Delay": {Producer: producer{}, // Hold is an hour
			Delayed: append(to("a"), kafkaadapter.DelayedTopic{Topic: "b", Delay: time.Hour})},
		"Attempts.Producer": {Delayed: to("a")},
		"Attempts.Delayed":  {Delayed: to("a"), Producer: producer{}},
	} {
		cfg := usable(t, kafkaadapter.Config{Attempts: a})
		if field == "Attempts.Delayed" {
			cfg.Own = own
		}
		_, err := New(stubClient{config: SafeConfig(nil)}, groupName, cfg)
		wantRefusal(t, err, "kafkaadapter.Config."+field, "")
	}
}
