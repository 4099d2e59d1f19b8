package deduptest

import (
	"context"

	"github.com/onceward/onceward/dedup/driver"
)

// eachListed changes the pages of a list.
func eachListed(bend func(u *driver.UncertainRecord)) func(*broken) {
	return func(b *broken) {
		b.list = func(ctx context.Context, cursor string, limit int) ([]driver.UncertainRecord,
			string, error) {
			page, next, err := b.Store.(driver.Resolvable).Uncertain(ctx, cursor, limit)
			for i := range page {
				bend(&page[i])
			}
			return page, next, err
		}
	}
}

// eachAsked changes the answer to a claim of an uncertain key.
func eachAsked(bend func(a *driver.Answer)) func(*broken) {
	return func(b *broken) {
		b.ask = func(ctx context.Context, req driver.ClaimRequest) driver.Answer {
			a := b.Store.(driver.Resolvable).ClaimUncertain(ctx, req)
			bend(&a)
			return a
		}
	}
}

var resolvableMutants = []mutant{
	{"the first page is all of the list", func(b *broken) {
		b.list = func(ctx context.Context, cursor string, limit int) ([]driver.UncertainRecord,
			string, error) {
			page, _, err := b.Store.(driver.Resolvable).Uncertain(ctx, cursor, limit)
			return page, "", err
		}
	}, []string{"uncertain/listed"}},

	{"live keys are listed, too", func(b *broken) {
		known := new(owners)
		b.claim = func(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
			return known.note(reqs, b.Store.Claim(ctx, reqs))
		}
		b.list = func(ctx context.Context, cursor string, limit int) ([]driver.UncertainRecord,
			string, error) {
			page, next, err := b.Store.(driver.Resolvable).Uncertain(ctx, cursor, limit)
			known.mu.Lock()
			defer known.mu.Unlock()
			for id := range known.by {
				page = append(page, driver.UncertainRecord{ID: id,
					Record: b.Store.Lookup(ctx, []driver.ID{id})[0].Record})
			}
			return page, next, err
		}
	}, []string{"uncertain/listed"}},

	{"a list with the claim's state", eachListed(func(u *driver.UncertainRecord) {
		u.Record.State = driver.StateInProgress
	}), []string{"uncertain/listed"}},

	{"asks are not counted", eachListed(func(u *driver.UncertainRecord) { u.Asked = 0 }),
		[]string{"uncertain/asked"}},

	{"to ask is an attempt", func(b *broken) {
		b.ask = func(ctx context.Context, req driver.ClaimRequest) driver.Answer {
			req.TakeUncertain = true
			return b.Store.Claim(ctx, []driver.ClaimRequest{req})[0]
		}
	}, []string{"uncertain/asked"}},

	{"two may ask", eachAsked(func(a *driver.Answer) {
		if a.Outcome == driver.InFlight && a.Record.Irreversible {
			a.Outcome = driver.Acquired
		}
	}), []string{"uncertain/asked"}},
}
