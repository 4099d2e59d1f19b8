package sql_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/sqlstore"
)

// BenchmarkStore counts keys: fresh ones are claimed and completed, in a batch each, and
// duplicates are claimed.
func BenchmarkStore(b *testing.B) {
	const batch = 256
	for _, e := range storeEngines() {
		for _, workers := range []int{1, 8} {
			b.Run(fmt.Sprintf("%s/fresh/%d", e.name, workers), func(b *testing.B) {
				store := benchStore(b, e, workers)
				eachBatch(b, workers, batch, func(reqs []driver.ClaimRequest) error {
					return claimAndComplete(store, reqs)
				})
			})
			b.Run(fmt.Sprintf("%s/duplicate/%d", e.name, workers), func(b *testing.B) {
				store := benchStore(b, e, workers)
				done := newClaims(batch)
				if err := claimAndComplete(store, done); err != nil {
					b.Fatal(err)
				}
				eachBatch(b, workers, batch, func([]driver.ClaimRequest) error {
					return firstError(store.Claim(context.Background(), done))
				})
			})
		}
	}
}

func benchStore(b *testing.B, e storeEngine, workers int) *sqlstore.Store {
	b.Helper()
	store, db, _ := openStore(b, e)
	db.SetMaxOpenConns(workers)
	if e.dialect == sqladapter.SQLite {
		db.SetMaxOpenConns(1)
	}
	db.SetMaxIdleConns(workers)
	return store
}

// eachBatch lets workers run batches of new claims until the benchmark has seen its keys.
func eachBatch(b *testing.B, workers, batch int, run func([]driver.ClaimRequest) error) {
	b.Helper()
	var mu sync.Mutex
	left := b.N
	more := func() bool {
		mu.Lock()
		defer mu.Unlock()
		left -= batch
		return left > -batch
	}
	b.ResetTimer()
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for more() {
				if err := run(newClaims(batch)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "keys/s")
}

func newClaims(n int) []driver.ClaimRequest {
	reqs := make([]driver.ClaimRequest, n)
	for i := range reqs {
		reqs[i] = driver.ClaimRequest{ID: randomID(), Token: randomToken(), Lease: time.Minute,
			Hold: time.Hour}
	}
	return reqs
}

func claimAndComplete(store dedup.Store, reqs []driver.ClaimRequest) error {
	if err := firstError(store.Claim(context.Background(), reqs)); err != nil {
		return err
	}
	changes := make([]driver.Finish, len(reqs))
	for i, r := range reqs {
		changes[i] = driver.Finish{ID: r.ID, Token: r.Token, State: driver.StateSucceeded,
			Window: 72 * time.Hour, EffectApplied: true}
	}
	return firstError(store.Finish(context.Background(), changes))
}

func firstError(answers []driver.Answer) error {
	for _, a := range answers {
		if a.Err != nil {
			return a.Err
		}
	}
	return nil
}
