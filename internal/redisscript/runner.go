package redisscript

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// Runner evaluates scripts through one client. It is safe for concurrent use.
type Runner struct {
	client redis.UniversalClient
	// plain is set once the server has refused a shebang line.
	plain atomic.Bool
	of    *redis.ClusterClient // whose node the client is for, or nil
	wait  *Wait                // nil for not waiting
	index *Index               // nil for none
}

// NewRunner returns a Runner; it sends nothing.
func NewRunner(client redis.UniversalClient) *Runner { return &Runner{client: client} }

// Keep makes the scripts keep an index. It is for before the first call.
func (r *Runner) Keep(index *Index) { r.index = index }

// Run evaluates the calls in one pipeline (one per node of a Cluster) and answers per
// call, in order. A script that the server does not have yet costs a second pipeline
// with the calls concerned.
//
// It returns when ctx ends, which go-redis by itself does not: a read goes on until its
// ReadTimeout. The pipeline is then left behind in its goroutine, which the client's own
// timeouts end, and whose replies nobody reads.
func (r *Runner) Run(ctx context.Context, calls []Call) []Reply {
	if len(calls) == 0 {
		return nil
	}
	replies, err := Within(ctx, func() []Reply { return r.Send(ctx, calls, nil, nil) })
	if err != nil {
		return failed(len(calls), err)
	}
	return replies
}

// Within returns what f does, or, when ctx ends first, its error; f is then left behind
// in its goroutine, and must not touch what the caller goes on to use.
func Within[T any](ctx context.Context, f func() T) (T, error) {
	if err := ended(ctx); err != nil {
		var none T
		return none, err
	}
	if ctx.Done() == nil {
		return f(), nil
	}
	done := make(chan T, 1)
	go func() { done <- f() }()
	select {
	case v := <-done:
		return v, nil
	case <-ctx.Done():
		var none T
		return none, ended(ctx)
	}
}

// Send is Run for a caller that is Within its context already. It sends the plain
// commands in the pipeline of the calls, after them, and at the end of every pipeline what
// last returns, unless it is nil.
//
// Calls that did not run, because their script was not known or its shebang line was not
// understood, are sent once more with what was missing.
func (r *Runner) Send(ctx context.Context, calls []Call, after []redis.Cmder,
	last func() []redis.Cmder) []Reply {
	if len(calls) == 0 {
		r.Exec(ctx, after, last)
		return nil
	}
	if r.wait != nil && len(after) == 0 && onlyRead(calls) {
		r = &Runner{client: r.client}
	}
	index := r.index
	plain := r.plain.Load()
	cmds := make([]*redis.Cmd, len(calls))
	r.send(ctx, calls, cmds, after, last, nil, func(c Call) *redis.Cmd {
		return c.evalSHA(ctx, plain, index)
	})
	r.send(ctx, calls, cmds, nil, last, scriptMissing, func(c Call) *redis.Cmd {
		return c.eval(ctx, plain, index)
	})
	r.send(ctx, calls, cmds, nil, last, shebangRefused, func(c Call) *redis.Cmd {
		r.plain.Store(true)
		return c.eval(ctx, true, index)
	})
	if index != nil && !index.BySlot() {
		r.send(ctx, calls, cmds, nil, last, slotsRefused, func(c Call) *redis.Cmd {
			index.bySlot.Store(true)
			return c.eval(ctx, r.plain.Load(), index)
		})
	}
	replies := make([]Reply, len(calls))
	for i, cmd := range cmds {
		replies[i] = parse(cmd)
	}
	if index != nil {
		r.apart(ctx, calls, replies, last)
	}
	return replies
}

// apart sends calls once more whose slot moves: their record may be on one server, and the index on
// another, for minutes. A command for one key is always answered. So the key is entered first,
// where the call may put it past its point of no return, and then the call goes without the index.
// What it leaves behind there, the next reader takes out.
func (r *Runner) apart(ctx context.Context, calls []Call, replies []Reply,
	last func() []redis.Cmder) {
	alone := &Runner{client: r.client, wait: r.wait}
	alone.plain.Store(r.plain.Load())
	var enter, again []Call
	var entered, which []int
	for i := range calls {
		if calls[i].Script.inIndex && redis.HasErrorPrefix(replies[i].Err, "TRYAGAIN") &&
			calls[i].Script != Reindex {
			which = append(which, i)
			if calls[i].danger > 0 {
				enter, entered = append(enter, calls[i].newEnter(r.index)), append(entered, i)
			}
		}
	}
	if len(which) == 0 {
		return
	}
	refused := make(map[int]error)
	for n, reply := range alone.Send(ctx, enter, nil, nil) {
		if reply.Err != nil {
			refused[entered[n]] = reply.Err
		}
	}
	which = slices.DeleteFunc(which, func(i int) bool {
		if err := refused[i]; err != nil {
			replies[i] = Reply{Err: err}
			return true
		}
		again = append(again, calls[i])
		return false
	})
	for n, reply := range alone.Send(ctx, again, nil, last) {
		replies[which[n]] = reply
	}
}

// onlyRead reports whether no call can write.
func onlyRead(calls []Call) bool {
	for _, c := range calls {
		if c.Script != Lookup {
			return false
		}
	}
	return true
}

// On returns a Runner for one node of the Cluster.
func (r *Runner) On(node *redis.Client) *Runner {
	cluster, _ := r.client.(*redis.ClusterClient)
	return &Runner{client: node, of: cluster, wait: r.wait, index: r.index}
}

// send pipelines the calls that have not been sent, or were answered with an error that
// again accepts, and replaces their commands; and the plain commands after them.
func (r *Runner) send(ctx context.Context, calls []Call, cmds []*redis.Cmd, after []redis.Cmder,
	last func() []redis.Cmder, again func(redis.Error) bool, command func(Call) *redis.Cmd) {
	var all []redis.Cmder
	for i, c := range calls {
		var refusal redis.Error
		if cmds[i] == nil || cmds[i].Err() != nil && errors.As(cmds[i].Err(), &refusal) &&
			again(refusal) {
			cmds[i] = command(c)
			all = append(all, cmds[i])
		}
	}
	r.Exec(ctx, append(all, after...), last)
}

// Exec sends commands, which carry their own errors: one bad item must not fail its
// batch. What last returns goes with them, unless there are none.
func (r *Runner) Exec(ctx context.Context, cmds []redis.Cmder, last func() []redis.Cmder) {
	if len(cmds) == 0 {
		return
	}
	if last != nil {
		cmds = append(cmds[:len(cmds):len(cmds)], last()...)
	}
	if r.wait != nil {
		r.durably(ctx, cmds)
		return
	}
	if len(cmds) == 1 { // a pipeline is made of some ten pieces
		_ = r.client.Process(ctx, cmds[0])
		return
	}
	pipe := r.client.Pipeline()
	_ = pipe.BatchProcess(ctx, cmds...) // of a Pipeline, it only queues
	_, _ = Exec(ctx, r.client, pipe)
}

// scriptMissing recognises the answer to EVALSHA of a script that the server has not
// seen since it started, was promoted, or was told SCRIPT FLUSH.
func scriptMissing(err redis.Error) bool { return strings.HasPrefix(err.Error(), "NOSCRIPT") }

// shebangRefused recognises a server that takes "#!lua" for Lua, such as miniredis.
// Nothing ran: it does not get past the first character.
func shebangRefused(err redis.Error) bool {
	return strings.HasPrefix(err.Error(), "ERR Error compiling script") &&
		strings.Contains(err.Error(), "near '#'")
}

// slotsRefused recognises a server, behind a proxy, that takes the keys of one slot only.
func slotsRefused(err redis.Error) bool { return strings.HasPrefix(err.Error(), "CROSSSLOT") }

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

// Client returns the client that the Runner sends through.
func (r *Runner) Client() redis.UniversalClient { return r.client }
