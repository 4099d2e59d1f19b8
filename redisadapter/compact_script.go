package redisadapter

import (
	"context"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/redisscript"
)

// compactBatch sends one script per item, with the buckets of its key, and sends those
// again whose server's clock is elsewhere than we thought.
func compactBatch(
	ctx context.Context, s *Store, op string, ids []dedup.ID,
	call func(*Store, *dedup.ID) (redisscript.Call, error),
	read func(*dedup.ID, redisscript.Reply, dedup.Record) (dedup.Answer, error),
) []dedup.Answer {
	at := s.clock.Now(ctx)
	send := func(ids []dedup.ID) []dedup.Answer {
		v := s.buckets.view(at)
		return batch(ctx, s, op, ids, func(s *Store, id *dedup.ID) (redisscript.Call, error) {
			c, err := call(s, id)
			if err != nil {
				return c, err
			}
			c = c.In(s.buckets.in(v, s.buckets.place(*id)))
			if c.Script == redisscript.Forget {
				c = c.Above(at.Fence())
			}
			return c, nil
		}, read)
	}
	sent := time.Now()
	answers := send(ids)
	for range maxEdges {
		var again []int
		var rest []dedup.ID
		for i := range answers {
			if r, edge := atEdge(answers[i].Err, sent); edge {
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
