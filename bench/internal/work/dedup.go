package work

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/peer"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/redisadapter"
)

// Deduper is an opened layout.
type Deduper struct{ *dedup.Deduper }

// Open connects a layout to addr for the time of a setup, with a client as people have it.
func (l Layout) Open(ctx context.Context, s *harness.Setup, addr string, db int,
	with ...func(*dedup.Config)) (*Deduper, error) {
	// A namespace for each: nobody meets the keys of another.
	// The timeout is one that no busy machine reaches: the Kafka adapter would pause, and wait.
	cfg := dedup.Config{Namespace: "bench-" + harness.Fresh(), Window: peer.Window,
		LeaseTTL: time.Minute, StoreTimeout: 30 * time.Second}
	if l.config != nil {
		l.config(&cfg)
	}
	for _, change := range with {
		change(&cfg)
	}
	client := server.NewClient(addr, db, 0)
	s.Defer(client.Close)
	store, err := redisadapter.New(ctx, client, l.options(cfg.Window))
	if err != nil {
		return nil, err
	}
	d, err := dedup.New(store, cfg)
	if err != nil {
		return nil, err
	}
	s.Defer(func() error { return Close(d) })
	return &Deduper{d}, nil
}

// Close closes a Deduper, also when the run was interrupted.
func Close(d *dedup.Deduper) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return d.Close(ctx)
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
	return func(ctx context.Context, key string) error {
		c, err := d.Claim(ctx, key)
		if err != nil {
			return err
		}
		switch {
		case !slices.Contains(expected, c.Outcome):
			return unexpected(key, c)
		case c.Outcome == dedup.Acquired:
			return c.Complete(ctx, nil)
		default:
			return nil
		}
	}
}

// Batch claims keys, and completes those that are new with result.
func (d *Deduper) Batch(expected []dedup.Outcome, result []byte) Batch {
	return func(ctx context.Context, _ int, keys []string) error {
		return d.batch(ctx, Requests(keys), result, expected)
	}
}

// Likely does so for a consumer that expects duplicates, such as one that replays.
func (d *Deduper) Likely(ctx context.Context, _ int, keys []string) error {
	reqs := Requests(keys)
	for i := range reqs {
		reqs[i].LikelyDuplicate = true
	}
	return d.batch(ctx, reqs, nil, Known)
}

func (d *Deduper) batch(ctx context.Context, reqs []dedup.Request, result []byte,
	expected []dedup.Outcome) error {
	claims, err := d.ClaimBatch(ctx, reqs)
	if err != nil {
		return err
	}
	ends, err := Won(claims, result, expected)
	if err != nil || len(ends) == 0 {
		return err
	}
	return errors.Join(d.CompleteBatch(ctx, ends)...)
}

// Won are the completions of the claims that were acquired.
func Won(claims []*dedup.Claim, result []byte, expected []dedup.Outcome) (ends []dedup.Completion,
	err error) {
	for _, c := range claims {
		if !slices.Contains(expected, c.Outcome) {
			return nil, unexpected(c.Key, c)
		}
		if c.Outcome != dedup.Acquired {
			continue
		}
		if ends == nil {
			ends = make([]dedup.Completion, 0, len(claims))
		}
		ends = append(ends, dedup.Completion{Claim: c, Result: result})
	}
	return ends, nil
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
	return func(ctx context.Context, t *harness.Timing) error {
		var next atomic.Int64
		return Parallel(ctx, workers, func(ctx context.Context, _ int) error {
			var ends []dedup.Completion
			for {
				to := int(next.Add(Typical))
				if to-Typical >= len(t.Keys) {
					return errors.Join(d.CompleteBatch(ctx, ends)...)
				}
				errs, claims, err := d.CompleteAndClaim(ctx, ends,
					Requests(t.Keys[to-Typical:min(to, len(t.Keys))]))
				if err := errors.Join(append(errs, err)...); err != nil {
					return err
				}
				if ends, err = Won(claims, nil, New); err != nil {
					return err
				}
			}
		})
	}
}

func unexpected(key string, c *dedup.Claim) error {
	return fmt.Errorf("%s: outcome %v: %w", key, c.Outcome, errors.Join(c.Err()))
}

// Fill makes the store remember the first n numbered keys.
func (d *Deduper) Fill(ctx context.Context, n int) error {
	const part = 1 << 14 // keys that exist here at a time
	run := InBatches(4, Typical, d.Batch(New, nil))
	for from := 0; from < n; from += part {
		keys := make([]string, min(part, n-from))
		for i := range keys {
			keys[i] = Numbered(from + i)
		}
		if err := run(ctx, &harness.Timing{Keys: keys}); err != nil {
			return err
		}
	}
	return nil
}

// Numbered is as long as a UUID.
func Numbered(i int) string { return fmt.Sprintf("remembered-key-%021d", i) }
