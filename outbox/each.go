package outbox

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
)

// errBehind is the result of a message whose key has an earlier message that failed.
var errBehind = errors.New("outbox: not sent: an earlier message of its key has failed")

// PublishEach is a [Publisher]'s Publish for brokers that acknowledge each message by itself. It
// calls publish at most once for each message, and returns what publish returned.
//
// Messages with different keys, and messages without a key, are published at the same time, at most
// parallel of them; less than 1 counts as 1. Messages of one topic and key are published in their
// order: each one after the one before it was acknowledged. After an error the later ones of the
// key are not published. So a key has only one message on its way, and a broker cannot refuse one
// message and accept a later one of the same key.
//
// When ctx ends, messages that are not yet on their way are not published. publish must return soon
// then, because PublishEach waits for it. A panic in publish becomes the error of that message.
func PublishEach(ctx context.Context, messages []Message, parallel int,
	publish func(ctx context.Context, m *Message) error) []error {
	results := slices.Repeat([]error{ErrUnacknowledged}, len(messages))
	queues := queuesOf(messages)
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(max(parallel, 1), len(queues)) {
		workers.Go(func() {
			for {
				at := int(next.Add(1)) - 1
				if at >= len(queues) {
					return
				}
				publishInOrder(ctx, messages, queues[at], results, publish)
			}
		})
	}
	workers.Wait()
	return results
}

// queuesOf returns the positions of the messages of each key, in the order of their first ones. A
// message without a key has a queue of its own.
func queuesOf(messages []Message) [][]int {
	queues := make([][]int, 0, len(messages))
	of := make(map[orderKey]int, len(messages))
	for i := range messages {
		l := orderKey{messages[i].Topic, string(messages[i].Key)}
		at, seen := of[l]
		if seen && l.key != "" {
			queues[at] = append(queues[at], i)
			continue
		}
		of[l] = len(queues)
		queues = append(queues, []int{i})
	}
	return queues
}

func publishInOrder(ctx context.Context, messages []Message, queue []int, results []error,
	publish func(ctx context.Context, m *Message) error) {
	for n, i := range queue {
		if results[i] = publishOne(ctx, &messages[i], publish); results[i] == nil {
			continue
		}
		for _, later := range queue[n+1:] {
			results[later] = errBehind
		}
		return
	}
}

func publishOne(ctx context.Context, m *Message,
	publish func(ctx context.Context, m *Message) error) (err error) {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: publishing it panicked: %v\n%s", ErrUnacknowledged, v,
				debug.Stack())
		}
	}()
	return publish(ctx, m)
}
