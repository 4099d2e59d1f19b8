package serve

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
)

// party is one side: a site, and the connections to it.
type party struct {
	name  string
	site  *site
	conns []*conn
	close []func() error
	again bool // every key is sent before the timing begins, and is replayed in it
	// known is what the sites of limits need before a replay: they have no middleware.
	known func(context.Context, []string) error
}

// connect opens the callers' connections.
func (p *party) connect(ctx context.Context, callers int) error {
	for range callers {
		c, err := dial(ctx, p.site.addr)
		if err != nil {
			return err
		}
		p.conns = append(p.conns, c)
	}
	return nil
}

// shut ends what belongs to the party, clients first.
func (p *party) shut() error {
	var err error
	for _, c := range p.conns {
		err = errors.Join(err, c.conn.Close())
	}
	if p.site != nil {
		err = errors.Join(err, p.site.stop())
	}
	for _, end := range p.close {
		err = errors.Join(err, end())
	}
	return err
}

func (p *party) side() harness.Side {
	s := harness.Side{Name: p.name, Run: func(ctx context.Context, t *harness.Timing) error {
		want := int64(len(t.Keys))
		if p.again && p.known == nil {
			want = 0
		}
		return p.counted(want, func() error { return p.send(ctx, t.Keys, t.Latency) })
	}}
	if p.again {
		s.Prepare = func(ctx context.Context, t *harness.Timing) error {
			if p.known != nil {
				return p.known(ctx, t.Keys)
			}
			return p.counted(int64(len(t.Keys)), func() error { return p.send(ctx, t.Keys, nil) })
		}
	}
	return s
}

// counted fails if the handler has not run so often: what is timed must be what the row says.
func (p *party) counted(want int64, send func() error) error {
	before := p.site.runs.Load()
	if err := send(); err != nil {
		return err
	}
	if ran := p.site.runs.Load() - before; ran != want {
		return fmt.Errorf("serve: %s: the handler ran %d times, want %d", p.name, ran, want)
	}
	return nil
}

// send posts every key once, over all connections. Latency may be nil.
func (p *party) send(ctx context.Context, keys []string, latency []time.Duration) error {
	errs := make([]error, len(p.conns))
	var wg sync.WaitGroup
	for i, c := range p.conns {
		wg.Go(func() {
			for k := i; k < len(keys); k += len(p.conns) {
				if ctx.Err() != nil {
					errs[i] = context.Cause(ctx)
					return
				}
				begin := time.Now()
				if errs[i] = c.post(keys[k]); errs[i] != nil {
					return
				}
				if latency != nil {
					latency[k] = time.Since(begin)
				}
				if string(c.body) != receipt {
					errs[i] = fmt.Errorf("serve: %s: answered %.200q", p.name, c.body)
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
