package script

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// Runner evaluates scripts through one client. It is safe for concurrent use.
type Runner struct {
	client redis.UniversalClient
	// plain is set once the server has refused a shebang line.
	plain atomic.Bool
}

// NewRunner returns a Runner; it sends nothing.
func NewRunner(client redis.UniversalClient) *Runner { return &Runner{client: client} }

// Run evaluates the calls in one pipeline (one per node of a Cluster) and answers per call, in
// order. If the server does not have a script yet, a second pipeline sends the calls of that script
// again. A batch that a full server refuses is sent once more without its begins, and answers
// AnswerFull.
//
// Run returns when ctx ends. go-redis alone does not: its read lasts until its ReadTimeout. The
// pipeline is then left behind in its goroutine; the client's own timeouts end it, and nobody reads
// its replies.
func (r *Runner) Run(ctx context.Context, calls []Call) []Reply {
	if len(calls) == 0 {
		return nil
	}
	replies, err := Within(ctx, func() []Reply { return r.send(ctx, calls) })
	if err != nil {
		replies = make([]Reply, len(calls))
		for i := range replies {
			replies[i].Err = err
		}
	}
	return replies
}

// swapScript replaces the value of a key that nobody else has changed.
var swapScript = load("", "swap")

// Swap writes value if the key holds old. An empty old means that the key must not exist. It
// reports whether the key holds value now.
func (r *Runner) Swap(ctx context.Context, key, old, value string) (bool, error) {
	calls := []Call{{script: swapScript, keys: []string{key}, args: []any{old, value}}}
	cmd, err := Within(ctx, func() *redis.Cmd { return r.evaluate(ctx, calls, nil)[0] })
	if err != nil {
		return false, err
	}
	swapped, err := cmd.Int()
	return swapped == 1, unreadable(err)
}

// Within returns what f returns or, if ctx ends first, the context's error and its cause. f is then
// left behind in its goroutine, and must not touch what the caller uses afterwards.
func Within[T any](ctx context.Context, f func() T) (T, error) {
	var none T
	if err := ended(ctx); err != nil {
		return none, err
	}
	done := make(chan T, 1)
	go func() { done <- f() }()
	select {
	case v := <-done:
		return v, nil
	case <-ctx.Done():
		return none, ended(ctx)
	}
}

// ended is the error of a context that is done, with its cause, or nil.
func ended(ctx context.Context) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); err != nil && !errors.Is(cause, err) {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// evaluate sends the calls and the commands after them in one pipeline, and returns the calls'
// commands as they were answered. Calls that did not run, because their script was not known or its
// shebang line was not understood, are sent once more with what was missing.
func (r *Runner) evaluate(ctx context.Context, calls []Call, after []redis.Cmder) []*redis.Cmd {
	plain := r.plain.Load()
	cmds := make([]*redis.Cmd, len(calls))
	r.sendSome(ctx, calls, cmds, after, nil, func(c Call) *redis.Cmd {
		return c.command(ctx, "evalsha", c.script.source(plain).sha)
	})
	r.sendSome(ctx, calls, cmds, nil, scriptMissing, func(c Call) *redis.Cmd {
		return c.command(ctx, "eval", c.script.source(plain).text)
	})
	r.sendSome(ctx, calls, cmds, nil, shebangRefused, func(c Call) *redis.Cmd {
		r.plain.Store(true)
		return c.command(ctx, "eval", c.script.plain.text)
	})
	return cmds
}

// sendSome sends, in one pipeline, the calls that have not been sent or whose error the function
// again accepts, and replaces their commands. The commands in after follow them in the same
// pipeline.
func (r *Runner) sendSome(ctx context.Context, calls []Call, cmds []*redis.Cmd,
	after []redis.Cmder, again func(redis.Error) bool, command func(Call) *redis.Cmd) {
	var all []redis.Cmder
	for i, c := range calls {
		var refusal redis.Error
		if cmds[i] == nil || errors.As(cmds[i].Err(), &refusal) && again(refusal) {
			cmds[i] = command(c)
			all = append(all, cmds[i])
		}
	}
	r.exec(ctx, append(all, after...))
}

// exec sends commands, each of which keeps its own error, because one bad item must not fail its
// batch.
func (r *Runner) exec(ctx context.Context, cmds []redis.Cmder) {
	switch len(cmds) {
	case 0:
	case 1: // a pipeline would take some ten objects more
		_ = r.client.Process(ctx, cmds[0])
	default:
		pipe := r.client.Pipeline()
		_ = pipe.BatchProcess(ctx, cmds...) // a Pipeline only queues them
		_, _ = Exec(ctx, r.client, pipe)
	}
}

// scriptMissing recognizes the answer to EVALSHA of a script that the server has not seen since it
// started, was promoted, or was told SCRIPT FLUSH.
func scriptMissing(err redis.Error) bool { return strings.HasPrefix(err.Error(), "NOSCRIPT") }

// shebangRefused recognizes a server that takes "#!lua" for Lua, such as miniredis. In that case
// nothing ran, because the server does not get past the first character.
func shebangRefused(err redis.Error) bool {
	return strings.HasPrefix(err.Error(), "ERR Error compiling script") &&
		strings.Contains(err.Error(), "near '#'")
}

// Exec sends what was queued in a pipeline of client, as [redis.Pipeliner.Exec] does, and tells the
// client of a Cluster to try no batch a second time. Otherwise one command may be sent to two nodes
// at the same time, and both replies are written to it (pipelineReadCmds of go-redis 9.23.0):
//
//  1. A command is answered with MOVED or ASK. The client puts it aside for the node that is named.
//  2. A later reply cannot be read, or the first one is CLUSTERDOWN or TRYAGAIN. The client puts
//     the command aside again, with its whole batch.
//
// The client still follows redirections, and sends again what was not sent; all else is up to the
// caller.
func Exec(ctx context.Context, client redis.UniversalClient,
	pipe redis.Pipeliner) ([]redis.Cmder, error) {
	if _, ok := client.(*redis.ClusterClient); ok {
		cmds := pipe.Cmds()
		for i, cmd := range cmds {
			cmds[i] = once{cmd}
		}
	}
	return pipe.Exec(ctx)
}

// once is a command that is not sent again after it may have been executed.
type once struct{ redis.Cmder }

// NoRetry is what go-redis asks of a command.
func (once) NoRetry() bool { return true }
