package kafkasarama

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
)

// While the dead-letter topic is down the offset stays and the key waits; other keys move
// on, and the handler is not run again. When it is back, the letter is there once.
func TestDeadLetterTopicThatIsDown(t *testing.T) {
	p := &fakeProducer{}
	p.failing(func(*sarama.ProducerMessage) error { return sarama.ErrNotEnoughReplicas })
	handler := func(_ context.Context, m *kafkaadapter.Message) error {
		if m.ID == "bad" {
			return dedup.Permanent(errBroken)
		}
		return nil
	}
	inBubble(t, 1, handler, func(_ *rig, c *kafkaadapter.Config) {
		c.Park = deadLetters(t, p)
	}, func(r *rig) {
		r.group.add(message("first", "a"), message("bad", "b"), message("behind", "b"),
			message("other", "c"))
		r.after(10 * time.Second)
		r.wantCommitted(1)
		r.wantRuns("bad", 1)
		r.wantRuns("behind", 0)
		r.wantRuns("other", 1)
		p.failing(nil)
		r.after(5 * time.Second)
		r.wantCommitted(4)
		r.wantRuns("bad", 1)
		r.wantRuns("behind", 1)
		require.Len(r.t, p.sent(), 1)
		assert.Equal(t, "bad", Message(p.sent()[0]).Header(kafkaadapter.HeaderID))
	})
}

// A letter has a header of a megabyte once, not again as the id. A letter that is too large for the
// topic is sent without the header: the message must not hold up its key forever.
func TestDeadLetterOfAHugeHeader(t *testing.T) {
	huge := strings.Repeat("x", 1<<20)
	size := func(m *sarama.ProducerMessage) (n int) {
		for _, h := range m.Headers {
			n += len(h.Key) + len(h.Value)
		}
		return n
	}
	for name, row := range map[string]struct{ limit, headers int }{
		"that fits":         {1<<20 + 2048, 1},
		"that does not fit": {1 << 20, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := &fakeProducer{}
			var log strings.Builder
			p.failing(func(m *sarama.ProducerMessage) error {
				if size(m) > row.limit {
					return sarama.ErrMessageSizeTooLarge
				}
				return nil
			})
			inBubble(t, 1, nil, func(_ *rig, c *kafkaadapter.Config) {
				c.Park = deadLetters(t, p)
				c.Logger = slog.New(slog.NewTextHandler(&log, nil))
			}, func(r *rig) {
				r.group.finished = nil // a message without a usable id has no record
				r.group.add(message(huge, "k"))
				r.after(time.Second)
				r.wantCommitted(1)
			})
			require.Len(t, p.sent(), 1)
			letter := Message(p.sent()[0])
			assert.Len(t, letter.Header("message-id"), row.headers*len(huge))
			assert.Empty(t, letter.Header(kafkaadapter.HeaderID), "an id that was never claimed")
			why := len(letter.Header(kafkaadapter.HeaderError))
			assert.True(t, 0 < why && why <= 1<<10, "the reason has %d bytes", why)
			assert.LessOrEqual(t, log.Len(), 1<<12, "what was logged")
		})
	}
}
