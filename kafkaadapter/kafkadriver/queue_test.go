package kafkadriver

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/internal/pipeline"
)

func queuedItems(q *queued, keys string) []*item {
	items := make([]*item, len(keys))
	for i := range keys {
		items[i] = &item{msg: &kafkaadapter.Message{Key: []byte(keys[i : i+1])},
			claim: new(dedup.Claim)}
		q.add(items[i])
	}
	return items
}

// takeBehind takes the claims of all messages behind head in its queue, wherever they are among the
// others, and no other claims.
func TestTakeBehind(t *testing.T) {
	var q queued
	items := queuedItems(&q, "abaabcab")
	head := items[0]
	q.begin(head)
	var of []*item
	for i, it := range items {
		if i > 0 && it.msg.Key[0] == 'a' {
			of = append(of, it)
		}
	}
	behind, claims := q.takeBehind(head, pipeline.ByKey)
	assert.ElementsMatch(t, of, behind)
	assert.Len(t, claims, len(of))
	for _, it := range of {
		assert.Nil(t, it.claim)
		assert.False(t, q.add(it), "it holds no claim")
	}
	assert.Equal(t, 4, q.len)
	behind, _ = q.takeBehind(head, pipeline.ByPartition)
	assert.Len(t, behind, 4)
	assert.Zero(t, q.len)
	assert.Nil(t, q.first)
}

// Messages leave in any order, each once.
func TestQueuedLeaveInAnyOrder(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}, {2, 0, 3, 1}} {
		var q queued
		items := queuedItems(&q, "abcd")
		q.add(items[0]) // it is in already
		for n, i := range order {
			assert.NotNil(t, q.takeUnbegun(items[i]))
			assert.Nil(t, q.takeUnbegun(items[i]))
			var left []*item
			for it := q.first; it != nil; it = it.next {
				left = append(left, it)
			}
			assert.Len(t, left, len(items)-n-1, "of %v", order)
			assert.False(t, slices.Contains(left, items[i]))
		}
	}
}

// room returns true as soon as there is room. It returns false when the number of messages in the
// queue does not fall, whichever messages come and go.
func TestRoomInTheQueue(t *testing.T) {
	const limit, patience = 2, 250 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		var q queued
		items := queuedItems(&q, "abcd")
		began := time.Now()
		go func() {
			for i := range 3 {
				time.Sleep(200 * time.Millisecond)
				q.begin(items[i])
			}
		}()
		assert.True(t, q.room(t.Context(), limit, patience))
		assert.Equal(t, 600*time.Millisecond, time.Since(began), "when there is room")
		assert.True(t, q.room(t.Context(), limit, patience))
		assert.Equal(t, 600*time.Millisecond, time.Since(began), "there is room already")
	})
	synctest.Test(t, func(t *testing.T) {
		var q queued
		items := queuedItems(&q, "abc")
		ctx, stop := context.WithCancel(t.Context())
		var retries sync.WaitGroup
		retries.Go(func() { // a message that is claimed again and again, and begun
			for ctx.Err() == nil {
				q.begin(items[0])
				q.add(items[0])
				time.Sleep(50 * time.Millisecond)
			}
		})
		began := time.Now()
		assert.False(t, q.room(ctx, limit, patience))
		assert.LessOrEqual(t, time.Since(began), 2*patience)
		stop()
		assert.True(t, q.room(ctx, limit, patience), "the claimer sees that ctx has ended")
		retries.Wait()
	})
}

// Messages are taken in the order in which they were added, and once.
func TestPendingKeepsTheOrder(t *testing.T) {
	q := pending{ready: make(chan struct{}, 1)}
	var want, got []*item
	for range 50 {
		added := make([]*item, 7)
		for i := range added {
			added[i] = new(item)
		}
		q.add(added)
		want = append(want, added...)
		got = q.take(5, got)
	}
	last := got[len(got)-2:]
	q.putBack(last)
	got = q.take(-1, got[:len(got)-2])
	assert.Equal(t, len(want), len(got))
	assert.True(t, slices.Equal(want, got))
	assert.Empty(t, q.take(-1, nil))
}
