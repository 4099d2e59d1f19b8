package work

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/bench/internal/peer"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/redisadapter"
)

// Deduper is an opened layout.
type Deduper struct{ *dedup.Deduper }

// Open connects a layout to addr for the time of a setup, with a client as people have it.
func (l Layout) Open(ctx context.Context, s *harness.Setup, addr string, db int,
	with ...func(*dedup.Config)) *Deduper {
	// A namespace for each: nobody meets the keys of another.
	// The timeout is one that no busy machine reaches: the Kafka adapter would pause, and wait.
	cfg := dedup.Config{Namespace: "bench-" + harness.Fresh(), Window: peer.Window,
		LeaseTTL: time.Minute, StoreTimeout: 30 * time.Second, SeenOnly: l.seenOnly}
	for _, change := range with {
		change(&cfg)
	}
	store := must.Get(redisadapter.New(ctx, server.NewClient(s, addr, db, 0),
		l.options(cfg.Window)))
	return Open(s, store, cfg)
}

// Open makes a Deduper over a store for the time of a setup.
func Open(s *harness.Setup, store dedup.Store, cfg dedup.Config) *Deduper {
	d := must.Get(dedup.New(store, cfg))
	s.Defer(func() error { // also when the run was interrupted
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		return d.Close(ctx)
	})
	return &Deduper{d}
}

// Outcomes that a claimed key may have: new; known; or either, as in a stream, where a neighbor may
// have just taken it.
var (
	New    = []dedup.Outcome{dedup.Acquired}
	Known  = []dedup.Outcome{dedup.Duplicate}
	Either = []dedup.Outcome{dedup.Acquired, dedup.Duplicate, dedup.InFlight}
)

// One claims a key, and completes it if it is new.
func (d *Deduper) One(expected []dedup.Outcome) peer.Cycle {
	return func(ctx context.Context, key string) {
		c := must.Get(d.Claim(ctx, key))
		expect(c, expected)
		if c.Outcome == dedup.Acquired {
			must.Do(c.Complete(ctx, nil))
		}
	}
}

// Batch claims keys, and completes those that are new with result.
func (d *Deduper) Batch(expected []dedup.Outcome, result []byte) Batch {
	return func(ctx context.Context, _ int, keys []string) {
		d.batch(ctx, Requests(keys), result, expected)
	}
}

// Likely does so for a consumer that expects duplicates, such as one that replays.
func (d *Deduper) Likely(ctx context.Context, _ int, keys []string) {
	reqs := Requests(keys)
	for i := range reqs {
		reqs[i].LikelyDuplicate = true
	}
	d.batch(ctx, reqs, nil, Known)
}

func (d *Deduper) batch(ctx context.Context, reqs []dedup.Request, result []byte,
	expected []dedup.Outcome) {
	claims := must.Get(d.ClaimBatch(ctx, reqs))
	if ends := Won(claims, result, expected); len(ends) > 0 {
		d.Complete(ctx, ends)
	}
}

// Complete completes all, or fails.
func (d *Deduper) Complete(ctx context.Context, ends []dedup.Completion) {
	must.Do(errors.Join(d.CompleteBatch(ctx, ends)...))
}

// Next completes one batch and claims another in one exchange.
func (d *Deduper) Next(ctx context.Context, ends []dedup.Completion,
	reqs []dedup.Request) []*dedup.Claim {
	errs, claims, err := d.CompleteAndClaim(ctx, ends, reqs)
	must.Do(err)
	must.Do(errors.Join(errs...))
	return claims
}

// Won are the completions of the claims that were acquired.
func Won(claims []*dedup.Claim, result []byte,
	expected []dedup.Outcome) (ends []dedup.Completion) {
	for _, c := range claims {
		expect(c, expected)
		if c.Outcome != dedup.Acquired {
			continue
		}
		if ends == nil {
			ends = make([]dedup.Completion, 0, len(claims))
		}
		ends = append(ends, dedup.Completion{Claim: c, Result: result})
	}
	return ends
}

func expect(c *dedup.Claim, expected []dedup.Outcome) {
	if !slices.Contains(expected, c.Outcome) {
		must.Do(fmt.Errorf("%s: outcome %v: %w", c.Key, c.Outcome, errors.Join(c.Err())))
	}
}

// Requests are claims of keys and nothing else.
func Requests(keys []string) []dedup.Request {
	reqs := make([]dedup.Request, len(keys))
	for i, key := range keys {
		reqs[i].Key = key
	}
	return reqs
}

// Merged claims each batch in the round trip that completes the one before, as a consumer
// does that always has a next one.
func (d *Deduper) Merged(workers int) harness.Run {
	return func(ctx context.Context, t *harness.Timing) {
		var next atomic.Int64
		Parallel(ctx, workers, func(ctx context.Context, _ int) {
			var ends []dedup.Completion
			for {
				to := int(next.Add(Typical))
				if to-Typical >= len(t.Keys) {
					d.Complete(ctx, ends)
					return
				}
				keys := t.Keys[to-Typical : min(to, len(t.Keys))]
				ends = Won(d.Next(ctx, ends, Requests(keys)), nil, New)
			}
		})
	}
}

// Fill makes the store remember the first n numbered keys.
func (d *Deduper) Fill(ctx context.Context, n int) {
	const part = 1 << 14 // keys that exist here at a time
	run := InBatches(4, Typical, d.Batch(New, nil))
	for from := 0; from < n; from += part {
		keys := make([]string, min(part, n-from))
		for i := range keys {
			keys[i] = Numbered(from + i)
		}
		run(ctx, &harness.Timing{Keys: keys})
	}
}

// Numbered is as long as a UUID.
func Numbered(i int) string { return fmt.Sprintf("remembered-key-%021d", i) }
