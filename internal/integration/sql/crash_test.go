package sql_test

import (
	"database/sql"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/sqladapter"
)

// terminate ends the session and waits until it is gone, at most for ten seconds.
func terminate(t *testing.T, admin *sql.DB, pid int) {
	t.Helper()
	_, err := admin.ExecContext(t.Context(), `SELECT pg_terminate_backend($1::int, 10000)`,
		pid)
	assert.NoError(t, err)
}

// TestKilledBackend: a connection that dies after mark and effect leaves neither.
func TestKilledBackend(t *testing.T) {
	forEachPostgres(t, func(t *testing.T, e engine) {
		s := newShop(t, e)
		_, err := s.deliver(t.Context(), "m", func(tx *sql.Tx) {
			var pid int
			err := tx.QueryRowContext(t.Context(),
				`SELECT pg_backend_pid()`).Scan(&pid)
			assert.NoError(t, err)
			terminate(t, s.db, pid)
		})
		require.True(t, sqladapter.Retryable(err),
			"commit on a killed connection: %v, want a retryable error", err)
		s.wantMark(t, "m", false)
		s.wantEffects(t, nil)
		first, err := s.redeliver(t.Context(), "m")
		require.NoError(t, err)
		require.True(t, first, "redelivery")
		s.wantEffects(t, []string{"m"})
	})
}

// TestStormOfKills: 8 workers get the same messages; one transaction in five is killed,
// half of those while its COMMIT is under way, when nobody can know how it ends.
func TestStormOfKills(t *testing.T) {
	forEachPostgres(t, func(t *testing.T, e engine) {
		admin := e.open(t) // opened before the shop, so that it is closed after it
		s := newShop(t, e)
		all := messages(20)
		var kills, failures atomic.Int64
		var wg sync.WaitGroup
		for w := range 8 {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(3, uint64(w)))
				for _, message := range all {
					failed, killed := s.deliverUnderKills(t, admin, rng, message)
					failures.Add(failed)
					kills.Add(killed)
				}
			})
		}
		wg.Wait()
		s.db = admin // the other pool may hold connections that are dead
		s.wantEffects(t, all)
		assert.NotZero(t, kills.Load())
		assert.NotZero(t, failures.Load())
		t.Logf("%d kills, %d failed deliveries", kills.Load(), failures.Load())
	})
}

func (s *shop) deliverUnderKills(t *testing.T, admin *sql.DB, rng *rand.Rand,
	message string) (failed, killed int64) {
	for range maxDeliveries {
		var killer sync.WaitGroup
		fate := rng.IntN(10)
		_, err := s.deliver(t.Context(), message, func(tx *sql.Tx) {
			var pid int
			if fate > 1 || tx.QueryRowContext(t.Context(),
				`SELECT pg_backend_pid()`).Scan(&pid) != nil {
				return // not this time, or already dead
			}
			killed++
			if fate == 0 {
				terminate(t, admin, pid)
			} else {
				killer.Go(func() { terminate(t, admin, pid) })
			}
		})
		killer.Wait()
		if err == nil {
			return failed, killed
		}
		// A pooled connection may be found dead by the next delivery: that counts too.
		failed++
		if !assert.True(t, sqladapter.Retryable(err), "%q: %v is not retryable", message, err) {
			return failed, killed
		}
	}
	t.Errorf("%q: no delivery of %d succeeded", message, maxDeliveries)
	return failed, killed
}
