package sql_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/sqladapter"
)

// saves is an effect that keeps this result for a message.
func (s *shop) saves(ctx context.Context, message string, result []byte) (sqladapter.Mark, error) {
	return s.marks.Do(ctx, s.db, message, func(ctx context.Context, tx *sql.Tx) error {
		if err := s.effect(ctx, tx, message); err != nil {
			return err
		}
		return s.marks.SaveResultTx(ctx, tx, message, result)
	})
}

// TestResults: a duplicate is told what the first has returned, byte for byte, in a batch as
// well, and one that had nothing to keep is told nothing.
func TestResults(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		s := newShop(t, e)
		results := map[string][]byte{
			"text": []byte("receipt 4711"), "empty": {},
			"binary": {0, 0xff, '\'', '\\', '"', '\n', 0x1a},
			"large":  bytes.Repeat([]byte{0xa5, 0}, 128<<10),
		}
		for message, result := range results {
			if mark, err := s.saves(t.Context(), message, result); err != nil || !mark.First() ||
				mark.Result != nil {
				t.Fatalf("%s: %v, %v", message, mark.Outcome, err)
			}
		}
		if _, err := s.do(t.Context(), "nothing"); err != nil {
			t.Fatal(err)
		}
		keys := []string{"text", "empty", "binary", "large", "nothing", "new"}
		marks, err := s.doBatch(t.Context(), keys)
		if err != nil {
			t.Fatal(err)
		}
		for i, key := range keys {
			want := results[key]
			if mark := marks[i]; !bytes.Equal(mark.Result, want) ||
				(mark.Result != nil) != (len(want) > 0) {
				t.Errorf("%s: result of %d bytes, nil %v; want %d bytes", key, len(mark.Result),
					mark.Result == nil, len(want))
			}
			if mark, found, err := s.marks.Lookup(t.Context(), s.db, key); err != nil || !found ||
				!bytes.Equal(mark.Result, want) {
				t.Errorf("%s: Lookup = %d bytes, %v, %v", key, len(mark.Result), found, err)
			}
		}
	})
}

// TestResultIsRefused: for a key without a mark, and a second time; the transaction goes on.
func TestResultIsRefused(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		s := newShop(t, e)
		tx := begin(t, s.db, sql.LevelDefault)
		refused := func(key string) {
			t.Helper()
			var input *dedup.InputError
			if err := s.marks.SaveResultTx(t.Context(), tx, key, []byte("x")); !errors.As(err,
				&input) || input.Field != "key" {
				t.Errorf("%q: %v, want an InputError on key", key, err)
			}
		}
		refused("absent")
		if _, err := s.marks.MarkTx(t.Context(), tx, "m"); err != nil {
			t.Fatal(err)
		}
		if err := s.marks.SaveResultTx(t.Context(), tx, "m", []byte("once")); err != nil {
			t.Fatal(err)
		}
		refused("m")
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if mark, _, err := s.marks.Lookup(t.Context(), s.db, "m"); err != nil ||
			string(mark.Result) != "once" {
			t.Errorf("result %q, %v", mark.Result, err)
		}
	})
}

// TestResultsGoWithTheirMarks: with the transaction, and with retention.
func TestResultsGoWithTheirMarks(t *testing.T) {
	forEachDeleting(t, func(t *testing.T, e engine) {
		s := newShop(t, e, func(c *sqladapter.Config) { c.Window = 72 * time.Hour })
		for _, message := range []string{"old", "new"} {
			if _, err := s.saves(t.Context(), message, []byte(message)); err != nil {
				t.Fatal(err)
			}
		}
		_, err := s.marks.Do(t.Context(), s.db, "failed",
			func(ctx context.Context, tx *sql.Tx) error {
				return errors.Join(s.marks.SaveResultTx(ctx, tx, "failed", nil), errDomain)
			})
		if !errors.Is(err, errDomain) {
			t.Fatal(err)
		}
		s.age(t, "shop", 10, "old")
		s.deleteExpired(t, 100, 1)
		s.wantMark(t, "old", false)
		var kept []byte
		if err := s.db.QueryRowContext(t.Context(),
			`SELECT result FROM "`+s.table+`_results"`).Scan(&kept); err != nil ||
			string(kept) != "new" {
			t.Errorf("left are results of %q, %v; want new alone", kept, err)
		}
		if mark, err := s.saves(t.Context(), "old", []byte("again")); err != nil || !mark.First() {
			t.Errorf("after the window: %v, %v", mark.Outcome, err)
		}
		if mark, err := s.do(t.Context(), "old"); err != nil ||
			!strings.Contains(string(mark.Result), "again") {
			t.Errorf("its duplicate: %q, %v", mark.Result, err)
		}
	})
}
