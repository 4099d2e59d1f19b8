package sqlstore

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/deduptest"
	"github.com/onceward/onceward/dedup/driver"
)

// decider is a store without a database: it has rows in a map, and decides under a mutex. So it
// tests the functions that decide without any statement.
type decider struct {
	checks Store
	mu     sync.Mutex
	now    int64
	rows   map[driver.ID]claimRow
}

// do decides about one key. If decide says that nothing is written, it must not have changed the
// row.
func (d *decider) do(t testing.TB, id driver.ID,
	decide func(r *claimRow, now int64) (driver.Answer, bool)) driver.Answer {
	d.mu.Lock()
	defer d.mu.Unlock()
	before, found := d.rows[id]
	before.id = id
	r := before
	ans, write := decide(&r, d.now)
	if write {
		d.rows[id] = r
	}
	// The bytes of a database's row belong to its reader.
	ans.Record.Result, ans.Record.Steps = bytes.Clone(ans.Record.Result),
		bytes.Clone(ans.Record.Steps)
	if write {
		return ans
	}
	assert.False(t, found && !sameRow(&before, &r),
		"a row was changed that is not written: %+v became %+v", before, r)
	return ans
}

func sameRow(a, b *claimRow) bool {
	return a.token == b.token && a.state == b.state && a.flags == b.flags &&
		a.attempt == b.attempt && a.fence == b.fence &&
		a.floor == b.floor && a.leaseEnd == b.leaseEnd && a.since == b.since &&
		a.expires == b.expires && a.asked == b.asked
}

type decidingStore struct {
	*decider
	t testing.TB
}

func each[T any](ctx context.Context, items []T, do func(*T) driver.Answer) []driver.Answer {
	answers := make([]driver.Answer, len(items))
	for i := range items {
		if ctx.Err() != nil {
			answers[i].Err = ctx.Err()
			continue
		}
		answers[i] = do(&items[i])
	}
	return answers
}

func (s decidingStore) Claim(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	return each(ctx, reqs, func(r *driver.ClaimRequest) driver.Answer {
		if err := s.checks.checkClaim(r); err != nil {
			return driver.Answer{Err: err}
		}
		return s.do(s.t, r.ID, func(row *claimRow, now int64) (driver.Answer, bool) {
			return decideClaim(row, r, now)
		})
	})
}

func (s decidingStore) Renew(ctx context.Context, renewals []driver.Renewal) []driver.Answer {
	return each(ctx, renewals, func(c *driver.Renewal) driver.Answer {
		if err := c.Check(); err != nil {
			return driver.Answer{Err: err}
		}
		return s.do(s.t, c.ID, func(row *claimRow, now int64) (driver.Answer, bool) {
			return decideRenew(row, c, now)
		})
	})
}

func (s decidingStore) Finish(ctx context.Context, changes []driver.Finish) []driver.Answer {
	return each(ctx, changes, func(c *driver.Finish) driver.Answer {
		if err := s.checks.checkFinish(c); err != nil {
			return driver.Answer{Err: err}
		}
		return s.do(s.t, c.ID, func(row *claimRow, now int64) (driver.Answer, bool) {
			return decideFinish(row, c, now)
		})
	})
}

func (s decidingStore) Lookup(ctx context.Context, ids []driver.ID) []driver.Answer {
	return each(ctx, ids, func(id *driver.ID) driver.Answer {
		return s.do(s.t, *id, func(row *claimRow, now int64) (driver.Answer, bool) {
			return driver.Answer{Record: row.view(now)}, false
		})
	})
}

func (s decidingStore) Forget(ctx context.Context, ids []driver.ID, hold time.Duration) []error {
	errs := make([]error, len(ids))
	for i, ans := range each(ctx, ids, func(id *driver.ID) driver.Answer {
		return s.do(s.t, *id, func(row *claimRow, now int64) (driver.Answer, bool) {
			write, err := decideForget(row, hold, now)
			return driver.Answer{Err: err}, write
		})
	}) {
		errs[i] = ans.Err
	}
	return errs
}

// TestStoreDecides runs the suite that every Store must pass on the functions that decide, without
// a database.
func TestStoreDecides(t *testing.T) {
	d := &decider{checks: Store{maxResult: mostResult}, now: time.Now().UnixMicro(),
		rows: make(map[driver.ID]claimRow)}
	deduptest.Run(t, deduptest.Harness{
		New: func(t testing.TB) dedup.Store { return decidingStore{d, t} },
		Advance: func(by time.Duration) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.now += by.Microseconds()
		},
	})
}
