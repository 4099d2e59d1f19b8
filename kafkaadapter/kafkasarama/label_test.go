package kafkasarama

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
)

// labelled is a configuration whose claims keep a new label for each message, and whose hooks
// note what they get.
func labelled(asked *atomic.Int32) func(*rig, *kafkaadapter.Config) {
	return func(r *rig, c *kafkaadapter.Config) {
		d, err := dedup.New(r.store, dedup.Config{Namespace: "t", Window: time.Hour,
			LeaseTTL: lease, Hold: time.Hour, Labels: true})
		require.NoError(r.t, err)
		r.dedup, c.Deduper = d, d
		c.Label = func(*kafkaadapter.Message) string { return fmt.Sprint("label ", asked.Add(1)) }
		note := func(what string, m *kafkaadapter.Message) {
			r.note(fmt.Sprintf("%s: attempt %d, %s, found %s", what, m.Attempt, m.Label, m.Found))
		}
		c.Observer.Handled = func(m *kafkaadapter.Message, _ time.Duration, _ error) {
			note("handled", m)
		}
		c.Observer.Recorded = func(m *kafkaadapter.Message, _ time.Duration) { note("recorded", m) }
		c.Observer.Skipped = func(m *kafkaadapter.Message, _ driver.Cause, _ time.Duration) {
			note("skipped", m)
		}
		c.Observer.Waiting = func(m *kafkaadapter.Message) { note("waiting", m) }
	}
}

func (r *rig) wantNoted(want ...string) {
	r.t.Helper()
	assert.Equal(r.t, want, r.noted())
}

// A retry keeps the label of the first attempt, and is not asked for another one; a duplicate
// finds it, and knows its own.
func TestRetryKeepsTheLabelOfTheFirst(t *testing.T) {
	var asked atomic.Int32
	failed := false
	handler := func(context.Context, *kafkaadapter.Message) error {
		if !failed {
			failed = true
			return errBroken
		}
		return nil
	}
	inBubble(t, 1, handler, labelled(&asked), func(r *rig) {
		r.group.add(message("a", "k"))
		r.after(time.Minute)
		r.group.add(message("a", "k"))
		r.after(time.Second)
		r.wantNoted(
			"handled: attempt 1, label 1, found ", "handled: attempt 2, label 1, found ",
			"recorded: attempt 2, label 1, found ", "skipped: attempt 0, label 2, found label 1",
		)
	})
}

// A message that another process holds, and lets lapse, is run here under the label of that one.
func TestTakeoverKeepsTheLabelOfTheFirst(t *testing.T) {
	// with a cap the first question is for a key that has no attempt yet
	for _, cap := range []int{0, 5} {
		t.Run(fmt.Sprint("Attempts.Max ", cap), func(t *testing.T) {
			var asked atomic.Int32
			change := func(r *rig, c *kafkaadapter.Config) {
				labelled(&asked)(r, c)
				c.Attempts.Max = cap
				c.Observer.Waiting = nil // as often as it takes
				_, err := r.dedup.Claim(context.Background(), "a", scoped,
					func(r *dedup.Request) { r.Label = "elsewhere" })
				require.NoError(r.t, err)
			}
			inBubble(t, 1, nil, change, func(r *rig) {
				r.group.add(message("a", "k"))
				r.after(2 * lease)
				r.wantNoted("handled: attempt 2, label 1, found elsewhere",
					"recorded: attempt 2, label 1, found elsewhere")
				rec, err := r.dedup.Lookup(context.Background(), "a", scoped)
				require.NoError(r.t, err)
				assert.Equal(t, "elsewhere", rec.Label)
			})
		})
	}
}

// A label that cannot be kept is left out: it must not hold its message up.
func TestBadLabelsAreLeftOut(t *testing.T) {
	for _, label := range []string{strings.Repeat("x", 65), "\xff", "a\nb"} {
		var asked atomic.Int32
		change := func(r *rig, c *kafkaadapter.Config) {
			labelled(&asked)(r, c)
			c.Label = func(*kafkaadapter.Message) string { return label }
		}
		inBubble(t, 1, nil, change, func(r *rig) {
			r.group.add(message("a", "k"))
			r.after(time.Second)
			r.wantNoted("handled: attempt 1, , found ", "recorded: attempt 1, , found ")
			r.wantCommitted(1)
		})
	}
}
