package front

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/onceward/onceward/bench/internal/peer"
	"github.com/onceward/onceward/bench/internal/resp"
	"github.com/onceward/onceward/dedup"
)

// consumer runs the keys of a stream, each once. It says how many it has run.
type consumer interface {
	run(ctx context.Context, worker int, keys []string) (int, error)
}

// consume has every worker run its half.
func consume(ctx context.Context, c consumer, keys []string) (ran int, err error) {
	var busy sync.WaitGroup
	counts, errs := make([]int, workers), make([]error, workers)
	for w := range workers {
		busy.Go(func() { counts[w], errs[w] = c.run(ctx, w, part(keys, w)) })
	}
	busy.Wait()
	for _, n := range counts {
		ran += n
	}
	return ran, errors.Join(errs...)
}

// rawCycle is the least that claim and completion cost without an owner: a command each, in pipelines.
type rawCycle struct {
	conns  []*resp.Conn
	effect func(key string) // of a test; nil otherwise
}

const (
	rawToken = "0123456789abcdef"
	rawDone  = "1"
)

func (r *rawCycle) run(ctx context.Context, worker int, keys []string) (ran int, err error) {
	for batch := range slices.Chunk(keys, batchIDs) {
		won, err := r.conns[worker].Claim(ctx, batch, rawToken, peer.Lease)
		if err != nil {
			return ran, err
		}
		for _, key := range won {
			happen(r.effect, key)
		}
		if err := r.conns[worker].Complete(ctx, won, rawToken, rawDone, peer.Window); err != nil {
			return ran, err
		}
		ran += len(won)
	}
	return ran, nil
}

func (r *rawCycle) close() {
	for _, c := range r.conns {
		_ = c.Close()
	}
}

func dialRaw(ctx context.Context, addr string, effect func(string)) (*rawCycle, error) {
	r := &rawCycle{effect: effect}
	for range workers {
		c, err := resp.Dial(ctx, addr)
		if err != nil {
			r.close()
			return nil, err
		}
		r.conns = append(r.conns, c)
	}
	return r, nil
}

// batches claims a batch, runs what is new and ends it, as kafkaadapter does: in two trips. The requests say
// where they come from, as its do.
type batches struct {
	d       *dedup.Deduper
	origins *[workers]dedup.Origin
	effect  func(key string)
}

func (b batches) run(ctx context.Context, worker int, keys []string) (ran int, err error) {
	reqs := make([]dedup.Request, 0, batchIDs)
	for batch := range slices.Chunk(keys, batchIDs) {
		reqs = b.requests(reqs, worker, batch)
		claims, err := b.d.ClaimBatch(ctx, reqs)
		if err != nil {
			return ran, err
		}
		done, err := b.won(batch, claims)
		if err != nil {
			return ran, err
		}
		if err := errors.Join(b.d.CompleteBatch(ctx, done)...); err != nil {
			return ran, err
		}
		ran += len(done)
	}
	return ran, nil
}

// merged ends each batch in the trip that claims the next one.
type merged struct{ batches }

func (m merged) run(ctx context.Context, worker int, keys []string) (ran int, err error) {
	var done []dedup.Completion
	reqs := make([]dedup.Request, 0, batchIDs)
	for batch := range slices.Chunk(keys, batchIDs) {
		reqs = m.requests(reqs, worker, batch)
		errs, claims, err := m.d.CompleteAndClaim(ctx, done, reqs)
		if err := errors.Join(append(errs, err)...); err != nil {
			return ran, err
		}
		ran += len(done)
		if done, err = m.won(batch, claims); err != nil {
			return ran, err
		}
	}
	return ran + len(done), errors.Join(m.d.CompleteBatch(ctx, done)...)
}

func (b batches) requests(reqs []dedup.Request, worker int, keys []string) []dedup.Request {
	reqs = reqs[:0]
	for _, key := range keys {
		reqs = append(reqs, dedup.Request{Key: key, Origin: b.origins[worker]})
	}
	return reqs
}

// won runs what is new. A key that comes again in its batch is none: streams leave more room than that.
func (b batches) won(keys []string, claims []*dedup.Claim) ([]dedup.Completion, error) {
	done := make([]dedup.Completion, 0, len(claims))
	for i, c := range claims {
		switch c.Outcome {
		case dedup.Acquired:
			happen(b.effect, keys[i])
			done = append(done, dedup.Completion{Claim: c})
		case dedup.Duplicate:
		default:
			return nil, fmt.Errorf("%s: outcome %v: %w", keys[i], c.Outcome, errors.Join(c.Err()))
		}
	}
	return done, nil
}

func happen(effect func(string), key string) {
	if effect != nil {
		effect(key)
	}
}
