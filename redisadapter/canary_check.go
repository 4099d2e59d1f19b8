package redisadapter

import (
	"context"
	"iter"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup"
)

// canaryCheck is the looking at canaries during one exchange: at the end of every pipeline that
// carries claims there is one GET for every server that they go to. The commands of one
// server are executed in order, so that a canary which is there says that nothing was
// lost before the claims. A claim that is redirected after that is not covered.
type canaryCheck struct {
	g    *guard
	want *view
	at   []int // the canary of each request, -1 for none
	cmds map[int][]*redis.StringCmd
}

// looks are those of one round.
type looks struct {
	g    *guard
	need []int
	cmds map[int][]*redis.StringCmd
}

func (g *guard) newCanaryCheck(ctx context.Context, t *exchange) *canaryCheck {
	var keys []string
	if g.cluster != nil {
		keys = make([]string, len(t.reqs))
		for i := range keys {
			keys[i] = t.s.key(t.reqs[i].ID)
		}
	}
	return &canaryCheck{g: g, want: g.view.Load(), at: g.guards(ctx, keys, len(t.reqs)),
		cmds: make(map[int][]*redis.StringCmd)}
}

// round lists the canaries of the claims in a round. It returns nil for none.
func (c *canaryCheck) round(claims iter.Seq[int]) *looks {
	if c == nil {
		return nil
	}
	l := &looks{g: c.g, cmds: make(map[int][]*redis.StringCmd)}
	for item := range claims {
		if n := c.at[item]; n >= 0 && l.cmds[n] == nil {
			l.cmds[n] = []*redis.StringCmd{}
			l.need = append(l.need, n)
		}
	}
	return l
}

// queue returns what makes the commands of one pipeline.
func (l *looks) queue(ctx context.Context) func() []redis.Cmder {
	if l == nil || len(l.need) == 0 {
		return nil
	}
	return func() []redis.Cmder {
		cmds := make([]redis.Cmder, len(l.need))
		for i, n := range l.need {
			cmd := redis.NewStringCmd(ctx, "get", l.g.keys[n])
			cmds[i], l.cmds[n] = cmd, append(l.cmds[n], cmd)
		}
		return cmds
	}
}

// add takes a round that has come back. One that was left behind may still be at work.
func (c *canaryCheck) add(l *looks) {
	if l == nil {
		return
	}
	for n, cmds := range l.cmds {
		c.cmds[n] = append(c.cmds[n], cmds...)
	}
}

// changed reports whether a canary is not what it must be.
func (c *canaryCheck) changed() bool {
	for n, cmds := range c.cmds {
		for _, cmd := range cmds {
			if s := sightOf(cmd); s.err == nil && (s.missing || s.value != c.want.values[n]) {
				return true
			}
		}
	}
	return false
}

// unseen is why the canary of request i could not be looked at, or nil.
func (c *canaryCheck) unseen(i int) error {
	n := c.at[i]
	if n < 0 {
		return nil
	}
	for _, cmd := range c.cmds[n] {
		if err := sightOf(cmd).err; err != nil {
			return err
		}
	}
	return nil
}

// acquiredOf lists the requests that were granted.
func acquiredOf(answers []dedup.Answer) (granted []int) {
	for i := range answers {
		if answers[i].Outcome == dedup.Acquired {
			granted = append(granted, i)
		}
	}
	return granted
}
