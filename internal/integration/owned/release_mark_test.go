package owned_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
)

// heldBack keeps the answer of the first turn with marks back, once Redis has executed it.
type heldBack struct {
	once         sync.Once
	done, resume chan struct{}
}

func (h *heldBack) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		return next(ctx, network, addr)
	}
}

func (h *heldBack) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		h.after(cmd)
		return err
	}
}

func (h *heldBack) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		h.after(cmds...)
		return err
	}
}

func (h *heldBack) after(cmds ...redis.Cmder) {
	for _, cmd := range cmds {
		keys, args, ok := scriptCall(cmd)
		script, isCmd := cmd.(*redis.Cmd)
		if !ok || !isCmd || len(keys) != 4 || !strings.Contains(keys[3].(string), ":f:") {
			continue
		}
		reply, _ := script.Val().([]any)
		if t, err := readBatch(args); err == nil && t.marks > 0 && len(reply) == 14 &&
			reply[0] == "done" {
			h.once.Do(func() {
				close(h.done)
				<-h.resume
			})
		}
	}
}

// TestReleaseMeetsAMark: Redis writes a mark, and Release promotes its claim before the answer is
// read. The key is done.
func TestReleaseMeetsAMark(t *testing.T) {
	s := newSolo(t)
	h := &heldBack{done: make(chan struct{}), resume: make(chan struct{})}
	s.client.AddHook(h)
	o, err := s.acquire()
	s.must(err)
	s.loaded(o)
	claim := s.claim(1)[0]
	require.Equal(t, dedup.Acquired, claim.Outcome, "proven new")
	require.EqualValues(t, 1, s.proven.Load(), "proven new")
	told := make(chan []error, 1)
	go func() {
		told <- s.dedup.CompleteBatch(t.Context(), []dedup.Completion{{Claim: claim, InTime: true}})
	}()
	<-h.done
	s.must(o.Release(t.Context()))
	close(h.resume)
	for _, err := range <-told {
		assert.NoError(t, err, "the mark is on record, and its owner was told")
	}
	o, err = s.acquire()
	s.must(err)
	s.loaded(o)
	for range 100 {
		again := s.claim(1)[0]
		if again.Outcome == dedup.InFlight {
			pauseFor(t.Context(), 20*time.Millisecond)
			continue
		}
		assert.Equal(t, dedup.Duplicate, again.Outcome,
			"the key is done, claimed once more it, attempt %d", again.Attempt)
		return
	}
	t.Error("the key stays in flight")
}
