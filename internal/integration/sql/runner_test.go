package sql_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/httpadapter"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/pgxv5"
)

var _ httpadapter.Runner = (*sqladapter.Runner)(nil)

func (s *shop) runner(t *testing.T) *sqladapter.Runner {
	t.Helper()
	if s.pool != nil {
		r, err := pgxv5.Runner(s.marks, s.pool)
		require.NoError(t, err)
		return r
	}
	r, err := s.marks.Runner(s.db)
	require.NoError(t, err)
	return r
}

// writes returns an effect that writes to the ledger and returns an answer.
func (s *shop) writes(message, answer string, undo bool,
	after ...func(ctx context.Context, tx execTx) error) httpadapter.Effect {
	return func(ctx context.Context) ([]byte, bool, error) {
		tx, ok := s.txFrom(ctx)
		if !ok {
			return nil, false, errors.New("no transaction in the context")
		}
		if err := s.effect(ctx, tx, message); err != nil {
			return nil, false, err
		}
		for _, f := range after {
			if err := f(ctx, tx); err != nil {
				return nil, false, err
			}
		}
		return []byte(answer), undo, nil
	}
}

// txFrom is the transaction of a runner's effect, in the client that the engine has.
func (s *shop) txFrom(ctx context.Context) (execTx, bool) {
	if s.pool != nil {
		tx, ok := pgxv5.TxFrom(ctx)
		return pgxv5.Wrap(tx), ok
	}
	return sqladapter.TxFrom(ctx)
}

// inUse is how many connections the runner of the engine has.
func (s *shop) inUse() int {
	if s.pool != nil {
		return int(s.pool.Stat().AcquiredConns())
	}
	return s.db.Stats().InUse
}

func wantRun(t *testing.T, res dedup.Result[[]byte], err error, outcome driver.Outcome,
	value string) {
	t.Helper()
	require.NoError(t, err)
	assert.Equal(t, outcome, res.Outcome)
	assert.Equal(t, value, string(res.Value))
	assert.Equal(t, 1, res.Attempt)
}

// TestRunnerOnce: first, duplicate, undo, failure, panic, too large, empty, on every engine.
func TestRunnerOnce(t *testing.T) {
	forEachClient(t, func(t *testing.T, e engine) {
		s := newShop(t, e, func(c *sqladapter.Config) { c.ResultLimit = 1000 })
		r := s.runner(t)
		for _, want := range []driver.Outcome{dedup.Acquired, dedup.Duplicate} {
			res, err := r.Run(t.Context(), "m", s.writes("m", "receipt", false))
			wantRun(t, res, err, want, "receipt")
			res, err = r.Run(t.Context(), "refused", s.writes("refused", "no such account", true))
			wantRun(t, res, err, want, "no such account")
			res, err = r.Run(t.Context(), "empty", s.writes("empty", "", false))
			wantRun(t, res, err, want, "")
		}
		fails := func(want error, effect httpadapter.Effect) {
			t.Helper()
			res, err := r.Run(t.Context(), "bad", effect)
			assert.ErrorIs(t, err, want)
			assert.Nil(t, res.Value)
		}
		fail := func(context.Context, execTx) error { return errDomain }
		fails(errDomain, s.writes("bad", "x", false, fail))
		permanent := dedup.Permanent(errDomain)
		fails(permanent, s.writes("bad", "x", false, func(context.Context, execTx) error {
			return permanent
		}))
		func() {
			defer func() {
				v := recover()
				assert.Equal(t, "boom", v)
			}()
			_, err := r.Run(t.Context(), "bad",
				s.writes("bad", "x", false, func(context.Context, execTx) error { panic("boom") }))
			t.Errorf("panic: %v", err)
		}()
		var input *dedup.InputError
		_, err := r.Run(t.Context(), "bad",
			s.writes("bad", strings.Repeat("x", 1001), false))
		require.ErrorAs(t, err, &input, "too large")
		assert.Equal(t, "result", input.Field, "too large")
		s.wantMark(t, "bad", false)
		s.wantEffects(t, []string{"m", "empty"})
		res, err := r.Run(t.Context(), "bad", s.writes("bad", strings.Repeat("x", 1000), false))
		wantRun(t, res, err, dedup.Acquired, strings.Repeat("x", 1000))
		assert.Zero(t, s.inUse(), "connections are still in a transaction")
	})
}

// TestRunnerRecord: a duplicate gets the whole record; another payload is a mismatch; another scope
// is another key.
func TestRunnerRecord(t *testing.T) {
	forEachClient(t, func(t *testing.T, e engine) {
		s := newShop(t, e, func(c *sqladapter.Config) { c.Window = time.Hour })
		r := s.runner(t)
		body := dedup.WithFingerprint([]byte("body"))
		for _, want := range []driver.Outcome{dedup.Acquired, dedup.Duplicate} {
			res, err := r.Run(t.Context(), "m", s.writes("m", "r", false), body,
				dedup.WithScope("a"))
			wantRun(t, res, err, want, "r")
			rec := res.Record
			assert.False(t, want == dedup.Duplicate &&
				(rec.State != driver.StateSucceeded ||
					rec.Fingerprint != driver.FingerprintOf([]byte("body")) ||
					!bytes.Equal(rec.Result, res.Value) || rec.Remaining <= 0 ||
					rec.Remaining > time.Hour), "record %+v", rec)
		}
		res, err := r.Run(t.Context(), "m", s.writes("m", "other", false),
			dedup.WithFingerprint([]byte("other")), dedup.WithScope("a"))
		assert.ErrorIs(t, err, dedup.ErrMismatch, "another payload")
		assert.False(t, dedup.IsPermanent(err), "another payload")
		assert.Equal(t, dedup.Mismatch, res.Outcome, "another payload")
		assert.Nil(t, res.Value, "another payload")
		s.wantEffects(t, []string{"m"})
		res, err = r.Run(t.Context(), "m", s.writes("in b", "b", false), dedup.WithScope("b"))
		wantRun(t, res, err, dedup.Acquired, "b")
	})
}

// TestRunnerCrowd: of 200 equal calls one runs, and the others hold none of the five connections.
func TestRunnerCrowd(t *testing.T) {
	forEachClient(t, func(t *testing.T, e engine) {
		s := newShop(t, e)
		s.db.SetMaxOpenConns(5)
		r := s.runner(t)
		const callers = 200
		var effects, inFlight atomic.Int64
		var all, refused sync.WaitGroup
		refused.Add(callers - 1)
		for range callers {
			all.Go(func() {
				res, err := r.Run(t.Context(), "m",
					func(ctx context.Context) ([]byte, bool, error) {
						effects.Add(1)
						refused.Wait()
						assert.Equal(t, 1, s.inUse(), "connections are in use")
						return s.writes("m", "receipt", false)(ctx)
					})
				if err != nil {
					defer refused.Done()
				}
				if errors.Is(err, dedup.ErrInFlight) && res.Outcome == dedup.InFlight &&
					res.Record.Remaining == 0 {
					inFlight.Add(1)
					return
				}
				wantRun(t, res, err, dedup.Acquired, "receipt")
			})
		}
		all.Wait()
		assert.EqualValues(t, 1, effects.Load())
		assert.EqualValues(t, callers-1, inFlight.Load())
		for range callers {
			all.Go(func() {
				res, err := r.Run(t.Context(), "m", s.writes("m", "again", false))
				if !errors.Is(err, dedup.ErrInFlight) {
					wantRun(t, res, err, dedup.Duplicate, "receipt")
				}
			})
		}
		all.Wait()
		s.wantEffects(t, []string{"m"})
	})
}

// TestRunnerNested: a run of the same key inside its own effect would wait for itself.
func TestRunnerNested(t *testing.T) {
	forEachClient(t, func(t *testing.T, e engine) {
		s := newShop(t, e)
		r := s.runner(t)
		res, err := r.Run(t.Context(), "m",
			s.writes("m", "outer", false, func(ctx context.Context, _ execTx) error {
				_, err := r.Run(ctx, "m", s.writes("inner", "inner", false))
				assert.ErrorIs(t, err, dedup.ErrInFlight, "inside")
				return nil
			}))
		wantRun(t, res, err, dedup.Acquired, "outer")
		s.wantEffects(t, []string{"m"})
	})
}

// waits reads the lock timeout of a connection from the database.
func waits(t *testing.T, s *shop, q interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}) (value string) {
	t.Helper()
	query := `SELECT current_setting('lock_timeout')`
	if s.dialect == sqladapter.MySQL {
		query = `SELECT @@innodb_lock_wait_timeout`
	}
	assert.NoError(t, q.QueryRowContext(t.Context(), query).Scan(&value))
	return value
}

// TestRunnerLockTimeout: another process holds the key. The mark does not wait for long. The
// effect and the next user of the connection have the timeout that was set before.
func TestRunnerLockTimeout(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		if e.dialect == sqladapter.SQLite {
			return // see TestRunnerBesideAWriter
		}
		s := newShop(t, e,
			func(c *sqladapter.Config) { c.LockTimeout = 50 * time.Millisecond })
		holder := begin(t, s.db, sql.LevelDefault)
		_, err := s.marks.MarkTx(t.Context(), holder, "held")
		require.NoError(t, err)
		own := *s
		own.db = e.open(t)
		own.db.SetMaxOpenConns(1)
		set := `SET lock_timeout = '43s'`
		if e.dialect == sqladapter.MySQL {
			set = `SET innodb_lock_wait_timeout = 43`
		}
		_, err = own.db.ExecContext(t.Context(), set)
		require.NoError(t, err)
		before := waits(t, s, own.db)
		r, err := s.marks.Runner(own.db)
		require.NoError(t, err)
		res, err := r.Run(t.Context(), "held", s.writes("held", "x", false))
		assert.ErrorIs(t, err, dedup.ErrInFlight, "held")
		assert.Equal(t, dedup.InFlight, res.Outcome, "held")
		assert.Zero(t, res.Record.Remaining, "held")
		assert.Equal(t, before, waits(t, s, own.db), "after the refusal the connection waits")
		res, err = r.Run(t.Context(), "m",
			s.writes("m", "receipt", false, func(_ context.Context, tx execTx) error {
				assert.Equal(t, before, waits(t, s, tx.(*sql.Tx)),
					"in the effect the connection waits")
				return nil
			}))
		wantRun(t, res, err, dedup.Acquired, "receipt")
		assert.Equal(t, before, waits(t, s, own.db), "after it the connection waits")
		assert.NoError(t, holder.Rollback())
		res, err = r.Run(t.Context(), "held", s.writes("held", "late", false))
		wantRun(t, res, err, dedup.Acquired, "late")
		s.wantEffects(t, []string{"m", "held"})
	})
}

// TestRunnerBesideAWriter: SQLite has one writer. A file that is busy is not a key in flight.
func TestRunnerBesideAWriter(t *testing.T) {
	file := t.TempDir() + "/marks.db"
	s := newShop(t, engine{name: "sqlite/impatient", dialect: sqladapter.SQLite,
		open: func(t *testing.T) *sql.DB {
			return openDB(t, "sqlite",
				"file:"+file+"?_txlock=immediate&_pragma=busy_timeout(1)&_pragma=journal_mode(WAL)")
		}})
	r := s.runner(t)
	res, err := r.Run(t.Context(), "m",
		s.writes("m", "receipt", false, func(ctx context.Context, _ execTx) error {
			res, err := r.Run(ctx, "other", s.writes("other", "x", false))
			assert.True(t, sqladapter.Retryable(err), "next to a writer")
			assert.NotErrorIs(t, err, dedup.ErrInFlight, "next to a writer")
			assert.Equal(t, dedup.Unknown, res.Outcome, "next to a writer")
			assert.False(t, dedup.OutcomeUnknown(err), "next to a writer")
			return nil
		}))
	wantRun(t, res, err, dedup.Acquired, "receipt")
	s.wantEffects(t, []string{"m"})
}

// TestRunnerLeavesItsCaller: a caller that leaves ends only a run that has not begun.
func TestRunnerLeavesItsCaller(t *testing.T) {
	forEachClient(t, func(t *testing.T, e engine) {
		s := newShop(t, e)
		r := s.runner(t)
		type name struct{}
		gone, cancel := context.WithCancelCause(context.WithValue(t.Context(), name{}, "tenant"))
		why := errors.New("the client has gone")
		res, err := r.Run(gone, "m",
			s.writes("m", "receipt", false, func(ctx context.Context, _ execTx) error {
				cancel(why)
				require.NoError(t, ctx.Err())
				assert.Equal(t, "tenant", ctx.Value(name{}), "the effect's context")
				return nil
			}))
		wantRun(t, res, err, dedup.Acquired, "receipt")
		_, err = r.Run(gone, "late", s.writes("late", "x", false))
		assert.ErrorIs(t, err, why, "the caller has left")
		s.wantEffects(t, []string{"m"})
	})
}

// TestRunnerUnderHTTP: a recorded failure stays, and the writes of its handler are rolled back.
func TestRunnerUnderHTTP(t *testing.T) {
	s := newShop(t, sqlite())
	r := s.runner(t)
	_, err := httpadapter.New(r, httpadapter.Unscoped,
		httpadapter.Config{Keep: httpadapter.KeepStripeV2})
	assert.Error(t, err, "KeepStripeV2 is taken, although this Runner undoes its writes")
	m, err := httpadapter.New(r, httpadapter.Unscoped, httpadapter.Config{})
	require.NoError(t, err)
	h := m.Handler(s.payments(t))
	for i, want := range []string{"", "true"} {
		for _, status := range []int{201, 422} {
			key := fmt.Sprintf("key-%d", status)
			w := pay(h, key, status)
			assert.Equal(t, status, w.Code, "round %d", i)
			assert.Equal(t, want, w.Header().Get("Idempotent-Replayed"), "round %d", i)
			assert.Equal(t, key, w.Body.String(), "round %d", i)
		}
		w := pay(h, "key-500", 500)
		assert.Equal(t, 500, w.Code, "round %d", i)
		assert.Empty(t, w.Header().Get("Idempotent-Replayed"), "round %d", i)
	}
	s.wantEffects(t, []string{"key-201"})
}

// TestPanicUnderHTTP: a handler panics after it has begun a 201. Its transaction is rolled back,
// and the retry runs. Without a transaction the request would count as done.
func TestPanicUnderHTTP(t *testing.T) {
	s := newShop(t, sqlite())
	m, err := httpadapter.New(s.runner(t), httpadapter.Unscoped, httpadapter.Config{})
	require.NoError(t, err)
	angry := true
	h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.payments(t).ServeHTTP(w, r)
		if angry {
			panic(http.ErrAbortHandler)
		}
	}))
	func() {
		defer func() {
			v := recover()
			assert.Equal(t, any(http.ErrAbortHandler), v)
		}()
		pay(h, "key", 201)
	}()
	s.wantEffects(t, nil)
	angry = false
	for _, want := range []string{"", "true"} {
		w := pay(h, "key", 201)
		assert.Equal(t, 201, w.Code)
		assert.Equal(t, want, w.Header().Get("Idempotent-Replayed"))
	}
	s.wantEffects(t, []string{"key"})
}

// TestRunnerIsRefused: a wrong configuration is refused before anything is sent.
func TestRunnerIsRefused(t *testing.T) {
	s := newShop(t, sqlite())
	var input *dedup.InputError
	_, err := s.marks.Runner(nil)
	require.ErrorAs(t, err, &input)
	assert.Equal(t, "db", input.Field)
	_, err = s.runner(t).Run(t.Context(), "", s.writes("m", "x", false))
	require.ErrorAs(t, err, &input)
	assert.Equal(t, "key", input.Field)
	assert.False(t, dedup.IsPermanent(err), "%v", err)
	_, err = s.runner(t).Run(t.Context(), "m", nil)
	require.ErrorAs(t, err, &input)
	assert.Equal(t, "effect", input.Field)
}
