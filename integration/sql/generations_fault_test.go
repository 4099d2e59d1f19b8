package sql_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/sqladapter"
)

// TestHangingTransaction: one that has marked and does not end keeps its generation open. The
// others are held up while a rotation waits for its lock, and only then.
func TestHangingTransaction(t *testing.T) {
	s := newShop(t, inGenerations(postgres("cache_statement")))
	hanging := begin(t, s.db, sql.LevelDefault)
	if _, err := s.marks.MarkTx(t.Context(), hanging, "hanging"); err != nil {
		t.Fatal(err)
	}
	s.windowPassed(t, 1)
	s.wantFirst(t, "due", true)

	stop := make(chan struct{})
	slowest, marked := make([]time.Duration, 4), make([]int, 4)
	var wg sync.WaitGroup
	for w := range slowest {
		wg.Go(func() {
			for ; ; marked[w]++ {
				select {
				case <-stop:
					return
				default:
				}
				began := time.Now()
				if first, err := s.deliver(t.Context(), fmt.Sprint(w, " ", marked[w]), nil); err != nil || !first {
					t.Errorf("beside a hanging transaction: %v, %v", first, err)
					return
				}
				slowest[w] = max(slowest[w], time.Since(began))
			}
		})
	}
	began := time.Now()
	sealed, err := s.marks.Rotate(t.Context(), s.db)
	took := time.Since(began)
	close(stop)
	wg.Wait()
	if sealed || !sqladapter.Retryable(err) {
		t.Errorf("Rotate = %v, %v; want a retryable error", sealed, err)
	}
	t.Logf("%d marks while Rotate tried for %v; the slowest took %v", sum(marked), took, slices.Max(slowest))
	// The last try waits for 400 ms. The rest is for a slow machine.
	if worst := slices.Max(slowest); worst > 400*time.Millisecond+time.Second || sum(marked) < 20 {
		t.Errorf("a mark took %v, %d were made", worst, sum(marked))
	}
	if err := hanging.Commit(); err != nil {
		t.Fatal(err)
	}
	s.rotate(t, true)
	s.wantFirst(t, "hanging", false)
}

func sum(ns []int) (total int) {
	for _, n := range ns {
		total += n
	}
	return total
}

// newFaultyRotator rotates over a connection with a name of its own, which a teller listens to.
func newFaultyRotator(t *testing.T, s *shop, tell teller) (rotator *shop, name string) {
	t.Helper()
	name = servertest.Prefix(t)
	u, err := url.Parse(postgresURL(t, servertest.Postgres(t), "exec"))
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("application_name", name)
	u.RawQuery = q.Encode()
	other := *s
	other.db = openTold(t, "pgx", u.String(), tell)
	return &other, name
}

// TestRotatorKilled: the session of a rotator is ended before and after each of its statements.
// Either it has rotated or it has not; marks go on, and the next call finishes the job.
func TestRotatorKilled(t *testing.T) {
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
	if !slices.ContainsFunc(all, func(step string) bool { return strings.Contains(step, "ALTER TABLE") }) {
		t.Fatal("nothing is renamed")
	}
	failed := 0
	for die = range all {
		for _, when = range []string{"before", "after"} {
			generation++
			due()
			if _, err := rotator.marks.Rotate(t.Context(), rotator.db); err != nil {
				if failed++; !sqladapter.Retryable(err) {
					t.Errorf("killed %s %q: %v, want a retryable error", when, all[die], err)
				}
			}
			for _, message := range []string{"old ", "new "} {
				s.wantFirst(t, fmt.Sprint(message, generation), false)
			}
			if _, err := s.marks.Rotate(t.Context(), s.db); err != nil {
				t.Fatal(err)
			}
			if tables := s.relations(t, "r"); len(tables) != 5 || !slices.Contains(tables, strings.Trim(s.open(generation+1), `"`)) {
				t.Fatalf("killed %s %q: left are %q", when, all[die], tables)
			}
		}
	}
	if failed < len(all) {
		t.Errorf("%d of %d rotations failed", failed, 2*len(all))
	}
}

// terminateAll ends the sessions of this name.
func terminateAll(t *testing.T, admin *sql.DB, name string) {
	t.Helper()
	if _, err := admin.ExecContext(t.Context(), `SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = $1`, name); err != nil {
		t.Error(err)
	}
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
	if mark, err := s.do(ctx, "m"); err != nil || mark.Outcome != dedup.Acquired {
		t.Errorf("a mark beside a frozen rotator: %v, %v", mark.Outcome, err)
	}
	t.Logf("it took %v", time.Since(began))
	close(thaw)
	if err := <-answer; !sqladapter.Retryable(err) {
		t.Errorf("Rotate = %v, want a retryable error", err)
	}
	s.rotate(t, true)
	s.wantFirst(t, "m", false)
}
