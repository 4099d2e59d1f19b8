package kafkafranz

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
)

// reports records the labels that hooks get.
type reports struct {
	mu    sync.Mutex
	notes []string
}

func (o *reports) note(what string, m *kafkaadapter.Message) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.notes = append(o.notes, what+" "+m.Label+" found "+m.Found)
}

func (o *reports) observer() kafkaadapter.Observer {
	return kafkaadapter.Observer{
		Handled:  func(m *kafkaadapter.Message, _ time.Duration, _ error) { o.note("handled", m) },
		Recorded: func(m *kafkaadapter.Message, _ time.Duration) { o.note("recorded", m) },
		Skipped: func(m *kafkaadapter.Message, _ driver.Cause, _ time.Duration) {
			o.note("skipped", m)
		},
	}
}

func (o *reports) want(t *testing.T, want ...string) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	assert.Equal(t, want, o.notes)
}

// onceBroken fails in its first run.
func onceBroken() kafkaadapter.Handler {
	failed := false
	return func(context.Context, *kafkaadapter.Message) error {
		if !failed {
			failed = true
			return errBroken
		}
		return nil
	}
}

// first is Config.Label: it returns "first" for offset 0, and "second" for the duplicate.
func first(m *kafkaadapter.Message) string {
	if m.Offset == 0 {
		return "first"
	}
	return "second"
}

var wantLabels = []string{
	"handled first found ", "handled first found ", "recorded first found ",
	"skipped second found first",
}

// The same in a share group.
func TestShareLabels(t *testing.T) {
	r, o := newShareRig(t, 1, 30*time.Second, 5), &reports{}
	r.produce(0, 0, 1)
	m := r.share(onceBroken(), func(c *shareConfig) {
		c.Label, c.Observer = first, o.observer()
	})
	r.allAccepted()
	r.produce(0, 0, 1)
	r.allAccepted()
	m.leave()
	o.want(t, wantLabels...)
}
