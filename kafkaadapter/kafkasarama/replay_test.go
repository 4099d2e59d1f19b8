package kafkasarama

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/internal/msgid"
)

// A replayed letter runs once more, under its own id, whatever Config.ID finds. A second copy of it
// is a duplicate. Once it has succeeded, there is nothing to replay.
func TestReplayedLetterRunsOnceMore(t *testing.T) {
	p := &fakeProducer{}
	var fixed atomic.Bool
	handler := func(context.Context, *kafkaadapter.Message) error {
		if fixed.Load() {
			return nil
		}
		return dedup.Permanent(errBroken)
	}
	byValue := func(m *kafkaadapter.Message) (string, bool) { return "v-" + string(m.Value), true }
	inBubble(t, 1, handler, func(r *rig, c *kafkaadapter.Config) {
		c.Park, c.ID = deadLetters(t, p), kafkaadapter.FirstOf(kafkaadapter.Replayed(), byValue)
		r.group.finished = nil // the replay forgets a record below the committed offset
	}, func(r *rig) {
		r.group.add(message("bad", "b"))
		r.after(time.Second)
		r.wantRuns("v-bad", 1)
		r.wantCommitted(1)
		fixed.Store(true)
		letter := p.sent()[0]
		first := replayed(r, letter)
		assert.Equal(t, topic, first.Topic)
		assert.Equal(t, "bad", string(first.Value))
		assert.Equal(t, "b", string(first.Key))
		_, err := kafkaadapter.Replay(context.Background(), r.dedup, Message(letter))
		require.ErrorIs(r.t, err, kafkaadapter.ErrNoRecord, "the first one has freed the key")
		// as after a crash between the two
		r.group.add(first, replayed(r, letter, kafkaadapter.Unrecorded()))
		r.after(time.Second)
		r.wantRuns("v-bad", 2)
		r.wantCommitted(3)
		_, err = kafkaadapter.Replay(context.Background(), r.dedup, Message(letter))
		require.ErrorIs(r.t, err, kafkaadapter.ErrSettled)
	})
}

// replayed replays a letter with the driver's producer, and returns it as a consumer gets it.
func replayed(r *rig, letter *sarama.ConsumerMessage,
	opts ...kafkaadapter.ReplayOption) *sarama.ConsumerMessage {
	r.t.Helper()
	back, err := kafkaadapter.Replay(context.Background(), r.dedup, Message(letter), opts...)
	require.NoError(r.t, err)
	p := &fakeProducer{}
	require.NoError(r.t, producer{p}.Send(context.Background(), back))
	return p.sent()[0]
}

// A message whose id was hashed is replayed under that hash, not under a hash of the hash, even if
// Config.ID hashes DefaultID.
func TestHashedLetterIsReplayed(t *testing.T) {
	p := &fakeProducer{}
	fixed := false
	handler := func(context.Context, *kafkaadapter.Message) error {
		if fixed {
			return nil
		}
		return dedup.Permanent(errBroken)
	}
	inBubble(t, 1, handler, func(r *rig, c *kafkaadapter.Config) {
		c.Park, c.ID = deadLetters(t, p), kafkaadapter.Hashed(kafkaadapter.DefaultID())
		r.group.finished = nil
	}, func(r *rig) {
		r.group.add(message("bin\x00ary", "b"))
		r.after(time.Second)
		id := Message(p.sent()[0]).Header(kafkaadapter.HeaderID)
		require.True(r.t, strings.HasPrefix(id, msgid.HashPrefix), id)
		fixed = true
		r.group.add(replayed(r, p.sent()[0]))
		r.after(time.Second)
		r.wantRuns(id, 2)
	})
}

// RetryAfter replaces the backoff, for the message's own key.
func TestRetryAfter(t *testing.T) {
	handler := func(ctx context.Context, m *kafkaadapter.Message) error {
		if m.ID == "slow" && m.Attempt < 3 {
			err := backoff.Sleep(ctx, 10*time.Millisecond) // meanwhile "behind" is claimed
			return kafkaadapter.RetryAfter(time.Minute, errors.Join(err, errBroken))
		}
		return nil
	}
	inBubble(t, 1, handler, nil, func(r *rig) {
		r.group.add(message("slow", "a"), message("behind", "a"), message("other", "b"))
		r.after(59 * time.Second)
		r.wantRuns("slow", 1)
		r.wantRuns("behind", 0)
		r.wantRuns("other", 1)
		r.wantFree("behind") // this claim is an attempt, too
		r.after(2 * time.Second)
		r.wantRuns("slow", 2)
		r.after(time.Minute)
		r.wantRuns("slow", 3)
		r.wantRuns("behind", 1)
		r.wantCommitted(3)
	})
}
