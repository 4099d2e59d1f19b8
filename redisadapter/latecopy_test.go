package redisadapter_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redisproxy"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/redisadapter"
)

// plainEnds takes the plain SET of an end from its client. It executes each and loses the reply, or
// holds it until execute runs it without a reader for the reply.
type plainEnds struct {
	*testing.T
	client *redis.Client

	mu   sync.Mutex
	hold bool   // hold each until execute, and do not execute it at once
	lose bool   // lose replies, until execute
	lost func() // is called when a reply is lost
	held [][]any
	seen int
}

// isPlainEnd recognizes SET key record PX ms GET. The SET of a claim has NX.
func isPlainEnd(args []any) bool {
	has := func(word string) bool { return slices.Contains(args, any(word)) }
	name, _ := args[0].(string)
	return (name == "set" || name == "SET") && (has("GET") || has("get")) &&
		!has("NX") && !has("nx")
}

func (*plainEnds) DialHook(next redis.DialHook) redis.DialHook { return next }

func (p *plainEnds) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return p.pipeline([]redis.Cmder{cmd}, func() error { return next(ctx, cmd) })
	}
}

func (p *plainEnds) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return p.pipeline(cmds, func() error { return next(ctx, cmds) })
	}
}

// pipeline loses the replies of a pipeline with a plain end.
func (p *plainEnds) pipeline(cmds []redis.Cmder, send func() error) error {
	p.mu.Lock()
	var ends [][]any
	for _, cmd := range cmds {
		if isPlainEnd(cmd.Args()) {
			ends = append(ends, copied(cmd.Args()))
		}
	}
	p.seen += len(ends)
	lose, hold, lost := p.lose, p.hold, p.lost
	if lose && hold {
		p.held = append(p.held, ends...)
	}
	p.mu.Unlock()
	if len(ends) == 0 || !lose {
		return send()
	}
	if !hold {
		p.run(ends)
	}
	lost()
	for _, cmd := range cmds {
		cmd.SetErr(io.EOF)
	}
	return io.EOF
}

// copied returns a copy of args, because the client uses its arguments again.
func copied(args []any) []any {
	args = slices.Clone(args)
	for i, arg := range args {
		if text, ok := arg.(*string); ok {
			args[i] = *text
		}
	}
	return args
}

// execute runs the copies that were held.
func (p *plainEnds) execute() {
	p.mu.Lock()
	held := p.held
	p.held, p.lose = nil, false
	p.mu.Unlock()
	p.run(held)
}

func (p *plainEnds) run(ends [][]any) {
	for _, args := range ends {
		err := p.client.Do(p.Context(), args...).Err()
		if err != redis.Nil { //nolint:errorlint // go-redis returns Nil as it is
			assert.NoError(p, err)
		}
	}
}

// late is a key of two owners. The first has no results, and loses the reply to its end.
type late struct {
	*testing.T
	ends  *plainEnds
	mini  *redistest.Frozen
	store *redisadapter.Store
	first *dedup.Deduper // sends once where patience is short
	other *dedup.Deduper // keeps results
}

const lateLease = 10 * time.Second

func newLate(t *testing.T, hold bool) *late {
	t.Helper()
	mini, client := redistest.Freeze(t)
	l := &late{T: t, mini: mini, ends: &plainEnds{T: t, client: client, lose: true, hold: hold}}
	hooked := redistest.Client(t, client.Options())
	hooked.AddHook(l.ends)
	l.first = l.deduper(openWith(t, redistest.Backend{Client: hooked, Prefix: "ow"},
		redisadapter.Options{}), nil)
	l.store = openWith(t, redistest.Backend{Client: client, Prefix: "ow"}, redisadapter.Options{})
	l.other = l.deduper(l.store, nil)
	return l
}

func (l *late) deduper(store dedup.Store, change func(*dedup.Config)) *dedup.Deduper {
	l.Helper()
	cfg := dedup.Config{Namespace: "late", Window: day, LeaseTTL: lateLease}
	if change != nil {
		change(&cfg)
	}
	d, err := dedup.New(store, cfg)
	require.NoError(l, err)
	l.Cleanup(func() { assert.NoError(l, d.Close(context.WithoutCancel(l.Context()))) })
	return d
}

// claim claims the key for an owner in a generation of the consumer group.
func (l *late) claim(d *dedup.Deduper, generation int32, noResult, over bool) *dedup.Claim {
	l.Helper()
	c, err := d.Claim(l.Context(), "key", func(r *dedup.Request) {
		r.Origin = driver.Origin{Source: "group/topic", Partition: 1, Offset: 7,
			Generation: generation}
		r.NoResult, r.TakeOverOlderGeneration = noResult, over
	})
	require.NoError(l, err)
	require.Equal(l, dedup.Acquired, c.Outcome)
	return c
}

func (l *late) record() dedup.Record {
	l.Helper()
	id, err := driver.NewID("late", "", "key")
	require.NoError(l, err)
	a := l.store.Lookup(l.Context(), []driver.ID{id})[0]
	require.NoError(l, a.Err)
	return a.Record
}

// end ends the claim of the first owner, whose reply is lost. With twice the end is sent again.
func (l *late) end(c *dedup.Claim, twice bool) {
	l.Helper()
	ctx, cancel := context.WithCancel(l.Context())
	defer cancel()
	l.ends.lost = func() {}
	if !twice {
		l.ends.lost = cancel
	}
	err := c.Complete(ctx, nil)
	l.Logf("sent twice: %t; the first owner was told %v", twice, err)
	require.NotZero(l, l.ends.seen, "no plain end was sent")
}

// wantTrue insists that the key is not claimed again, and that an acknowledged result is still
// there. No copy of an end may break that.
func (l *late) wantTrue(kept bool) {
	l.Helper()
	rec := l.record()
	switch {
	case kept:
		assert.Equal(l, "the result", string(rec.Result), "an acknowledged result is gone: %+v", rec)
	case rec.State == driver.StateSucceeded:
		assert.Empty(l, rec.Result, "a result that nobody was promised: %+v", rec)
	}
	c, err := l.other.Claim(l.Context(), "key")
	require.NoError(l, err)
	assert.NotEqual(l, dedup.Acquired, c.Outcome, "a third owner runs after %+v", rec)
	if c.Outcome == dedup.Acquired {
		assert.NoError(l, c.Release(l.Context()))
	}
}

// finishes are the ends of a newer owner. kept is true if the store has acknowledged its result.
var finishes = map[string]func(l *late, c *dedup.Claim) (kept bool){
	"a result": func(l *late, c *dedup.Claim) bool {
		err := c.Complete(l.Context(), []byte("the result"))
		if err != nil {
			require.ErrorIs(l, err, dedup.ErrNoResult)
		}
		return err == nil
	},
	"a failure": func(l *late, c *dedup.Claim) bool {
		require.NoError(l, c.Fail(l.Context(), dedup.Permanent(io.ErrUnexpectedEOF)))
		return false
	},
}

// TestLostReplyAfterATakeover: a newer generation takes the key over while the older owner's lease
// lasts, and ends it. Then the older owner ends it by a plain SET. It does not learn what this has
// overwritten, or sends its end again.
func TestLostReplyAfterATakeover(t *testing.T) {
	for _, hold := range []bool{false, true} {
		for _, twice := range []bool{false, true} {
			for what, finish := range finishes {
				name := what + map[bool]string{true: ", sent twice"}[twice] +
					map[bool]string{true: ", executed late"}[hold]
				t.Run(name, func(t *testing.T) {
					l := newLate(t, hold)
					old := l.claim(l.first, 5, true, false)
					kept := finish(l, l.claim(l.other, 6, false, true))
					l.end(old, twice)
					l.ends.execute()
					l.wantTrue(kept)
				})
			}
		}
	}
}

// TestLateCopy: the plain SET of an end is executed after its claim's lease, without a reader for
// the reply. Other owners may have ended, released or forgotten the key by then.
func TestLateCopy(t *testing.T) {
	forget := func(l *late) {
		l.mini.Advance(time.Second)
		require.NoError(l, l.other.Forget(l.Context(), "key"))
	}
	for what, meets := range map[string]func(l *late) (kept bool){
		"nobody":        func(*late) bool { return false },
		"a Forget":      func(l *late) bool { forget(l); return false },
		"a new claim":   func(l *late) bool { l.claim(l.other, 0, false, false); return false },
		"a new result":  func(l *late) bool { return finishes["a result"](l, l.claim(l.other, 0, false, false)) },
		"a new failure": func(l *late) bool { return finishes["a failure"](l, l.claim(l.other, 0, false, false)) },
		"the result after a release": func(l *late) bool {
			require.NoError(l, l.claim(l.other, 0, false, false).Release(l.Context()))
			return finishes["a result"](l, l.claim(l.other, 0, false, false))
		},
		"the result after a Forget": func(l *late) bool {
			forget(l)
			return finishes["a result"](l, l.claim(l.other, 0, false, false))
		},
		"a new result in a batch": func(l *late) bool {
			done := []dedup.Completion{{Claim: l.claim(l.other, 0, false, false)}, {}}
			c, err := l.other.Claim(l.Context(), "another key")
			require.NoError(l, err)
			done[1].Claim = c
			for i := range done {
				done[i].Result = []byte("the result")
			}
			errs := l.other.CompleteBatch(l.Context(), done)
			require.NoError(l, errs[1])
			if errs[0] != nil {
				require.ErrorIs(l, errs[0], dedup.ErrNoResult)
			}
			return errs[0] == nil
		},
		"the result of an atomic end after a Forget": func(l *late) bool {
			forget(l)
			c := l.claim(l.other, 0, false, false)
			err := l.store.Atomic(l.Context(), l.other,
				dedup.Completion{Claim: c, Result: []byte("the result")},
				func(_ redis.Cmdable, write redis.Pipeliner) error {
					write.Incr(l.Context(), "effect")
					return nil
				})
			if err != nil {
				require.ErrorIs(l, err, dedup.ErrNoResult)
			}
			return err == nil
		},
	} {
		t.Run(what, func(t *testing.T) {
			l := newLate(t, true)
			old := l.claim(l.first, 0, true, false)
			l.end(old, false)
			l.mini.Advance(lateLease + time.Second)
			kept := meets(l)
			l.ends.execute()
			l.wantTrue(kept)
		})
	}
}

// TestPlainEndIsSentOnce: a second copy of a plain end could overwrite a later record. The client
// usually retries by itself. Neither the client nor the store may send a second copy.
func TestPlainEndIsSentOnce(t *testing.T) {
	for what, rule := range map[string]redisproxy.Rule{
		"the connection is lost": {Action: redisproxy.DropReply},
		"no answer in time":      {Action: redisproxy.DelayReply, Delay: time.Second},
	} {
		t.Run(what, func(t *testing.T) {
			addr, prefix := servertest.Redis(t), servertest.Prefix(t)
			direct := redistest.Client(t, &redis.Options{Addr: addr})
			proxy := redisproxy.Start(t, addr)
			far := redistest.Client(t, &redis.Options{Addr: proxy.Addr(), MaxRetries: 5,
				ContextTimeoutEnabled: true})
			l := &late{T: t, store: openWith(t, redistest.Backend{Client: direct},
				redisadapter.Options{Prefix: prefix})}
			l.first = l.deduper(openWith(t, redistest.Backend{Client: far},
				redisadapter.Options{Prefix: prefix}), nil)
			for n := range 30 { // these calls show the store that its server is near
				_, err := dedup.Do(t.Context(), l.first, fmt.Sprint("warm ", n),
					func(context.Context) (struct{}, error) { return struct{}{}, nil })
				require.NoError(t, err)
			}
			c := l.claim(l.first, 0, true, false)
			var plain atomic.Int64
			rule.Match = func(r redisproxy.Request) bool {
				args := make([]any, len(r.Args))
				for i, arg := range r.Args {
					args[i] = string(arg)
				}
				if !isPlainEnd(args) {
					return false
				}
				plain.Add(1)
				return true
			}
			proxy.SetRules(rule)
			require.NoError(t, c.Complete(t.Context(), nil))
			assert.EqualValues(t, 1, plain.Load(), "plain ends that reached the server")
			assert.Equal(t, driver.StateSucceeded, l.record().State)
		})
	}
}

// TestLateCopyAtAServer is TestLateCopy with a network that holds the command until the lease is
// over, and a client that has hung up.
func TestLateCopyAtAServer(t *testing.T) {
	const lease = 500 * time.Millisecond
	for what, finish := range finishes {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			proxy := redisproxy.Start(t, servertest.Redis(t))
			prefix := servertest.Prefix(t)
			direct := redistest.Patient(t, servertest.Redis(t))
			far := redistest.Client(t, &redis.Options{Addr: proxy.Addr(), MaxRetries: -1})
			l := &late{T: t, store: openWith(t, redistest.Backend{Client: direct, Prefix: prefix},
				redisadapter.Options{Prefix: prefix})}
			brief := func(c *dedup.Config) { c.LeaseTTL = lease }
			l.other = l.deduper(l.store, brief)
			l.first = l.deduper(openWith(t, redistest.Backend{Client: far, Prefix: prefix},
				redisadapter.Options{Prefix: prefix}), brief)
			old := l.claim(l.first, 0, true, false)
			proxy.SetRules(
				redisproxy.Rule{Name: "late", Command: "SET", Action: redisproxy.DelayRequest,
					Delay: 3 * lease, Count: 1},
				redisproxy.Rule{Command: "EVALSHA", Action: redisproxy.DropRequest})
			ctx, cancel := context.WithTimeout(t.Context(), lease/2)
			defer cancel()
			require.Error(t, old.Complete(ctx, nil))
			require.Equal(t, 1, proxy.Stats().Fired["late"], "the end was not a plain SET")
			var next *dedup.Claim
			eventually(t, "the lease lapses", func() bool {
				c, err := l.other.Claim(t.Context(), "key")
				require.NoError(t, err)
				next = c
				return c.Outcome == dedup.Acquired
			})
			kept := finish(l, next)
			before := l.record().Fence
			eventually(t, "the copy is executed", func() bool { return l.record().Fence != before })
			l.wantTrue(kept)
		})
	}
}
