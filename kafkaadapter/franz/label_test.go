package franz

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// told is what hooks were told of labels.
type told struct {
	mu    sync.Mutex
	notes []string
}

func (o *told) note(what string, m *Message) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.notes = append(o.notes, what+" "+m.Label+" found "+m.Found)
}

func (o *told) observer() Observer {
	return Observer{
		Handled:  func(m *Message, _ time.Duration, _ error) { o.note("handled", m) },
		Recorded: func(m *Message, _ time.Duration) { o.note("recorded", m) },
		Skipped:  func(m *Message, _ driver.Cause, _ time.Duration) { o.note("skipped", m) },
	}
}

func (o *told) want(t *testing.T, want ...string) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range max(len(want), len(o.notes)) {
		if i >= len(want) || i >= len(o.notes) || o.notes[i] != want[i] {
			t.Errorf("told of\n%q\nwant\n%q", o.notes, want)
			return
		}
	}
}

// onceBroken fails in its first run.
func onceBroken() Handler {
	failed := false
	return func(context.Context, *Message) error {
		if !failed {
			failed = true
			return errBroken
		}
		return nil
	}
}

// first is the label of the first message, second that of the other one with its id.
func first(m *Message) string {
	if m.Offset == 0 {
		return "first"
	}
	return "second"
}

func (r *rig) keepingLabels() *dedup.Deduper {
	d, err := dedup.New(r.store, dedup.Config{Namespace: "t", Window: time.Hour, LeaseTTL: r.lease,
		Hold: time.Minute, Labels: true})
	if err != nil {
		r.t.Fatal(err)
	}
	return d
}

var wantLabels = []string{
	"handled first found ", "handled first found ", "recorded first found ",
	"skipped second found first",
}

// A retry keeps the label of the first attempt, and a duplicate finds it.
func TestLabels(t *testing.T) {
	r, o := newRig(t, cooperative, 1), &told{}
	r.produce(0, 0, 1)
	m := r.join(onceBroken(), func(c *Config) {
		c.Deduper, c.Label, c.Observer = r.keepingLabels(), first, o.observer()
	})
	r.committed()
	r.produce(0, 0, 1)
	r.committed()
	m.leave()
	o.want(t, wantLabels...)
}

// Likewise in a share group.
func TestShareLabels(t *testing.T) {
	r, o := newShareRig(t, 1, 30*time.Second, 5), &told{}
	r.produce(0, 0, 1)
	m := r.share(onceBroken(), func(c *ShareConfig) {
		c.Deduper, c.Label, c.Observer = r.keepingLabels(), first, o.observer()
	})
	r.allAccepted()
	r.produce(0, 0, 1)
	r.allAccepted()
	m.leave()
	o.want(t, wantLabels...)
}
