package dedup

import (
	"bytes"
	"context"
	"encoding/hex"
	"slices"
	"time"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/internal/ctxend"
)

// memoryPage is how many uncertain keys a page has by default.
const memoryPage = 100

// Uncertain implements [driver.Resolvable]. It looks at every key that the store holds.
func (s *memoryStore) Uncertain(ctx context.Context, cursor string,
	limit int) (page []driver.UncertainRecord, next string, err error) {
	after, err := hex.DecodeString(cursor)
	switch {
	case ctx.Err() != nil:
		return nil, "", ctxend.Error(ctx)
	case err != nil || len(after) != 0 && len(after) != len(driver.ID{}):
		return nil, "", &InputError{Field: "cursor", Reason: "is not of a page"}
	case limit <= 0:
		limit = memoryPage
	}
	s.run(func(now time.Duration) {
		for id, rec := range s.records {
			if rec.expires > now && rec.uncertain(now) && bytes.Compare(id[:], after) > 0 {
				page = append(page, rec.doubt(now))
			}
		}
	})
	slices.SortFunc(page, func(a, b driver.UncertainRecord) int {
		return bytes.Compare(a.ID[:], b.ID[:])
	})
	if len(page) > limit {
		page = page[:limit]
		next = hex.EncodeToString(page[limit-1].ID[:])
	}
	return page, next, nil
}

// doubt makes the entry of an uncertain key in a list.
func (r *memoryRecord) doubt(now time.Duration) driver.UncertainRecord {
	u := driver.UncertainRecord{ID: r.id, Record: r.view(now), Asked: r.asked, Age: now - r.since,
		Rested: now - r.leaseEnd}
	u.Record.Steps = bytes.Clone(u.Record.Steps)
	if r.state == driver.StateUncertain {
		u.Rested = now - r.ended
	}
	return u
}

// ClaimUncertain implements [driver.Resolvable].
func (s *memoryStore) ClaimUncertain(ctx context.Context, req driver.ClaimRequest) driver.Answer {
	return memoryBatch(ctx, s, []driver.ClaimRequest{req}, s.claimUncertain)[0]
}

func (s *memoryStore) claimUncertain(req *driver.ClaimRequest, now time.Duration) driver.Answer {
	rec := s.find(req.ID, now)
	switch {
	case rec != nil && (terminal(rec.state) || rec.heldBy(req.Token)):
		return s.claim(req, now)
	case rec == nil || !rec.uncertain(now):
		if err := req.Check(); err != nil {
			return driver.Answer{Err: err}
		}
		return driver.Answer{Outcome: InFlight, Record: rec.view(now)}
	}
	taken := *req
	taken.TakeUncertain, taken.OnlyNew = true, false
	attempt, origin, label := rec.attempt, rec.origin, rec.label
	ans := s.claim(&taken, now)
	if ans.Outcome == Acquired {
		rec.attempt, rec.origin, rec.label = attempt, origin, label
		ans.Record = rec.view(now)
	}
	return ans
}
