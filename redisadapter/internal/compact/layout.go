package compact

import (
	"context"
	"time"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redisscript"
	"github.com/onceward/onceward/redisadapter/internal/engine"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

// Each implements [engine.Layout]: each script gets the buckets of its key. A script whose buckets
// do not fit its server's clock is sent again.
func (b *Layout) Each(ctx context.Context, e *engine.Engine, batch *engine.Batch[driver.ID],
	ids []driver.ID) []driver.Answer {
	at := e.Clock.Now(ctx)
	send := func(ids []driver.ID) []driver.Answer {
		v, bucketed := b.view(at), *batch
		bucketed.Call = func(id *driver.ID) (redisscript.Call, error) {
			c, err := batch.Call(id)
			if err != nil {
				return c, err
			}
			c = c.In(b.in(v, b.place(*id)))
			if c.Script == redisscript.Forget {
				c = c.Above(at.Fence())
			}
			return c, nil
		}
		return bucketed.Send(ctx, e.Line, ids)
	}
	sent := time.Now()
	answers := send(ids)
	for range maxEdges {
		var again []int
		var rest []driver.ID
		for i := range answers {
			if r, edge := wire.AtEdge(answers[i].Err, sent); edge {
				at, again, rest = r, append(again, i), append(rest, ids[i])
			}
		}
		if len(again) == 0 {
			break
		}
		sent = time.Now()
		for n, a := range send(rest) {
			answers[again[n]] = a
		}
	}
	return answers
}
