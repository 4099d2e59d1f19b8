package dedup_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

var errNet = errors.New("connection reset")

// call is one call to a hooked store.
type call struct {
	ctx    context.Context
	method string // Claim, Renew, Finish, Lookup, Forget
	nth    int    // of this method, from 1
	total  int    // of all methods, from 1
	items  int
	state  driver.State // of a Finish's first item
	token  driver.Token // of the first item
	at     time.Time
}

// hooked is a store that counts its calls and lets a test lose, delay and watch them.
type hooked struct {
	inner dedup.Store
	// prompt makes calls return when their context ends, as the contract says. The request is
	// still executed, like one that was already written. Set it before use. Otherwise calls
	// last as long as the hooks.
	prompt bool

	mu            sync.Mutex
	before, after func(call) error
	calls         []call
	numbers       map[string]int
}

// hook wraps a new Memory store.
func hook() *hooked { return &hooked{inner: dedup.Memory(10_000)} }

// setBefore has hook run ahead of every call; its error loses the request. It may block.
func (h *hooked) setBefore(hook func(call) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.before = hook
}

// setAfter has hook run when a call has been executed; its error loses the reply.
func (h *hooked) setAfter(hook func(call) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.after = hook
}

func (h *hooked) hooks() (before, after func(call) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.before, h.after
}

func (h *hooked) begin(c call) call {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.numbers == nil {
		h.numbers = map[string]int{}
	}
	h.numbers[c.method]++
	h.calls = append(h.calls, c)
	c.nth, c.total, c.at = h.numbers[c.method], len(h.calls), time.Now()
	h.calls[c.total-1] = c
	return c
}

// of returns the calls of the methods, or of all methods.
func (h *hooked) of(methods ...string) []call {
	h.mu.Lock()
	defer h.mu.Unlock()
	var calls []call
	for _, c := range h.calls {
		if len(methods) == 0 || slices.Contains(methods, c.method) {
			calls = append(calls, c)
		}
	}
	return calls
}

func (h *hooked) count(methods ...string) int { return len(h.of(methods...)) }

func (h *hooked) forgetCalls() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls, h.numbers = nil, nil
}

func around[A any](h *hooked, c call, do func() []A, lost func(error) A) []A {
	fail := func(err error) []A { return slices.Repeat([]A{lost(err)}, c.items) }
	if h.prompt {
		done := make(chan []A, 1)
		go func() { done <- execute(h, c, do, fail) }()
		select {
		case answers := <-done:
			return answers
		case <-c.ctx.Done():
			return fail(c.ctx.Err())
		}
	}
	return execute(h, c, do, fail)
}

func execute[A any](h *hooked, c call, do func() []A, fail func(error) []A) []A {
	if before, _ := h.hooks(); before != nil {
		if err := before(c); err != nil {
			return fail(err)
		}
	}
	answers := do()
	if _, after := h.hooks(); after != nil {
		if err := after(c); err != nil {
			return fail(err)
		}
	}
	return answers
}

func lostAnswer(err error) driver.Answer { return driver.Answer{Err: err} }

func (h *hooked) Claim(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	c := h.begin(call{ctx: ctx, method: "Claim", items: len(reqs), token: reqs[0].Token})
	return around(h, c, func() []driver.Answer {
		return h.inner.Claim(context.WithoutCancel(ctx), reqs)
	}, lostAnswer)
}

func (h *hooked) Renew(ctx context.Context, renewals []driver.Renewal) []driver.Answer {
	c := h.begin(call{ctx: ctx, method: "Renew", items: len(renewals), token: renewals[0].Token})
	return around(h, c, func() []driver.Answer {
		return h.inner.Renew(context.WithoutCancel(ctx), renewals)
	}, lostAnswer)
}

func (h *hooked) Finish(ctx context.Context, changes []driver.Finish) []driver.Answer {
	c := h.begin(call{ctx: ctx, method: "Finish", items: len(changes), token: changes[0].Token,
		state: changes[0].State})
	return around(h, c, func() []driver.Answer {
		return h.inner.Finish(context.WithoutCancel(ctx), changes)
	}, lostAnswer)
}

func (h *hooked) Lookup(ctx context.Context, ids []driver.ID) []driver.Answer {
	c := h.begin(call{ctx: ctx, method: "Lookup", items: len(ids)})
	return around(h, c, func() []driver.Answer {
		return h.inner.Lookup(context.WithoutCancel(ctx), ids)
	}, lostAnswer)
}

func (h *hooked) Forget(ctx context.Context, ids []driver.ID, hold time.Duration) []error {
	c := h.begin(call{ctx: ctx, method: "Forget", items: len(ids)})
	return around(h, c, func() []error {
		return h.inner.Forget(context.WithoutCancel(ctx), ids, hold)
	}, func(err error) error { return err })
}

// down is a hook for a store that cannot be reached.
func down(call) error { return errNet }

// only applies a hook to the calls of one method.
func only(method string, hook func(call) error) func(call) error {
	return func(c call) error {
		if c.method != method {
			return nil
		}
		return hook(c)
	}
}

// hang is a hook for a request that nobody answers.
func hang(c call) error {
	<-c.ctx.Done()
	return c.ctx.Err()
}

// lookup reads a key without the Deduper's hooks and counters.
func lookup(t *testing.T, store dedup.Store, key string) dedup.Record {
	t.Helper()
	id, err := driver.NewID("test", "", key)
	require.NoError(t, err)
	if h, ok := store.(*hooked); ok {
		store = h.inner
	}
	ans := store.Lookup(context.Background(), []driver.ID{id})[0]
	require.NoError(t, ans.Err)
	return ans.Record
}

func wantState(t *testing.T, store dedup.Store, key string, want driver.State) dedup.Record {
	t.Helper()
	rec := lookup(t, store, key)
	require.Equal(t, want, rec.State, "key %q", key)
	return rec
}

func claim(t *testing.T, d *dedup.Deduper, key string, opts ...dedup.Option) *dedup.Claim {
	t.Helper()
	c, err := d.Claim(t.Context(), key, opts...)
	require.NoError(t, err)
	return c
}

// acquire claims a key that must be free.
func acquire(t *testing.T, d *dedup.Deduper, key string, opts ...dedup.Option) *dedup.Claim {
	t.Helper()
	c := claim(t, d, key, opts...)
	require.Equal(t, dedup.Acquired, c.Outcome, "claim of %q", key)
	return c
}
