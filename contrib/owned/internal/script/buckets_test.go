package script_test

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/contrib/owned/internal/script"
	"github.com/onceward/onceward/internal/redistest"
)

// pipelines looks at the commands of each pipeline, but for those of a new connection.
type pipelines struct {
	after func(cmds []redis.Cmder)
}

func (p *pipelines) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (p *pipelines) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (p *pipelines) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if p.after != nil && cmds[0].Name() != "client" {
			p.after(cmds)
		}
		return err
	}
}

// hookedPart is a partition on miniredis, held, and a Runner whose pipelines are watched.
func hookedPart(t *testing.T, hook *pipelines) (*part, *script.Runner) {
	t.Helper()
	_, client := redistest.Mini(t)
	hooked := redistest.Patient(t, client.Options().Addr)
	hooked.AddHook(hook)
	return held(t, redistest.Backend{Client: client, Prefix: "p"}, "p"),
		script.NewRunner(hooked)
}

// TestAskCannotRead: a bucket that cannot be read says nothing about its ids, unless they were
// found before.
func TestAskCannotRead(t *testing.T) {
	each(t, func(t *testing.T, b redistest.Backend) {
		p := held(t, b, "p")
		p.mark(1, 2)
		p.must(p.client.HSet(t.Context(), p.bucket(1), "no", "bucket").Err())
		p.must(p.client.Set(t.Context(), p.bucket(2), "seven..", 0).Err())
		p.must(p.client.Set(t.Context(), p.bucket(3), rawMembers(10), 0).Err())
		for name, c := range map[string]struct {
			of      int
			foreign bool
		}{
			"another type":          {of: 1},
			"another type, foreign": {of: 1, foreign: true},
			"a member cut off":      {of: 2},
		} {
			ask := script.Ask{
				Epoch: p.self.Epoch, Foreign: c.foreign, Gen: p.g, Newest: 1,
				IDs: []int64{2, 10, 12}, Fresh: []string{p.fresh(1)},
				Buckets: []script.Bucket{{Key: p.bucket(3), Of: []int{1}},
					{Key: p.bucket(c.of), Of: []int{2}}},
			}
			r := p.runner.Run(t.Context(),
				[]script.Call{script.NewAsk(p.keys, &ask)})[0]
			assert.Error(t, r.Err, "%s", name)
			assert.False(t, !c.foreign && !errors.Is(r.Err, script.ErrUnreadable),
				"%s: answered %+v", name, r)
			assert.Empty(t, r.Found, "%s", name)
			if c.foreign {
				continue // what Lua is not asked for it does not read
			}
			ask.Buckets[1].Of = []int{0, 1}
			r = p.want(script.AnswerFound,
				script.NewAsk(p.keys, &ask))
			assert.Equal(t, []script.IDState{1, 1, 0}, r.Found,
				"%s: all of its ids were found before, and the answer", name)
		}
	})
}

// TestAskReadFails: of three commands one is refused, as a Cluster does while a slot moves.
func TestAskReadFails(t *testing.T) {
	hook := &pipelines{}
	p, runner := hookedPart(t, hook)
	for i := range 3 {
		p.must(p.client.Set(t.Context(), p.bucket(i), rawMembers(int64(2*i)), 0).Err())
	}
	ask := func() script.Reply {
		q := script.Ask{Epoch: p.self.Epoch, IDs: []int64{0, 2, 4}}
		for i := range 3 {
			q.Buckets = append(q.Buckets, script.Bucket{Key: p.bucket(i), Of: []int{i}})
		}
		return runner.Run(t.Context(), []script.Call{script.NewAsk(p.keys, &q)})[0]
	}
	r := ask()
	require.NoError(t, r.Err)
	require.Equal(t, []script.IDState{1, 1, 1}, r.Found)
	refused := errors.New("TRYAGAIN Multiple keys request during rehashing of slot")
	hook.after = func(cmds []redis.Cmder) {
		for _, cmd := range cmds {
			if get, ok := cmd.(*redis.StringCmd); ok && get.Args()[1] == p.bucket(1) {
				get.SetVal("")
				get.SetErr(refused)
			}
		}
	}
	r = ask()
	assert.ErrorIs(t, r.Err, refused, "a bucket was not read")
	assert.Empty(t, r.Answer)
	assert.Empty(t, r.Found)
}

// TestAskReadsBeforeTheScript: the server does not know the script yet. The buckets are read, a
// fold moves the mark into one of them, and only then the script looks in the fresh set.
func TestAskReadsBeforeTheScript(t *testing.T) {
	hook := &pipelines{}
	p, runner := hookedPart(t, hook)
	p.mark(1, 2)
	folded := false
	hook.after = func(cmds []redis.Cmder) {
		if folded {
			return
		}
		folded = true
		get, ok := cmds[len(cmds)-1].(*redis.StringCmd)
		assert.True(t, ok && get.Val() == "" && redis.HasErrorPrefix(cmds[0].Err(), "NOSCRIPT"),
			"the first pipeline is %v", cmds)
		p.want(script.AnswerFolded, script.NewFold(p.keys, p.self, &script.Fold{
			Fresh: p.fresh(1), Gen: p.g, N: 1, Count: 1, Last: true,
			Buckets: []script.Fill{{Key: p.bucket(0), Members: []int64{2}}},
		}))
	}
	p.must(p.client.ScriptFlush(t.Context()).Err())
	r := runner.Run(t.Context(),
		[]script.Call{script.NewAsk(p.keys, &script.Ask{
			Epoch: p.self.Epoch, IDs: []int64{2}, Fresh: []string{p.fresh(1)},
			Buckets:  []script.Bucket{{Key: p.bucket(0), Of: []int{0}}},
			FoldedTo: []script.FoldedTo{{Gen: p.g}},
		})})[0]
	require.NoError(t, r.Err)
	assert.True(t, r.Moved, "the mark was there all the time, and the answer is %+v", r)
	assert.Equal(t, []script.IDState{1}, r.Found)
	assert.True(t, folded, "nothing was folded in between")
}
