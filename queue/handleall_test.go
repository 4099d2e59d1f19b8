package queue_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/deduptest"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/queue"
)

// byID is a handler that answers by id, and notes who ran.
type byID struct {
	mu      sync.Mutex
	ran     []string
	answers map[string]error
}

func (h *byID) handle(_ context.Context, d *queue.Delivery) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ran = append(h.ran, d.ID)
	return h.answers[d.ID]
}

func TestHandleAllInTwoRoundTrips(t *testing.T) {
	for _, most := range []int{0, 5} {
		h := new(byID)
		r := newRig(t, queue.Config{Handler: h.handle, Attempts: queue.Attempts{Max: most}})
		var ds []*queue.Delivery
		var logs []*log
		for i := range 100 {
			d, told := delivery(fmt.Sprint(i))
			ds, logs = append(ds, d), append(logs, told)
		}
		for i, err := range r.HandleAll(t.Context(), ds) {
			require.NoError(t, err)
			assert.Equal(t, []string{"ack"}, logs[i].all())
		}
		assert.Len(t, h.ran, 100)
		calls := r.store.Stats().Calls
		assert.Equal(t, 1, calls[deduptest.OpClaim])
		assert.Equal(t, 1, calls[deduptest.OpFinish])
	}
}

func TestHandleAllNothing(t *testing.T) {
	r := newRig(t, queue.Config{Handler: returns(nil)})
	assert.Empty(t, r.HandleAll(t.Context(), nil))
}

// One bad message never fails its batch, and a copy is acknowledged if its first message is.
func TestHandleAllEach(t *testing.T) {
	h := &byID{answers: map[string]error{"failing": errHandler,
		"poison": dedup.Permanent(errHandler)}}
	r := newRig(t, queue.Config{Handler: h.handle})
	done, _ := delivery("done")
	require.NoError(t, r.Handle(t.Context(), done))
	_, err := r.d.Claim(t.Context(), "busy", dedup.WithScope("tests"))
	require.NoError(t, err)

	ids := []string{"new", "new", "failing", "failing", "poison", "poison", "done", "busy",
		"bad\nid"}
	want := [][]string{{"ack"}, {"ack"}, {"nack"}, {"nack"}, {"park", "ack"}, {"ack"}, {"ack"},
		{"nack"}, {"park", "ack"}}
	ds, logs := make([]*queue.Delivery, len(ids)), make([]*log, len(ids))
	for i, id := range ids {
		ds[i], logs[i] = delivery(id)
	}
	errs := r.HandleAll(t.Context(), ds)
	for i, id := range ids {
		assert.Equal(t, want[i], logs[i].all(), "%d: %s", i, id)
		acked := want[i][len(want[i])-1] == "ack"
		assert.Equal(t, acked, errs[i] == nil, "%d: %s: %v", i, id, errs[i])
	}
	assert.ElementsMatch(t, []string{"done", "new", "failing", "poison"}, h.ran)
}

// If a message is not done, the next one of its key is given back, and no attempt of it counts.
func TestHandleAllKeepsTheOrderOfAKey(t *testing.T) {
	h := &byID{answers: map[string]error{"b2": errHandler, "c1": dedup.Permanent(errHandler)}}
	r := newRig(t, queue.Config{Handler: h.handle})
	var ds []*queue.Delivery
	logs := map[string]*log{}
	for n := range 4 {
		for _, key := range []string{"a", "b", "c"} {
			d, told := delivery(fmt.Sprint(key, n))
			d.Key = key
			ds, logs[d.ID] = append(ds, d), told
		}
	}
	r.HandleAll(t.Context(), ds)
	order := map[byte]string{}
	for _, id := range h.ran {
		order[id[0]] += id
	}
	assert.Equal(t, map[byte]string{'a': "a0a1a2a3", 'b': "b0b1b2", 'c': "c0c1c2c3"}, order)
	assert.Equal(t, []string{"nack"}, logs["b3"].all())
	assert.Equal(t, []string{"park", "ack"}, logs["c1"].all())
	rec := r.state(t, "b3")
	assert.NotEqual(t, driver.StateInProgress, rec.State)
	assert.Zero(t, rec.Attempt)
}

// Handlers that end their goroutines, as a test's Fatal does, leave nothing claimed.
func TestHandleAllGoexit(t *testing.T) {
	r := newRig(t, queue.Config{Handler: func(context.Context, *queue.Delivery) error {
		runtime.Goexit()
		return nil
	}})
	a, toldA := delivery("a")
	b, toldB := delivery("b")
	a.Key, b.Key = "key", "key"
	for _, err := range r.HandleAll(t.Context(), []*queue.Delivery{a, b}) {
		require.Error(t, err)
	}
	assert.Equal(t, []string{"nack"}, toldA.all())
	assert.Equal(t, []string{"nack"}, toldB.all())
	assert.Equal(t, driver.StateReleased, r.state(t, "a").State)
}

func TestHandleAllClosed(t *testing.T) {
	r := newRig(t, queue.Config{Handler: returns(nil)})
	require.NoError(t, r.d.Close(t.Context()))
	a, told := delivery("a")
	b, _ := delivery("b")
	for _, err := range r.HandleAll(t.Context(), []*queue.Delivery{a, b}) {
		require.ErrorIs(t, err, dedup.ErrClosed)
	}
	assert.Equal(t, []string{"nack"}, told.all())
}
