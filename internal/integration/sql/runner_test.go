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

// writes is an effect that writes to the ledger and answers.
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
	if err != nil || res.Outcome != outcome || string(res.Value) != value || res.Attempt != 1 {
		t.Errorf("Run = %v %q, attempt %d, %v; want %v %q", res.Outcome, res.Value, res.Attempt,
			err, outcome, value)
	}
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
			if res, err := r.Run(t.Context(), "bad", effect); !errors.Is(err, want) ||
				res.Value != nil {
				t.Errorf("Run = %q, %v; want %v", res.Value, err, want)
			}
		}
		fail := func(context.Context, execTx) error { return errDomain }
		fails(errDomain, s.writes("bad", "x", false, fail))
		permanent := dedup.Permanent(errDomain)
		fails(permanent, s.writes("bad", "x", false, func(context.Context, execTx) error {
			return permanent
		}))
		func() {
			defer func() {
				if v := recover(); v != "boom" {
					t.Errorf("recovered %v", v)
				}
			}()
			_, err := r.Run(t.Context(), "bad",
				s.writes("bad", "x", false, func(context.Context, execTx) error { panic("boom") }))
			t.Errorf("panic: %v", err)
		}()
		var input *dedup.InputError
		if _, err := r.Run(t.Context(), "bad",
			s.writes("bad", strings.Repeat("x", 1001), false)); !errors.As(err, &input) ||
			input.Field != "result" {
			t.Errorf("too large: %v", err)
		}
		s.wantMark(t, "bad", false)
		s.wantEffects(t, []string{"m", "empty"})
		res, err := r.Run(t.Context(), "bad", s.writes("bad", strings.Repeat("x", 1000), false))
		wantRun(t, res, err, dedup.Acquired, strings.Repeat("x", 1000))
		if n := s.inUse(); n != 0 {
			t.Errorf("%d connections are still in a transaction", n)
		}
	})
}

// TestRunnerRecord: what is found beside the result, scope, and a key of another payload.
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
			if want == dedup.Duplicate &&
				(rec.State != driver.StateSucceeded ||
					rec.Fingerprint != driver.FingerprintOf([]byte("body")) ||
					!bytes.Equal(rec.Result, res.Value) || rec.Remaining <= 0 ||
					rec.Remaining > time.Hour) {
				t.Errorf("record %+v", rec)
			}
		}
		res, err := r.Run(t.Context(), "m", s.writes("m", "other", false),
			dedup.WithFingerprint([]byte("other")), dedup.WithScope("a"))
		if !errors.Is(err, dedup.ErrMismatch) || dedup.IsPermanent(err) ||
			res.Outcome != dedup.Mismatch || res.Value != nil {
			t.Errorf("another payload: %v %q, %v", res.Outcome, res.Value, err)
		}
		s.wantEffects(t, []string{"m"})
		res, err = r.Run(t.Context(), "m", s.writes("in b", "b", false), dedup.WithScope("b"))
		wantRun(t, res, err, dedup.Acquired, "b")
	})
}

// TestRunnerCrowd: of 200 equal calls one goes on, and the others hold no connection of the five.
func TestRunnerCrowd(t *testing.T) {
	forEachClient(t, func(t *testing.T, e engine) {
		s := newShop(t, e)
		s.db.SetMaxOpenConns(5)
		r := s.runner(t)
		const crowd = 200
		var effects, inFlight atomic.Int64
		var all, refused sync.WaitGroup
		refused.Add(crowd - 1)
		for range crowd {
			all.Go(func() {
				res, err := r.Run(t.Context(), "m",
					func(ctx context.Context) ([]byte, bool, error) {
						effects.Add(1)
						refused.Wait()
						if n := s.inUse(); n != 1 {
							t.Errorf("%d connections are in use", n)
						}
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
		if effects.Load() != 1 || inFlight.Load() != crowd-1 {
			t.Errorf("%d effects, %d in flight", effects.Load(), inFlight.Load())
		}
		for range crowd {
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

// TestRunnerNested: the same key inside its own effect would wait for itself.
func TestRunnerNested(t *testing.T) {
	forEachClient(t, func(t *testing.T, e engine) {
		s := newShop(t, e)
		r := s.runner(t)
		res, err := r.Run(t.Context(), "m",
			s.writes("m", "outer", false, func(ctx context.Context, _ execTx) error {
				if _, err := r.Run(ctx, "m", s.writes("inner", "inner", false)); !errors.Is(err,
					dedup.ErrInFlight) {
					t.Errorf("inside: %v", err)
				}
				return nil
			}))
		wantRun(t, res, err, dedup.Acquired, "outer")
		s.wantEffects(t, []string{"m"})
	})
}

// waits reads the lock timeout of a connection, as the database tells it.
func waits(t *testing.T, s *shop, q interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}) (value string) {
	t.Helper()
	query := `SELECT current_setting('lock_timeout')`
	if s.dialect == sqladapter.MySQL {
		query = `SELECT @@innodb_lock_wait_timeout`
	}
	if err := q.QueryRowContext(t.Context(), query).Scan(&value); err != nil {
		t.Error(err)
	}
	return value
}

// TestRunnerLockTimeout: another process holds the key. The mark does not wait for long, and the
// effect, and who gets the connection next, have the timeout that they had.
func TestRunnerLockTimeout(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		if e.dialect == sqladapter.SQLite {
			return // see TestRunnerBesideAWriter
		}
		s := newShop(t, e,
			func(c *sqladapter.Config) { c.LockTimeout = 50 * time.Millisecond })
		holder := begin(t, s.db, sql.LevelDefault)
		if _, err := s.marks.MarkTx(t.Context(), holder, "held"); err != nil {
			t.Fatal(err)
		}
		own := *s
		own.db = e.open(t)
		own.db.SetMaxOpenConns(1)
		set := `SET lock_timeout = '43s'`
		if e.dialect == sqladapter.MySQL {
			set = `SET innodb_lock_wait_timeout = 43`
		}
		if _, err := own.db.ExecContext(t.Context(), set); err != nil {
			t.Fatal(err)
		}
		before := waits(t, s, own.db)
		r, err := s.marks.Runner(own.db)
		if err != nil {
			t.Fatal(err)
		}
		res, err := r.Run(t.Context(), "held", s.writes("held", "x", false))
		if !errors.Is(err, dedup.ErrInFlight) || res.Outcome != dedup.InFlight ||
			res.Record.Remaining != 0 {
			t.Errorf("held: %v, %v", res.Outcome, err)
		}
		if after := waits(t, s, own.db); after != before {
			t.Errorf("after the refusal the connection waits %s, not %s", after, before)
		}
		res, err = r.Run(t.Context(), "m",
			s.writes("m", "receipt", false, func(_ context.Context, tx execTx) error {
				if in := waits(t, s, tx.(*sql.Tx)); in != before {
					t.Errorf("in the effect the connection waits %s, not %s", in, before)
				}
				return nil
			}))
		wantRun(t, res, err, dedup.Acquired, "receipt")
		if after := waits(t, s, own.db); after != before {
			t.Errorf("after it the connection waits %s, not %s", after, before)
		}
		if err := holder.Rollback(); err != nil {
			t.Error(err)
		}
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
			if !sqladapter.Retryable(err) || errors.Is(err, dedup.ErrInFlight) ||
				res.Outcome != dedup.Unknown || dedup.OutcomeUnknown(err) {
				t.Errorf("beside a writer: %v, %v", res.Outcome, err)
			}
			return nil
		}))
	wantRun(t, res, err, dedup.Acquired, "receipt")
	s.wantEffects(t, []string{"m"})
}

// TestRunnerLeavesItsCaller: who goes ends what has not begun, and nothing else.
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
				if ctx.Err() != nil || ctx.Value(name{}) != "tenant" {
					t.Errorf("the effect's context: %v, value %v", ctx.Err(), ctx.Value(name{}))
				}
				return nil
			}))
		wantRun(t, res, err, dedup.Acquired, "receipt")
		if _, err := r.Run(gone, "late", s.writes("late", "x", false)); !errors.Is(err, why) {
			t.Errorf("of one who has gone: %v", err)
		}
		s.wantEffects(t, []string{"m"})
	})
}

// TestRunnerUnderHTTP: a failure that is kept stays, and what its handler has written does not.
func TestRunnerUnderHTTP(t *testing.T) {
	s := newShop(t, sqlite())
	r := s.runner(t)
	if _, err := httpadapter.New(r, httpadapter.Unscoped,
		httpadapter.Config{Keep: httpadapter.KeepStripeV2}); err == nil {
		t.Error("KeepStripeV2 goes on from what is undone here, and is not refused")
	}
	m, err := httpadapter.New(r, httpadapter.Unscoped, httpadapter.Config{})
	if err != nil {
		t.Fatal(err)
	}
	h := m.Handler(s.payments(t))
	for i, want := range []string{"", "true"} {
		for _, status := range []int{201, 422} {
			key := fmt.Sprintf("key-%d", status)
			w := pay(h, key, status)
			if w.Code != status || w.Header().Get("Idempotent-Replayed") != want ||
				w.Body.String() != key {
				t.Errorf("round %d: %d %q %v", i, w.Code, w.Body, w.Header())
			}
		}
		if w := pay(h, "key-500", 500); w.Code != 500 ||
			w.Header().Get("Idempotent-Replayed") != "" {
			t.Errorf("round %d: %d %v", i, w.Code, w.Header())
		}
	}
	s.wantEffects(t, []string{"key-201"})
}

// TestPanicUnderHTTP: a handler that panics after it has begun a 201 has all of its transaction
// rolled back, and its retry runs. Where nothing could be rolled back it would be done.
func TestPanicUnderHTTP(t *testing.T) {
	s := newShop(t, sqlite())
	m, err := httpadapter.New(s.runner(t), httpadapter.Unscoped, httpadapter.Config{})
	if err != nil {
		t.Fatal(err)
	}
	angry := true
	h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.payments(t).ServeHTTP(w, r)
		if angry {
			panic(http.ErrAbortHandler)
		}
	}))
	func() {
		defer func() {
			if v := recover(); v != any(http.ErrAbortHandler) {
				t.Errorf("recovered %v", v)
			}
		}()
		pay(h, "key", 201)
	}()
	s.wantEffects(t, nil)
	angry = false
	for _, want := range []string{"", "true"} {
		if w := pay(h, "key", 201); w.Code != 201 || w.Header().Get("Idempotent-Replayed") != want {
			t.Errorf("%d %v", w.Code, w.Header())
		}
	}
	s.wantEffects(t, []string{"key"})
}

// TestRunnerIsRefused before it sends anything.
func TestRunnerIsRefused(t *testing.T) {
	s := newShop(t, sqlite())
	var input *dedup.InputError
	if _, err := s.marks.Runner(nil); !errors.As(err, &input) ||
		input.Field != "db" {
		t.Error(err)
	}
	if _, err := s.runner(t).Run(t.Context(), "", s.writes("m", "x", false)); !errors.As(err,
		&input) || input.Field != "key" || dedup.IsPermanent(err) {
		t.Error(err)
	}
	if _, err := s.runner(t).Run(t.Context(), "m", nil); !errors.As(err, &input) ||
		input.Field != "effect" {
		t.Error(err)
	}
}
