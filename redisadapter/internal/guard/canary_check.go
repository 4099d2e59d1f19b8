package guard

import (
	"context"
	"fmt"
	"iter"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

// Check reads canaries during one exchange: every pipeline that carries claims ends with one GET
// for every server that they go to. A server executes its commands in order, so a canary that
// exists proves that nothing was lost before the claims. A claim that is redirected after that is
// not covered.
type Check struct {
	g    *Amnesia
	want *view
	at   []int // the canary of each request, -1 for none
	cmds map[int][]*redis.StringCmd
}

// Looks are the canaries to read in one round.
type Looks struct {
	G    *Amnesia
	Need []int
	cmds map[int][]*redis.StringCmd
}

// NewCheck returns a Check for claims. It calls key for their keys only on a Cluster.
func (g *Amnesia) NewCheck(ctx context.Context, claims int,
	key func(i int) string) *Check {
	var keys []string
	if g.Cluster != nil {
		keys = make([]string, claims)
		for i := range keys {
			keys[i] = key(i)
		}
	}
	return &Check{g: g, want: g.view.Load(), at: g.guards(ctx, keys, claims),
		cmds: make(map[int][]*redis.StringCmd)}
}

// Round lists the canaries of the claims in a round. It returns nil for a nil Check.
func (c *Check) Round(claims iter.Seq[int]) *Looks {
	if c == nil {
		return nil
	}
	l := &Looks{G: c.g, cmds: make(map[int][]*redis.StringCmd)}
	for item := range claims {
		if n := c.at[item]; n >= 0 && l.cmds[n] == nil {
			l.cmds[n] = []*redis.StringCmd{}
			l.Need = append(l.Need, n)
		}
	}
	return l
}

// Queue returns the function that makes the commands of one pipeline.
func (l *Looks) Queue(ctx context.Context) func() []redis.Cmder {
	if l == nil || len(l.Need) == 0 {
		return nil
	}
	return func() []redis.Cmder {
		cmds := make([]redis.Cmder, len(l.Need))
		for i, n := range l.Need {
			cmd := redis.NewStringCmd(ctx, "get", l.G.Keys[n])
			cmds[i], l.cmds[n] = cmd, append(l.cmds[n], cmd)
		}
		return cmds
	}
}

// Add takes the replies of a round that has come back. A round that was given up must not be added,
// because it may still be running.
func (c *Check) Add(l *Looks) {
	if l == nil {
		return
	}
	for n, cmds := range l.cmds {
		c.cmds[n] = append(c.cmds[n], cmds...)
	}
}

// changed reports whether a canary is not what it must be.
func (c *Check) changed() bool {
	for n, cmds := range c.cmds {
		for _, cmd := range cmds {
			if s := sightOf(cmd); s.Err == nil && (s.Missing || s.value != c.want.values[n]) {
				return true
			}
		}
	}
	return false
}

// Unseen returns why the canary of request i could not be read, or nil.
func (c *Check) Unseen(i int) error {
	n := c.at[i]
	if n < 0 {
		return nil
	}
	for _, cmd := range c.cmds[n] {
		if err := sightOf(cmd).Err; err != nil {
			return err
		}
	}
	return nil
}

// AcquiredOf lists the requests that were granted.
func AcquiredOf(answers []driver.Answer) (granted []int) {
	for i := range answers {
		if answers[i].Outcome == driver.Acquired {
			granted = append(granted, i)
		}
	}
	return granted
}

// Suspicious returns why claims that a pipeline won must not be granted as usual, or nil.
func (g *Amnesia) Suspicious(ctx context.Context, t *Check) error {
	changed := t.changed()
	if changed {
		if err := wire.Within(ctx, func() error { return g.Look(ctx) }); err != nil {
			return fmt.Errorf("%w: a canary is missing or has changed, and cannot be read again: %w", wire.ErrAmnesia, err)
		}
	}
	if g.dialled() || g.lookDue() {
		if err := wire.Within(ctx, func() error { return g.identify(ctx) }); err != nil {
			return fmt.Errorf("%w, or not: the server cannot be asked who it is: %w",
				wire.ErrAmnesia, err)
		}
	}
	if why := g.amnesic(); why != nil || !changed {
		return why
	}
	// The loss was acknowledged while the claims were under way. Nobody knows whether the server
	// executed the claims before or after that.
	return fmt.Errorf("%w: the canary has changed since the last claims", wire.ErrAmnesia)
}
