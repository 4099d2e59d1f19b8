package torture_test

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/internal/servertest"
)

// nemesis does something to a server a number of times, spread over the deliveries.
type nemesis struct {
	name  string
	code  strikeCode
	begin func(c *conductor)
	end   func(c *conductor) // after lasts; nil where there is nothing to undo
	lasts time.Duration
	echo  time.Duration // how long after its end clients may still find what it broke
	whole bool          // it lasts from when all workers are there to the last delivery

	times, begun int
	since, until int64
}

// striking reports whether a strike lasts or is still to come.
func (c *conductor) striking() bool {
	for _, n := range c.nemesis {
		if !n.whole && (n.begun < n.times || n.since > 0) {
			return true
		}
	}
	return false
}

// strike has the nemeses do what is due: the k-th of n strikes when k of n+1 parts have been
// delivered.
func (c *conductor) strike(at int64) {
	total := len(c.source.numbers) * c.times
	share := 1 - float64(len(c.source.fresh))/float64(total)
	for _, n := range c.nemesis {
		switch {
		case n.whole:
			if n.begun == 0 && c.ready() {
				n.begun, n.since = 1, at
				n.begin(c)
			}
		case n.since > 0 && at >= n.until:
			c.endStrike(n)
		case n.since == 0 && !c.struck() && n.begun < n.times &&
			share >= float64(n.begun+1)/float64(n.times+1):
			n.begun++
			n.since = at
			n.begin(c)
			n.until = now() + int64(n.lasts)
		}
	}
}

// struck reports whether a strike lasts: there is one at a time.
func (c *conductor) struck() bool {
	return slices.ContainsFunc(c.nemesis, func(n *nemesis) bool { return n.since > 0 && !n.whole })
}

// endStrike undoes what a nemesis did, and notes how long it lasted.
func (c *conductor) endStrike(n *nemesis) {
	if n.end != nil {
		n.end(c)
	}
	c.ledger.write(record{kind: struck, code: uint8(n.code), run: uint64(n.since),
		arg: int64(n.echo)})
	n.since = 0
}

// ready reports whether there is a worker in each slot.
func (c *conductor) ready() bool {
	for _, p := range c.slots {
		if p == nil || !p.ready {
			return false
		}
	}
	return true
}

// servers are those of a row.
type servers struct {
	redis    *servertest.Server
	client   redis.UniversalClient
	postgres *servertest.Server // of the row's own
	pair     *pair
	nodes    *nodes
}

// probe sends small requests to the servers until stop is called. If one fails, or takes longer
// than a fifth of a lease, the ledger gets an outage, whatever the cause is. On a machine with two
// cores that happens often.
func (c *conductor) probe() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var going sync.WaitGroup
	for _, ask := range c.probes {
		going.Go(func() {
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for ctx.Err() == nil {
				began := now()
				err := ask(ctx)
				if took := now() - began; (err != nil || took > int64(c.cfg.Lease)/5) &&
					ctx.Err() == nil {
					c.slow.Add(1)
					c.ledger.write(record{kind: struck, code: uint8(strikeOutage),
						run: uint64(began)})
				}
				select {
				case <-tick.C:
				case <-ctx.Done():
				}
			}
		})
	}
	return func() { cancel(); going.Wait() }
}
