package sql_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/sqladapter"
)

// TestHangingTransaction: a transaction that has marked and does not end keeps its generation open.
// Other transactions wait only while a rotation waits for its lock.
func TestHangingTransaction(t *testing.T) {
	s := newShop(t, inGenerations(postgres("cache_statement")))
	hanging := begin(t, s.db, sql.LevelDefault)
	_, err := s.marks.MarkTx(t.Context(), hanging, "hanging")
	require.NoError(t, err)
	s.windowPassed(t, 1)
	s.wantFirst(t, "due", true)

	// Rotate waits for 400 ms at most in its last try; the other second is for a slow machine. A
	// machine that is too slow for this limit gets another round, for up to a minute.
	for began := time.Now(); ; {
		made, worst := s.besideRotate(t)
		if made >= 20 && worst <= 400*time.Millisecond+time.Second {
			break
		}
		require.False(t, t.Failed(), "never: the last time %d marks were made, and one took %v",
			made, worst)
		require.LessOrEqual(t, time.Since(began), time.Minute,
			"never: the last time %d marks were made, and one took %v", made, worst)
	}
	require.NoError(t, hanging.Commit())
	s.rotate(t, true)
	s.wantFirst(t, "hanging", false)
}

// besideRotate calls Rotate, which does not get its lock, and marks all the while. It returns how
// many marks were made, and how long the slowest took.
func (s *shop) besideRotate(t *testing.T) (made int, worst time.Duration) {
	t.Helper()
	stop := make(chan struct{})
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				began := time.Now()
				first, err := s.deliver(t.Context(), rand.Text(), nil)
				if !assert.NoError(t, err) || !assert.True(t, first) {
					return
				}
				mu.Lock()
				made, worst = made+1, max(worst, time.Since(began))
				mu.Unlock()
			}
		})
	}
	began := time.Now()
	sealed, err := s.rotated(t.Context())
	took := time.Since(began)
	close(stop)
	wg.Wait()
	assert.False(t, sealed, "%v", sealed)
	assert.True(t, sqladapter.Retryable(err), "%v", err)
	t.Logf("%d marks while Rotate tried for %v; the slowest took %v", made, took, worst)
	return made, worst
}

// newFaultyRotator returns a shop whose sessions have a name of their own, and that name. Its
// statements pass through intercept.
func newFaultyRotator(t *testing.T, s *shop, intercept interceptor) (rotator *shop, name string) {
	t.Helper()
	name = servertest.Prefix(t)
	u, err := url.Parse(postgresURL(t, servertest.Postgres(t), "exec"))
	require.NoError(t, err)
	q := u.Query()
	q.Set("application_name", name)
	u.RawQuery = q.Encode()
	other := *s
	other.db = openIntercepted(t, "pgx", u.String(), intercept)
	return &other, name
}

// TestRotatorKilled: the session of a rotator is ended before and after each of its statements.
// Either it has rotated or it has not. Workers can still mark, and the next call of Rotate finishes
// the job.
func TestRotatorKilled(t *testing.T) {
	t.Parallel()
	s := newShop(t, inGenerations(postgres("cache_statement")))
	var steps []string
	die, when, name := -1, "", ""
	rotator, name := newFaultyRotator(t, s, func(what string, do func() error) error {
		step := len(steps)
		steps = append(steps, what)
		if step == die && when == "before" {
			terminateAll(t, s.db, name)
		}
		err := do()
		if step == die && when == "after" {
			terminateAll(t, s.db, name)
		}
		return err
	})
	generation := 1
	due := func() {
		t.Helper()
		s.wantFirst(t, fmt.Sprint("old ", generation), true)
		s.windowPassed(t, generation)
		s.wantFirst(t, fmt.Sprint("new ", generation), true)
		steps = nil
	}
	due()
	rotator.rotate(t, true)
	all := slices.Clone(steps)
	t.Logf("%d statements: %s", len(all), strings.Join(all, ", "))
	require.True(t, slices.ContainsFunc(all, func(step string) bool {
		return strings.Contains(step, "ALTER TABLE")
	}), "nothing is renamed")
	failed := 0
	for die = range all {
		for _, when = range []string{"before", "after"} {
			generation++
			due()
			if _, err := rotator.marks.Rotate(t.Context(), rotator.db); err != nil {
				failed++
				assert.True(t, sqladapter.Retryable(err), "killed %s %q: %v", when, all[die], err)
			}
			for _, message := range []string{"old ", "new "} {
				s.wantFirst(t, fmt.Sprint(message, generation), false)
			}
			_, err := s.rotated(t.Context())
			require.NoError(t, err)
			tables := s.relations(t, "r")
			require.Len(t, tables, 5, "killed %s %q: left", when, all[die])
			require.Contains(t, tables, strings.Trim(s.open(generation+1), `"`),
				"killed %s %q: left", when, all[die])
		}
	}
	assert.GreaterOrEqual(t, failed, len(all), "%d of %d rotations failed", failed, 2*len(all))
}

// terminateAll ends the sessions of this name.
func terminateAll(t *testing.T, admin *sql.DB, name string) {
	t.Helper()
	_, err := admin.ExecContext(t.Context(),
		`SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = $1`,
		name)
	assert.NoError(t, err)
}

// TestRotatorFrozen: a rotator that stops when it holds the lock is cut off by the server.
func TestRotatorFrozen(t *testing.T) {
	s := newShop(t, inGenerations(postgres("cache_statement")))
	frozen, thaw := make(chan struct{}), make(chan struct{})
	var once sync.Once
	rotator, _ := newFaultyRotator(t, s, func(what string, do func() error) error {
		if strings.Contains(what, "UPDATE") { // what follows the rename
			once.Do(func() { close(frozen); <-thaw })
		}
		return do()
	})
	s.windowPassed(t, 1)
	s.wantFirst(t, "due", true)
	answer := make(chan error)
	go func() {
		_, err := rotator.marks.Rotate(t.Context(), rotator.db)
		answer <- err
	}()
	<-frozen
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	mark, err := s.do(ctx, "m")
	require.NoError(t, err)
	assert.Equal(t, dedup.Acquired, mark.Outcome, "a mark next to a frozen rotator")
	t.Logf("it took %v", time.Since(began))
	close(thaw)
	err = <-answer
	assert.True(t, sqladapter.Retryable(err), "Rotate = %v, want a retryable error", err)
	s.rotate(t, true)
	s.wantFirst(t, "m", false)
}
