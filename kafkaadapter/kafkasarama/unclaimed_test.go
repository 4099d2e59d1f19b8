package kafkasarama

import (
	"context"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
)

func unclaimed(r *rig, c *kafkaadapter.Config) {
	c.Unclaimed = true
	r.group.finished = nil // the handler's records are its own
}

// Unclaimed runs every delivery: duplicates are the handler's business, and so are
// messages without an id. Order, retries and commits are the same.
func TestUnclaimedRunsEveryDelivery(t *testing.T) {
	var attempts []int
	handler := func(_ context.Context, m *kafkaadapter.Message) error {
		if m.ID == "bad" {
			if attempts = append(attempts, m.Attempt); len(attempts) < 3 {
				return errBroken
			}
		}
		return nil
	}
	inBubble(t, 1, handler, unclaimed, func(r *rig) {
		r.outage() // no store is asked
		r.group.add(message("x", "a"), message("x", "a"), &sarama.ConsumerMessage{},
			message("bad", "b"), message("behind", "b"))
		r.after(10 * time.Second)
		r.wantRuns("x", 2)
		r.wantRuns("", 1)
		r.wantRuns("behind", 1)
		r.wantCommitted(5)
		assert.Equal(t, []int{1, 2, 3}, attempts)
		assert.Empty(t, r.store.Stats().Calls)
	})
}

func TestUnclaimedPermanentIsParked(t *testing.T) {
	var parked []string
	handler := func(_ context.Context, m *kafkaadapter.Message) error {
		if m.ID == "bad" {
			return dedup.Permanent(errBroken)
		}
		return nil
	}
	inBubble(t, 1, handler, func(r *rig, c *kafkaadapter.Config) {
		unclaimed(r, c)
		c.Park = func(_ context.Context, m *kafkaadapter.Message, _ error) error {
			parked = append(parked, m.ID)
			return nil
		}
	}, func(r *rig) {
		r.group.add(message("bad", "a"), message("next", "a"))
		r.after(time.Second)
		r.wantCommitted(2)
		assert.Equal(t, []string{"bad"}, parked)
	})
}

// Revoked: running handlers may end, the rest is left to the next owner.
func TestUnclaimedRevoke(t *testing.T) {
	inBubble(t, 1, takes(5*time.Second), func(r *rig, c *kafkaadapter.Config) {
		unclaimed(r, c)
		revoked(r, c)
	}, func(r *rig) {
		r.group.add(message("runs", "a"), message("behind", "a"))
		r.after(time.Second)
		r.stop()
		r.after(5 * time.Second)
		r.wantStop()
		r.wantCommitted(1)
		r.wantRuns("behind", 0)
		r.wantNoted("partition 0: 1 returned, 0 abandoned")
	})
}

// A permanent error of a canceled handler does not count: it may mean the cancellation.
func TestPermanentOfACancelledHandlerIsNotBelieved(t *testing.T) {
	for _, mode := range []struct {
		name   string
		change func(*rig, *kafkaadapter.Config)
	}{{"claimed", nil}, {"unclaimed", unclaimed}} {
		t.Run(mode.name, func(t *testing.T) {
			handler := func(ctx context.Context, _ *kafkaadapter.Message) error {
				<-ctx.Done()
				return dedup.Permanent(ctx.Err())
			}
			inBubble(t, 1, handler, mode.change, func(r *rig) {
				r.group.add(message("x", "a"))
				r.after(time.Second)
				r.stop()
				r.after(11 * time.Second)
				r.wantStop()
				r.wantCommitted(0)
			})
		})
	}
}
