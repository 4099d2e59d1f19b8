package deduptest

import (
	"context"
	"sync"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// sameFence answers the first fence of a key forever.
type sameFence struct {
	mu    sync.Mutex
	first map[driver.ID]uint64
}

func (s *sameFence) keep(id driver.ID, a *driver.Answer) {
	if a.Record.Fence == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first == nil {
		s.first = map[driver.ID]uint64{}
	}
	if s.first[id] == 0 {
		s.first[id] = a.Record.Fence
	}
	a.Record.Fence = s.first[id]
}

// eachRecord bends every record that a claim, an end or a lookup shows.
func eachRecord(bend func(*dedup.Record)) func(*broken) {
	return func(b *broken) {
		bent := func(answers []driver.Answer) []driver.Answer {
			for i := range answers {
				bend(&answers[i].Record)
			}
			return answers
		}
		b.claim = func(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
			return bent(b.Store.Claim(ctx, reqs))
		}
		b.finish = func(ctx context.Context, changes []driver.Finish) []driver.Answer {
			return bent(b.Store.Finish(ctx, changes))
		}
		b.lookup = func(ctx context.Context, ids []driver.ID) []driver.Answer {
			return bent(b.Store.Lookup(ctx, ids))
		}
	}
}

// eachChange bends every change on its way to Finish.
func eachChange(bend func(*driver.Finish)) func(*broken) {
	return func(b *broken) {
		b.finish = func(ctx context.Context, changes []driver.Finish) []driver.Answer {
			changes = append([]driver.Finish(nil), changes...)
			for i := range changes {
				bend(&changes[i])
			}
			return b.Store.Finish(ctx, changes)
		}
	}
}

// sharedResults hands out the caller's own slices.
func sharedResults(b *broken) {
	var mu sync.Mutex
	kept := map[driver.ID][]byte{}
	show := func(id driver.ID, a *driver.Answer) {
		mu.Lock()
		defer mu.Unlock()
		if len(a.Record.Result) > 0 && kept[id] != nil {
			a.Record.Result = kept[id]
		}
	}
	b.finish = func(ctx context.Context, changes []driver.Finish) []driver.Answer {
		answers := b.Store.Finish(ctx, changes)
		for i := range changes {
			if answers[i].Written {
				mu.Lock()
				kept[changes[i].ID] = changes[i].Result
				mu.Unlock()
			}
			show(changes[i].ID, &answers[i])
		}
		return answers
	}
	b.lookup = func(ctx context.Context, ids []driver.ID) []driver.Answer {
		answers := b.Store.Lookup(ctx, ids)
		for i := range ids {
			show(ids[i], &answers[i])
		}
		return answers
	}
}

var recordMutants = []mutant{
	{"record lives as long as the lease", func(b *broken) {
		var mu sync.Mutex
		lease := map[driver.ID]time.Duration{}
		eachClaim(b, func(req driver.ClaimRequest, a *driver.Answer) {
			mu.Lock()
			defer mu.Unlock()
			if a.Outcome == dedup.Acquired {
				lease[req.ID] = req.Lease
			}
		})
		b.finish = func(ctx context.Context, changes []driver.Finish) []driver.Answer {
			changes = append([]driver.Finish(nil), changes...)
			mu.Lock()
			for i := range changes {
				if d, ok := lease[changes[i].ID]; ok {
					changes[i].Window = d
				}
			}
			mu.Unlock()
			return b.Store.Finish(ctx, changes)
		}
	}, []string{"time/window_is_no_lease"}},

	{"records are never forgotten", eachChange(func(c *driver.Finish) {
		c.Window += 100 * time.Hour
	}),
		[]string{"time/window_expiry", "batch/lookup_changes_nothing"}},

	{"a batch has one window", func(b *broken) {
		b.finish = func(ctx context.Context, changes []driver.Finish) []driver.Answer {
			changes = append([]driver.Finish(nil), changes...)
			for i := range changes {
				changes[i].Window = changes[0].Window
			}
			return b.Store.Finish(ctx, changes)
		}
	}, []string{"time/window_of_each"}},

	{"empty result becomes nil", eachChange(func(c *driver.Finish) {
		if len(c.Result) == 0 {
			c.Result = nil
		}
	}), []string{"result/byte_for_byte"}},

	{"nil result becomes empty", eachChange(func(c *driver.Finish) {
		if c.Result == nil {
			c.Result = []byte{}
		}
	}), []string{"result/byte_for_byte", "result/not_kept"}},

	{"large results cut", eachChange(func(c *driver.Finish) {
		c.Result = c.Result[:min(len(c.Result), 1<<16-1)]
	}),
		[]string{"result/byte_for_byte"}},

	{"text of failures dropped", eachChange(func(c *driver.Finish) {
		if c.State == driver.StateFailed {
			c.Result = nil
		}
	}), []string{"claim/stored_failure", "result/byte_for_byte"}},

	{"NoResult dropped", eachChange(func(c *driver.Finish) {
		c.NoResult = false
	}), []string{"result/not_kept"}},
	{"results shared", sharedResults, []string{"result/not_shared"}},

	{"origin dropped", eachRecord(func(r *dedup.Record) {
		r.Origin = driver.Origin{}
	}), []string{"claim/origin_and_label"}},
	{"offsets of 32 bits", eachRecord(func(r *dedup.Record) {
		r.Origin.Offset &= 1<<32 - 1
	}), []string{"claim/origin_and_label"}},
	{"label dropped", eachRecord(func(r *dedup.Record) {
		r.Label = ""
	}), []string{"claim/origin_and_label"}},
	{"age not told", eachRecord(func(r *dedup.Record) { r.Age = 0 }), []string{"claim/duplicate"}},

	{"forget drops a live claim", func(b *broken) {
		var o owners
		b.claim = func(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
			return o.note(reqs, b.Store.Claim(ctx, reqs))
		}
		b.forget = func(ctx context.Context, ids []driver.ID, hold time.Duration) []error {
			for _, id := range ids {
				if token, ok := o.of(id); ok {
					b.Store.Finish(ctx, []driver.Finish{{ID: id, Token: token,
						State: driver.StateReleased, Hold: long}})
				}
			}
			return b.Store.Forget(ctx, ids, hold)
		}
	}, []string{"forget/live_claim"}},

	{"forget does nothing", func(b *broken) {
		b.forget = func(_ context.Context, ids []driver.ID, _ time.Duration) []error {
			return make([]error, len(ids))
		}
	}, []string{"forget/claimable_again", "forget/older_owner", "forget/live_claim"}},

	{"forget leaves no fence behind", func(b *broken) {
		b.forget = func(ctx context.Context, ids []driver.ID, _ time.Duration) []error {
			return b.Store.Forget(ctx, ids, 0)
		}
	}, []string{"forget/older_owner"}},

	{"forgotten attempts are counted", func(b *broken) {
		var mu sync.Mutex
		kept := map[driver.ID]int{}
		b.forget = func(ctx context.Context, ids []driver.ID, hold time.Duration) []error {
			for _, id := range ids {
				mu.Lock()
				kept[id] = max(kept[id], b.state(ctx, id).Attempt)
				mu.Unlock()
			}
			return b.Store.Forget(ctx, ids, hold)
		}
		eachClaim(b, func(req driver.ClaimRequest, a *driver.Answer) {
			mu.Lock()
			defer mu.Unlock()
			if a.Outcome == dedup.Acquired {
				a.Record.Attempt += kept[req.ID]
			}
		})
	}, []string{"forget/claimable_again"}},
}
