package outbox

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var errNo = errors.New("no")

func keyed(key string, n int) (messages []Message) {
	for i := range n {
		messages = append(messages,
			Message{ID: fmt.Sprint(key, i), Topic: "t", Key: []byte(key)})
	}
	return messages
}

// eachCalls remembers what was published, and how many calls there were at once.
type eachCalls struct {
	mu        sync.Mutex
	ids       []string
	now, most int
}

func (r *eachCalls) enter(m *Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids = append(r.ids, m.ID)
	r.now++
	r.most = max(r.most, r.now)
}

func (r *eachCalls) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now--
}

// A message is published when the message of its key before it is acknowledged. Messages of other
// keys do not wait for it.
func TestPublishEachKeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &eachCalls{}
		messages := slices.Concat(keyed("a", 3), keyed("b", 3), keyed("", 3))
		step := make(chan struct{})
		ended := make(chan []error)
		go func() {
			ended <- PublishEach(t.Context(), messages, 100,
				func(_ context.Context, m *Message) error {
					r.enter(m)
					defer r.leave()
					<-step
					return nil
				})
		}()
		synctest.Wait()
		assert.ElementsMatch(t, []string{"a0", "b0", "0", "1", "2"}, r.ids)
		for range messages {
			step <- struct{}{}
		}
		assert.Equal(t, make([]error, len(messages)), <-ended)
		for _, key := range []string{"a", "b"} {
			of := slices.DeleteFunc(slices.Clone(r.ids),
				func(id string) bool { return id[:1] != key })
			assert.Equal(t, []string{key + "0", key + "1", key + "2"}, of)
		}
	})
}

func TestPublishEachIsBounded(t *testing.T) {
	for limit, most := range map[int]int{-1: 1, 0: 1, 1: 1, 3: 3, 100: 10} {
		synctest.Test(t, func(t *testing.T) {
			r := &eachCalls{}
			step := make(chan struct{})
			ended := make(chan []error)
			go func() {
				ended <- PublishEach(t.Context(), keyed("", 10), limit,
					func(_ context.Context, m *Message) error {
						r.enter(m)
						defer r.leave()
						<-step
						return nil
					})
			}()
			synctest.Wait()
			close(step)
			assert.Equal(t, make([]error, 10), <-ended)
			assert.Equal(t, most, r.most)
		})
	}
}

// A message behind a failed one of its key is not published. Others are.
func TestPublishEachStopsAKeyThatFails(t *testing.T) {
	r := &eachCalls{}
	messages := slices.Concat(keyed("a", 3), keyed("b", 2), keyed("", 2))
	results := PublishEach(t.Context(), messages, 2, func(_ context.Context, m *Message) error {
		r.enter(m)
		defer r.leave()
		if m.ID == "a1" || m.ID == "0" {
			return Reject(errNo)
		}
		return nil
	})
	assert.Equal(t, []error{nil, Reject(errNo), errBehind, nil, nil, Reject(errNo), nil}, results)
	assert.NotContains(t, r.ids, "a2")
	assert.NotErrorIs(t, results[2], ErrRejected, "it was not refused, and must not be parked")
}

// A call that panics or ends its goroutine is an error of its message, and no acknowledgement.
func TestPublishEachSurvives(t *testing.T) {
	results := PublishEach(t.Context(), slices.Concat(keyed("a", 2), keyed("b", 2)), 2,
		func(_ context.Context, m *Message) error {
			switch m.ID {
			case "a0":
				panic("of a0")
			case "b0":
				runtime.Goexit()
			}
			return nil
		})
	require.ErrorIs(t, results[0], ErrUnacknowledged)
	require.ErrorContains(t, results[0], "panicked: of a0")
	assert.Equal(t, errBehind, results[1])
	require.ErrorIs(t, results[2], ErrUnacknowledged)
	assert.ErrorIs(t, results[3], ErrUnacknowledged)
}

func TestPublishEachStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	calls := 0
	results := PublishEach(ctx, slices.Concat(keyed("a", 2), keyed("b", 1)), 1,
		func(context.Context, *Message) error {
			calls++
			cancel(errNo)
			return nil
		})
	assert.Equal(t, []error{nil, errNo, errNo}, results)
	assert.Equal(t, 1, calls)
	assert.Empty(t, PublishEach(ctx, nil, 1, nil))
}
