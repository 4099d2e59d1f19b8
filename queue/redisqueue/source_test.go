package redisqueue_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/queue"
	"github.com/onceward/onceward/queue/redisqueue"
)

func TestNewNamesTheBadOption(t *testing.T) {
	client := connect(t, "127.0.0.1:1")
	good := redisqueue.Options{Stream: "s", Group: "g", Consumer: "c"}
	for field, change := range map[string]func(*redisqueue.Options){
		"Stream":      func(o *redisqueue.Options) { o.Stream = "" },
		"Group":       func(o *redisqueue.Options) { o.Group = "" },
		"Consumer":    func(o *redisqueue.Options) { o.Consumer = "" },
		"AckWait":     func(o *redisqueue.Options) { o.AckWait = time.Millisecond },
		"DeadLetters": func(o *redisqueue.Options) { o.DeadLetters = "s" },
	} {
		opts := good
		change(&opts)
		_, err := redisqueue.New(client, opts)
		var input *dedup.InputError
		require.ErrorAs(t, err, &input, field)
		assert.Equal(t, "redisqueue.Options."+field, input.Field)
	}
	_, err := redisqueue.New(nil, good)
	require.Error(t, err)
}

// queueOf makes a stream with a group, and a source with a short AckWait.
func queueOf(t *testing.T) (*redis.Client, string, *redisqueue.Source) {
	t.Helper()
	client, stream := connect(t, servertest.Redis(t)), servertest.Prefix(t)+"orders"
	require.NoError(t, client.XGroupCreateMkStream(t.Context(), stream, "billing", "0").Err())
	src, err := redisqueue.New(client, redisqueue.Options{Stream: stream, Group: "billing",
		Consumer: "pod", AckWait: 200 * time.Millisecond})
	require.NoError(t, err)
	return client, stream, src
}

// fetch fetches until something comes.
func fetch(t *testing.T, src *redisqueue.Source) []*queue.Delivery {
	t.Helper()
	for {
		ds, err := src.Fetch(t.Context(), 10)
		require.NoError(t, err)
		if len(ds) > 0 {
			return ds
		}
	}
}

func TestDelivery(t *testing.T) {
	client, stream, src := queueOf(t)
	own, err := client.XAdd(t.Context(), &redis.XAddArgs{Stream: stream,
		Values: []any{"customer", "ann"}}).Result()
	require.NoError(t, err)
	require.NoError(t, client.XAdd(t.Context(), &redis.XAddArgs{Stream: stream,
		Values: []any{"id", "order-1", "payload", "one"}}).Err())
	ds := fetch(t, src)
	require.Len(t, ds, 2)
	assert.Equal(t, own, ds[0].ID)
	assert.Nil(t, ds[0].Payload)
	assert.Equal(t, "order-1", ds[1].ID)
	assert.Equal(t, "one", string(ds[1].Payload))
	assert.Equal(t, "billing/"+stream, ds[1].Scope)
	assert.Equal(t, 1, ds[1].Deliveries)
	require.NoError(t, ds[0].Ack(t.Context()))
	for n := range 3 { // it is counted, and comes after the delay
		began := time.Now()
		require.NoError(t, ds[len(ds)-1].Nack(t.Context(), 50*time.Millisecond))
		ds = fetch(t, src)
		require.Len(t, ds, 1)
		assert.Equal(t, n+2, ds[0].Deliveries)
		assert.GreaterOrEqual(t, time.Since(began), 49*time.Millisecond)
	}
}

// An entry that is trimmed before it was acknowledged is lost, and Fetch reports that.
func TestTrimmed(t *testing.T) {
	client, stream, src := queueOf(t)
	for range 2 {
		require.NoError(t, client.XAdd(t.Context(), &redis.XAddArgs{Stream: stream,
			Values: []any{"id", "order-1"}}).Err())
	}
	require.Len(t, fetch(t, src), 2)
	require.NoError(t, client.XTrimMaxLen(t.Context(), stream, 1).Err())
	var trimmed error
	var left []*queue.Delivery
	for trimmed == nil || len(left) == 0 {
		ds, err := src.Fetch(t.Context(), 10)
		if left = append(left, ds...); err != nil {
			trimmed = err
		}
	}
	require.ErrorContains(t, trimmed, "trimmed")
	assert.False(t, dedup.IsPermanent(trimmed))
	assert.Len(t, left, 1)
}

// An entry may be trimmed while its handler works. Extend and Nack report that: their XCLAIM takes
// the entry out of the pending entries, so that no XAUTOCLAIM sees it.
func TestTrimmedInHand(t *testing.T) {
	client, stream, src := queueOf(t)
	require.NoError(t, client.XAdd(t.Context(), &redis.XAddArgs{Stream: stream,
		Values: []any{"id", "order-1"}}).Err())
	ds := fetch(t, src)
	require.Len(t, ds, 1)
	require.NoError(t, client.XTrimMaxLen(t.Context(), stream, 0).Err())
	assert.ErrorContains(t, ds[0].Extend(t.Context()), "trimmed")
	assert.ErrorContains(t, ds[0].Nack(t.Context(), 0), "trimmed")
}

// A group that does not exist is not asked forever, and the error has the command that makes it.
func TestGone(t *testing.T) {
	client, stream, _ := queueOf(t)
	d, err := dedup.New(dedup.Memory(10), dedup.Config{Namespace: "redis", Window: time.Hour,
		LeaseTTL: time.Second})
	require.NoError(t, err)
	err = redisqueue.Consume(t.Context(), client, queue.Config{Deduper: d,
		Handler: func(context.Context, *queue.Delivery) error { return nil }},
		redisqueue.Options{Stream: stream, Group: "shipping", Consumer: "pod"})
	assert.True(t, dedup.IsPermanent(err), "%v", err)
	assert.ErrorContains(t, err, "XGROUP CREATE "+stream+" shipping 0 MKSTREAM: NOGROUP")
}
