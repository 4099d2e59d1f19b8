package kafkaadapter

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// labelled is a configuration whose claims keep a new label for each message, and whose hooks
// note what they are told of it.
func labelled(asked *atomic.Int32) func(*rig, *Config) {
	return func(r *rig, c *Config) {
		d, err := dedup.New(r.store, dedup.Config{Namespace: "t", Window: time.Hour,
			LeaseTTL: lease, Hold: time.Hour, Labels: true})
		if err != nil {
			r.t.Fatal(err)
		}
		r.dedup, c.Deduper = d, d
		c.Label = func(*Message) string { return fmt.Sprint("label ", asked.Add(1)) }
		note := func(what string, m *Message) {
			r.note(fmt.Sprintf("%s: attempt %d, %s, found %s", what, m.Attempt, m.Label, m.Found))
		}
		c.Observer.Handled = func(m *Message, _ time.Duration, _ error) { note("handled", m) }
		c.Observer.Recorded = func(m *Message, _ time.Duration) { note("recorded", m) }
		c.Observer.Skipped = func(m *Message, _ driver.Cause, _ time.Duration) {
			note("skipped", m)
		}
		c.Observer.Waiting = func(m *Message) { note("waiting", m) }
	}
}

func (r *rig) wantNoted(want ...string) {
	r.t.Helper()
	if got := r.noted(); !slices.Equal(got, want) {
		r.t.Errorf("noted\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A retry keeps the label of the first attempt, and is not asked for another one; a duplicate
// finds it, and knows its own.
func TestRetryKeepsTheLabelOfTheFirst(t *testing.T) {
	var asked atomic.Int32
	failed := false
	handler := func(context.Context, *Message) error {
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

// What another process holds, and lets lapse, is run here under the label of that one.
func TestTakeoverKeepsTheLabelOfTheFirst(t *testing.T) {
	// with a cap the first question is for a key that has no attempt yet
	for _, cap := range []int{0, 5} {
		t.Run(fmt.Sprint("MaxAttempts ", cap), func(t *testing.T) {
			var asked atomic.Int32
			change := func(r *rig, c *Config) {
				labelled(&asked)(r, c)
				c.MaxAttempts = cap
				c.Observer.Waiting = nil // as often as it takes
				if _, err := r.dedup.Claim(context.Background(), "a", scoped,
					func(r *dedup.Request) { r.Label = "elsewhere" }); err != nil {
					r.t.Fatal(err)
				}
			}
			inBubble(t, 1, nil, change, func(r *rig) {
				r.group.add(message("a", "k"))
				r.after(2 * lease)
				r.wantNoted("handled: attempt 2, label 1, found elsewhere",
					"recorded: attempt 2, label 1, found elsewhere")
				rec, err := r.dedup.Lookup(context.Background(), "a", scoped)
				if err != nil || rec.Label != "elsewhere" {
					t.Errorf("the record has the label %q: %v", rec.Label, err)
				}
			})
		})
	}
}

// A label that cannot be kept is left out: it must not hold its message up.
func TestBadLabelsAreLeftOut(t *testing.T) {
	for _, label := range []string{strings.Repeat("x", 65), "\xff", "a\nb"} {
		var asked atomic.Int32
		change := func(r *rig, c *Config) {
			labelled(&asked)(r, c)
			c.Label = func(*Message) string { return label }
		}
		inBubble(t, 1, nil, change, func(r *rig) {
			r.group.add(message("a", "k"))
			r.after(time.Second)
			r.wantNoted("handled: attempt 1, , found ", "recorded: attempt 1, , found ")
			r.wantCommitted(1)
		})
	}
}
