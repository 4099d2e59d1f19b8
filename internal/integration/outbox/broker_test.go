package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/outbox"
)

// broker is a publisher that remembers what it has acknowledged, in order.
type broker struct {
	mu       sync.Mutex
	messages []outbox.Message
	calls    int
	changed  chan struct{}

	// before, if set, may refuse a call as a whole, or wait; it runs without the lock.
	before func(ctx context.Context, messages []outbox.Message) error
	// fail, if set, refuses single messages; it runs with the lock. Later messages of the same
	// topic and key in the call are then not sent.
	fail func(m outbox.Message) error
	// careless sends them anyway.
	careless bool
}

func newBroker() *broker { return &broker{changed: make(chan struct{})} }

func (b *broker) Publish(ctx context.Context, messages []outbox.Message) []error {
	results := make([]error, len(messages))
	if b.before != nil {
		if err := b.before(ctx, messages); err != nil {
			for i := range results {
				results[i] = err
			}
			return results
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls++
	broken := map[string]bool{}
	for i, m := range messages {
		lane := m.Topic + "\x00" + string(m.Key)
		switch {
		case broken[lane] && !b.careless:
			results[i] = errNotSent
		case b.fail != nil && b.fail(m) != nil:
			results[i] = b.fail(m)
			broken[lane] = len(m.Key) > 0
		default:
			b.messages = append(b.messages, m)
		}
	}
	close(b.changed)
	b.changed = make(chan struct{})
	return results
}

// failsOnce refuses a message the first time. A broker calls fail twice for each refusal.
func failsOnce(id string) func(outbox.Message) error {
	asked := 0
	return func(m outbox.Message) error {
		if m.ID != id || asked == 2 {
			return nil
		}
		asked++
		return errDown
	}
}

var errNotSent = errors.New("not sent: an earlier one of its key has failed")

// got returns the messages that were acknowledged so far.
func (b *broker) got() ([]outbox.Message, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]outbox.Message(nil), b.messages...), b.changed
}

// wait waits until n messages have been acknowledged.
func (b *broker) wait(t *testing.T, n int) []outbox.Message {
	t.Helper()
	most := limit(t)
	ctx, cancel := context.WithTimeout(t.Context(), most)
	defer cancel()
	for {
		got, changed := b.got()
		if len(got) >= n {
			return got
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("%d of %d messages in %v", len(got), n, most)
		}
	}
}

// numbered is message i of a key. Its id has both.
func numbered(key string, i int) outbox.Message {
	id := fmt.Sprintf("%s/%d", key, i)
	return outbox.Message{ID: id, Topic: "t", Key: []byte(key), Payload: []byte(id)}
}

// tally counts the faults that a consumer would see.
type tally struct {
	lost       int // that were committed and never came
	duplicates int // that were published again
	inversions int // that came first after a later message of their key had come
}

// judge compares the messages that came with the number that was committed for each key. They are
// numbered from 0 in the order of their commits.
func judge(got []outbox.Message, committed map[string]int) tally {
	var tl tally
	seen := map[string]bool{}
	next := map[string]int{}
	for _, m := range got {
		if seen[m.ID] {
			tl.duplicates++
			continue
		}
		seen[m.ID] = true
		key, number, _ := strings.Cut(m.ID, "/")
		i, _ := strconv.Atoi(number)
		if i < next[key] {
			tl.inversions++
		}
		next[key] = max(next[key], i+1)
	}
	for key, n := range committed {
		for i := range n {
			if !seen[fmt.Sprintf("%s/%d", key, i)] {
				tl.lost++
			}
		}
	}
	return tl
}

// Prevents a judge that finds nothing.
func TestJudge(t *testing.T) {
	sent := []outbox.Message{numbered("a", 0), numbered("a", 2), numbered("a", 1), numbered("b", 0),
		numbered("a", 2)}
	got := judge(sent, map[string]int{"a": 4, "b": 1})
	assert.Equal(t, tally{lost: 1, duplicates: 1,
		inversions: 1}, got)
}
