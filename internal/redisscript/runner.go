package redisscript

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

// Run evaluates the calls in one pipeline (one per node of a Cluster) and answers per
// call, in order. A script that the server does not have yet costs a second pipeline
// with the calls concerned.
//
// It returns when ctx ends, which go-redis by itself does not: a read goes on until its
// ReadTimeout. The pipeline is then left behind in its goroutine, which the client's own
// timeouts end, and whose replies nobody reads.
func (r *Runner) Run(ctx context.Context, calls []Call) []Reply {
	if err := ended(ctx); err != nil {
		return failed(len(calls), err)
	}
	if len(calls) == 0 {
		return nil
	}
	if ctx.Done() == nil {
		return r.run(ctx, calls)
	}
	done := make(chan []Reply, 1)
	go func() { done <- r.run(ctx, calls) }()
	select {
	case replies := <-done:
		return replies
	case <-ctx.Done():
		return failed(len(calls), ended(ctx))
	}
}

// run sends the calls. Those that did not run, because their script was not known or
// its shebang line was not understood, are sent once more with what was missing.
func (r *Runner) run(ctx context.Context, calls []Call) []Reply {
	plain := r.plain.Load()
	cmds := make([]*redis.Cmd, len(calls))
	r.send(ctx, calls, cmds, nil, func(p redis.Pipeliner, c Call) *redis.Cmd {
		return p.EvalSha(ctx, c.Script.source(plain).sha, []string{c.Key}, c.Args...)
	})
	r.send(ctx, calls, cmds, scriptMissing, func(p redis.Pipeliner, c Call) *redis.Cmd {
		return p.Eval(ctx, c.Script.source(plain).text, []string{c.Key}, c.Args...)
	})
	r.send(ctx, calls, cmds, shebangRefused, func(p redis.Pipeliner, c Call) *redis.Cmd {
		r.plain.Store(true)
		return p.Eval(ctx, c.Script.source(true).text, []string{c.Key}, c.Args...)
	})
	replies := make([]Reply, len(calls))
	for i, cmd := range cmds {
		replies[i] = parse(cmd)
	}
	return replies
}

// send pipelines the calls that have not been sent, or were answered with an error that
// again accepts, and replaces their commands.
func (r *Runner) send(ctx context.Context, calls []Call, cmds []*redis.Cmd, again func(redis.Error) bool, queue func(redis.Pipeliner, Call) *redis.Cmd) {
	pipe := r.client.Pipeline()
	for i, c := range calls {
		var refusal redis.Error
		if cmds[i] == nil || errors.As(cmds[i].Err(), &refusal) && again(refusal) {
			cmds[i] = queue(pipe, c)
		}
	}
	if pipe.Len() == 0 {
		return
	}
	// Exec's own error is that of the first command that failed, and every command
	// carries its own: one bad item must not fail its batch.
	_, _ = pipe.Exec(ctx)
}

// scriptMissing recognises the answer to EVALSHA of a script that the server has not
// seen since it started, was promoted, or was told SCRIPT FLUSH.
func scriptMissing(err redis.Error) bool { return strings.HasPrefix(err.Error(), "NOSCRIPT") }

// shebangRefused recognises a server that takes "#!lua" for Lua, such as miniredis.
// Nothing ran: it does not get past the first character.
func shebangRefused(err redis.Error) bool {
	return strings.HasPrefix(err.Error(), "ERR Error compiling script") && strings.Contains(err.Error(), "near '#'")
}

// ended is the error of a context that is done, with its cause, or nil.
func ended(ctx context.Context) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); err != nil && !errors.Is(cause, err) {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

func failed(n int, err error) []Reply {
	replies := make([]Reply, n)
	for i := range replies {
		replies[i].Err = err
	}
	return replies
}
