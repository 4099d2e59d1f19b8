package redisscript_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/redisscript"
	"github.com/onceward/onceward/internal/redistest"
)

// recorder notes the pipelines that a client sends: per pipeline, one "EVAL key" or
// "EVALSHA key" per command.
type recorder struct {
	mu    sync.Mutex
	pipes [][]string
}

func (r *recorder) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook records a single command as a pipeline of one.
func (r *recorder) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	pipeline := r.ProcessPipelineHook(func(ctx context.Context, cmds []redis.Cmder) error {
		return next(ctx, cmds[0])
	})
	return func(ctx context.Context, cmd redis.Cmder) error {
		return pipeline(ctx, []redis.Cmder{cmd})
	}
}

func (r *recorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		var names []string
		for _, cmd := range cmds {
			if strings.HasPrefix(cmd.Name(), "eval") {
				names = append(names, fmt.Sprint(strings.ToUpper(cmd.Name()), " ", cmd.Args()[3]))
			}
		}
		if names != nil {
			r.mu.Lock()
			r.pipes = append(r.pipes, names)
			r.mu.Unlock()
		}
		return next(ctx, cmds)
	}
}

// take returns the pipelines since the last take.
func (r *recorder) take() [][]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	pipes := r.pipes
	r.pipes = nil
	return pipes
}

type owner [16]byte

func claim(key string, token owner) redisscript.Call {
	return redisscript.NewClaim(key,
		&redisscript.ClaimArgs{Token: token, Lease: time.Minute, Hold: time.Minute})
}

func renew(key string, token owner) redisscript.Call {
	return redisscript.NewRenew(key, token, time.Minute, time.Minute)
}

var mine, theirs = owner{1}, owner{2}

func wantAnswers(t *testing.T, replies []redisscript.Reply, want ...string) {
	t.Helper()
	var got []string
	for _, r := range replies {
		assert.NoError(t, r.Err, "error")
		got = append(got, r.Answer)
	}
	require.Equal(t, want, got, "answers")
}

// TestMissingScriptInAPipeline prevents a batch that fails, or runs twice, because the server has
// forgotten one of its scripts.
func TestMissingScriptInAPipeline(t *testing.T) {
	ctx := t.Context()
	mini, client := redistest.Mini(t)
	var rec recorder
	client.AddHook(&rec)
	runner := redisscript.NewRunner(client)
	wantAnswers(t, runner.Run(ctx, []redisscript.Call{claim("a", mine), renew("a", mine)}),
		"acquired", "held")
	require.NoError(t, client.ScriptFlush(ctx).Err())
	// the server knows the script of claim again
	wantAnswers(t, runner.Run(ctx, []redisscript.Call{claim("b", mine)}), "acquired")
	rec.take()

	replies := runner.Run(ctx, []redisscript.Call{claim("c", mine), renew("a", mine),
		claim("a", theirs), renew("b", mine), renew("b", theirs)})
	wantAnswers(t, replies, "acquired", "held", "in_flight", "held", "lost")
	got := rec.take()
	want := [][]string{
		{"EVALSHA c", "EVALSHA a", "EVALSHA a", "EVALSHA b", "EVALSHA b"},
		{"EVAL a", "EVAL b", "EVAL b"},
	}
	assert.Equal(t, fmt.Sprint(want), fmt.Sprint(got), "pipelines %v, want %v", got, want)
	runner.Run(ctx, []redisscript.Call{renew("a", mine)})
	got = rec.take()
	assert.Len(t, got, 1, "a script that is known costs %d pipelines", len(got))
	assert.Len(t, mini.Keys(), 3, "keys")
}

// TestServerWithoutShebang shows what miniredis costs: one failed batch per Runner.
func TestServerWithoutShebang(t *testing.T) {
	ctx := t.Context()
	_, client := redistest.Mini(t)
	var rec recorder
	client.AddHook(&rec)
	runner := redisscript.NewRunner(client)
	runner.Run(ctx, []redisscript.Call{claim("a", mine)})
	rec.take()
	for _, pipes := range []int{3, 1, 1} {
		wantAnswers(t, runner.Run(ctx, []redisscript.Call{renew("a", mine)}), "held")
		assert.Len(t, rec.take(), pipes, "pipelines")
	}
}

// TestEveryBackendTakesTheScripts also proves that real servers get the shebang: without it a full
// server would refuse to record that a key is done.
func TestEveryBackendTakesTheScripts(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		runner := redisscript.NewRunner(b.Client)
		key := func(n int) string { return fmt.Sprintf("%s:{%d}", b.Prefix, n) }
		// Each script has a pipeline of its own: in one pipeline, a script that the server has
		// would run before one that it has not.
		for _, step := range []struct {
			want string
			call func(key string) redisscript.Call
		}{
			{"acquired", func(key string) redisscript.Call { return claim(key, mine) }},
			{"held", func(key string) redisscript.Call { return renew(key, mine) }},
			{"found", redisscript.NewLookup},
			{"in_flight", func(key string) redisscript.Call {
				return redisscript.NewForget(key, time.Minute)
			}},
			{"held", func(key string) redisscript.Call {
				return redisscript.NewFinish(key,
					&redisscript.FinishArgs{Token: mine, State: redisscript.Succeeded,
						Keep: time.Minute, Result: []byte("x")})
			}},
		} {
			var calls []redisscript.Call
			for n := range 60 { // over many slots
				calls = append(calls, step.call(key(n)))
			}
			wantAnswers(t, runner.Run(t.Context(), calls),
				slices.Repeat([]string{step.want}, len(calls))...)
		}
		got, want := runner.Plain(), b.Name == "miniredis"
		assert.Equal(t, want, got, "scripts are sent without their shebang")
	})
}

// TestRunEndsWithItsContext prevents a caller that waits for the client's ReadTimeout although its
// own time is up: go-redis checks the context only between tries.
func TestRunEndsWithItsContext(t *testing.T) {
	asked := make(chan struct{}, 1)
	opts := redistest.Fake(t, func([]string) string {
		asked <- struct{}{}
		<-t.Context().Done() // ends before the cleanup that closes the fake
		return ""
	})
	runner := redisscript.NewRunner(redistest.Client(t, opts))
	gone := errors.New("the caller has gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-asked
		cancel(gone)
	}()
	replies := runner.Run(ctx, []redisscript.Call{claim("a", mine), claim("b", mine)})
	for _, r := range replies {
		assert.ErrorIs(t, r.Err, context.Canceled,
			"error %v does not have both the context's error and its cause", r.Err)
		assert.ErrorIs(t, r.Err, gone,
			"error %v does not have both the context's error and its cause", r.Err)
	}
	replies = runner.Run(ctx, []redisscript.Call{claim("a", mine)})
	if assert.Len(t, replies, 1, "a context that has ended before") {
		assert.ErrorIs(t, replies[0].Err, gone, "a context that has ended before")
	}
}

// TestPipelineCutInTheMiddle: commands that were answered before the cut keep their answers.
func TestPipelineCutInTheMiddle(t *testing.T) {
	answered := 0 // by the one connection
	opts := redistest.Fake(t, func([]string) string {
		if answered++; answered == 3 {
			return ""
		}
		return redistest.Answer("in_flight", 1000, 0, "")
	})
	runner := redisscript.NewRunner(redistest.Client(t, opts))
	replies := runner.Run(t.Context(),
		[]redisscript.Call{claim("a", mine), claim("b", mine), claim("c", mine), claim("d", mine)})
	wantAnswers(t, replies[:2], "in_flight", "in_flight")
	for _, r := range replies[2:] {
		assert.Error(t, r.Err, "an item that was not answered: %+v", r)
		assert.Empty(t, r.Answer, "an item that was not answered: %+v", r)
	}
}

// TestOddReplies prevents a panic, or a guess, when a server sends an unknown reply.
func TestOddReplies(t *testing.T) {
	for name, reply := range map[string]string{
		"integer": ":1\r\n", "nil": "$-1\r\n", "short": "*1\r\n:1\r\n",
		"types": "*4\r\n:1\r\n:1\r\n:1\r\n:1\r\n", "status": "+OK\r\n", "error": "-ERR what\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			opts := redistest.Fake(t, func([]string) string { return reply })
			r := redisscript.NewRunner(redistest.Client(t, opts)).Run(t.Context(),
				[]redisscript.Call{claim("a", mine)})[0]
			assert.Error(t, r.Err, "no error: %+v", r)
		})
	}
}

func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	client := redistest.Client(t, &redis.Options{Addr: addr, MaxRetries: -1, DialerRetries: 1})
	for _, r := range redisscript.NewRunner(client).Run(t.Context(),
		[]redisscript.Call{claim("a", mine), claim("b", mine)}) {
		var dial *net.OpError
		assert.ErrorAs(t, r.Err, &dial)
	}
}
