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
	of    *redis.ClusterClient // the Cluster whose node client is, or nil
	wait  *Wait                // nil if it does not wait
	index *Index               // nil if there is none
}

// NewRunner returns a Runner; it sends nothing.
func NewRunner(client redis.UniversalClient) *Runner { return &Runner{client: client} }

// Keep makes the scripts maintain an index. Call it before the first call is sent.
func (r *Runner) Keep(index *Index) { r.index = index }

// Run evaluates the calls in one pipeline (one per node of a Cluster) and returns one reply per
// call, in order. A script that the server does not have yet costs a second pipeline with the calls
// that need it.
//
// It returns when ctx ends, which go-redis alone does not: a read continues until its ReadTimeout.
// Run then abandons the pipeline in its goroutine. The client's own timeouts end that goroutine,
// and nobody reads its replies.
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

// Within returns what f returns, or the error of ctx when ctx ends first. It then abandons f in its
// goroutine, so f must not touch anything that the caller still uses.
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

// Send does what Run does, for a caller that is already inside of Within. It sends the plain
// commands in the pipeline of the calls, after them. At the end of every pipeline it sends the
// commands that last returns, unless last is nil.
//
// Some calls do not run because the server does not know their script, or does not understand its
// shebang line. It sends them again, with the text of the script or without that line.
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

// apart sends calls again whose slot moves: for minutes their record may be on one server and the
// index on another. A command for one key is always answered. So apart first enters the key in the
// index if the call may put it past its point of no return, and then sends the call without the
// index. The next reader removes any entry that the call leaves behind.
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

// onlyRead reports whether none of the calls can write.
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

// send makes a pipeline of the calls that have not been sent, or whose error is one for which again
// returns true, and replaces their commands. It sends the plain commands after them.
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

// Exec sends commands, each of which keeps its own error, because one bad item must not fail its
// batch. The commands that last returns go with them, unless cmds is empty.
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
	if len(cmds) == 1 { // a pipeline costs some ten allocations
		_ = r.client.Process(ctx, cmds[0])
		return
	}
	pipe := r.client.Pipeline()
	_ = pipe.BatchProcess(ctx, cmds...) // on a Pipeline this only queues
	_, _ = Exec(ctx, r.client, pipe)
}

// scriptMissing recognizes the answer to EVALSHA of a script that the server has not seen since it
// started, was promoted, or executed SCRIPT FLUSH.
func scriptMissing(err redis.Error) bool { return strings.HasPrefix(err.Error(), "NOSCRIPT") }

// shebangRefused recognizes a server that parses "#!lua" as Lua, such as miniredis. No part of the
// script ran: the server stops at the first character.
func shebangRefused(err redis.Error) bool {
	return strings.HasPrefix(err.Error(), "ERR Error compiling script") &&
		strings.Contains(err.Error(), "near '#'")
}

// slotsRefused recognizes a server, behind a proxy, that takes only keys of one slot.
func slotsRefused(err redis.Error) bool { return strings.HasPrefix(err.Error(), "CROSSSLOT") }

// ended returns the error of a context that is done, with its cause, or nil.
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
