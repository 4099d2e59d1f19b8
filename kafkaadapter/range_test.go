package kafkaadapter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/onceward/onceward/dedup"
)

// ranges is a range handler that notes what it was given.
type ranges struct {
	mu   sync.Mutex
	seen []string
	fail func(r *Range) error
}

func (h *ranges) handle(_ context.Context, r *Range) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.Topic != topic || r.TopicID != "AAAAAAAAAAAAAAAAAAAAAQ" || r.Partition != 0 ||
		r.Messages[0].Offset != r.From || r.Messages[len(r.Messages)-1].Offset != r.To-1 {
		h.seen = append(h.seen, fmt.Sprintf("not a range: %+v", r))
	}
	h.seen = append(h.seen, fmt.Sprintf("%d-%d:%d", r.From, r.To, len(r.Messages)))
	if h.fail == nil {
		return nil
	}
	return h.fail(r)
}

func withRanges(h *ranges) func(*rig, *Config) {
	return func(r *rig, c *Config) {
		unclaimed(r, c)
		c.Handler, c.RangeHandler = nil, h.handle
		c.Order, c.Positions = ByPartition, positionsOf(r.t)
	}
}

// Ranges follow each other whatever the keys are, over the log's own gaps.
func TestRangesFollowEachOther(t *testing.T) {
	h := &ranges{}
	inBubble(t, 1, nil, func(r *rig, c *Config) {
		withRanges(h)(r, c)
		c.BatchMax = 4
	}, func(r *rig) {
		for i := range int64(10) {
			// a gap after five
			r.group.add(at(0, 100+i+i/5*20, message(fmt.Sprint(i), fmt.Sprint(i%3))))
		}
		r.after(time.Second)
		r.wantCommitted(130)
	})
	if want := []string{"100-104:4", "104-128:4", "128-130:2"}; !slices.Equal(h.seen, want) {
		t.Errorf("ranges %q, want %q", h.seen, want)
	}
}

// A range that fails comes again message by message, before anything behind it; what fails for
// good is put aside in its turn.
func TestRangeFails(t *testing.T) {
	var parked []string
	h := &ranges{fail: func(r *Range) error {
		if r.From <= 2 && 2 < r.To {
			return dedup.Permanent(errBroken)
		}
		return nil
	}}
	inBubble(t, 1, nil, func(r *rig, c *Config) {
		withRanges(h)(r, c)
		c.BatchMax = 4
		c.Park = func(_ context.Context, m *Message, reason error) error {
			parked = append(parked, fmt.Sprint(m.Offset, errors.Is(reason, errBroken)))
			h.mu.Lock()
			defer h.mu.Unlock()
			h.seen = append(h.seen, "parked")
			return nil
		}
	}, func(r *rig) {
		r.group.add(ids(7)...)
		r.after(10 * time.Second)
		r.wantCommitted(7)
	})
	if want := []string{"0-4:4", "0-1:1", "1-2:1", "2-3:1", "parked", "3-4:1",
		"4-7:3"}; !slices.Equal(h.seen, want) {
		t.Errorf("ranges %q, want %q", h.seen, want)
	}
	if !slices.Equal(parked, []string{"2 true"}) {
		t.Errorf("parked %q", parked)
	}
}

func TestSince(t *testing.T) {
	r := &Range{From: 10, To: 31}
	for _, offset := range []int64{10, 11, 20, 30} {
		r.Messages = append(r.Messages, &Message{ConsumerMessage: at(0, offset, message("x", ""))})
	}
	for offset, want := range map[int64]int{0: 4, 10: 4, 11: 3, 12: 2, 20: 2, 21: 1, 30: 1,
		31: 0, 99: 0} {
		if got := r.Since(offset); len(got) != want || want > 0 && got[want-1].Offset != 30 {
			t.Errorf("Since(%d): %d messages, want %d", offset, len(got), want)
		}
	}
}

func TestNewRefusesRanges(t *testing.T) {
	handle := func(context.Context, *Range) error { return nil }
	good := Config{RangeHandler: handle, Unclaimed: true, Order: ByPartition,
		Positions: positionsOf(t)}
	if _, err := New(good); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		field  string
		change func(*Config)
	}{
		{"Order", func(c *Config) { c.Order = ByKey }},
		{"Order", func(c *Config) { c.Order = Unordered }},
		{"Positions", func(c *Config) { c.Positions = nil }},
		{"Unclaimed", func(c *Config) {
			c.Unclaimed, c.Deduper = false, newAdapter(t, Config{}).cfg.Deduper
		}},
		{"Handler", func(c *Config) { c.RangeHandler = nil }},
		{"RangeHandler", func(c *Config) {
			c.Handler = func(context.Context, *Message) error { return nil }
		}},
		{"RangeHandler", func(c *Config) {
			c.BatchHandler = func(context.Context, []*Message) []error { return nil }
		}},
		{"MaxAttempts", func(c *Config) { c.MaxAttempts = 1 }},
		{"BatchMax", func(c *Config) { c.BatchMax = -1 }},
	} {
		cfg := good
		c.change(&cfg)
		_, err := New(cfg)
		var input *dedup.InputError
		if !errors.As(err, &input) || input.Field != "kafkaadapter.Config."+c.field {
			t.Errorf("New: %v, want an InputError about kafkaadapter.Config.%s", err, c.field)
		}
	}
}
