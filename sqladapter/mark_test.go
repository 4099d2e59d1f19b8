package sqladapter

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/sqladapter/internal/dialect"
)

const testKey = "evt_42 of customer jane@example.org"

// codeError is shaped like the errors of PostgreSQL drivers, with a SQLSTATE.
type codeError string

func (e codeError) Error() string    { return "server says " + string(e) }
func (e codeError) SQLState() string { return string(e) }

// insertText and loadText are the statements for one key.
func insertText(m *Ledger) string { return m.dialect.insert(make([]entry, 1), 0).text }
func loadText(m *Ledger) string   { return m.dialect.load(make([]entry, 1)).text }

func peek(m *Ledger) string { return m.dialect.peek(make([]entry, 1)).text }

// insertManyText and loadManyText are the statements for several keys, if the dialect has them.
func insertManyText(m *Ledger) string { return m.dialect.insert(make([]entry, 2), 0).text }

// withFingerprintText is the statement for several keys of which one has a fingerprint.
func withFingerprintText(m *Ledger) string {
	return m.dialect.insert([]entry{{}, {fingerprint: driver.Fingerprint{1}}}, 0).text
}

func loadManyText(m *Ledger) string { return m.dialect.load(make([]entry, 2)).text }

func newMarks(t *testing.T, d Dialect) *Ledger {
	t.Helper()
	m, err := New(Config{Dialect: d, Namespace: "payments", Window: time.Hour})
	require.NoError(t, err)
	return m
}

// at returns a stamp at a second after 1970, with these random bits.
func at(second, salt int64) int64 { return second*1000<<saltBits | salt }

// inserted answers an INSERT of SQLite, of one row or of many, as if no key was marked.
func inserted(args []any) [][]sqldriver.Value {
	var rows [][]sqldriver.Value
	for id := range slices.Chunk(args[0].([]byte), 16) { //nolint:forcetypeassert // as the dialect has it
		rows = append(rows, []sqldriver.Value{id, at(1, args[1].(int64))}) //nolint:forcetypeassert // as the dialect has it
	}
	return rows
}

// stored answers with a row that is three seconds old.
func stored(f driver.Fingerprint) func([]any) [][]sqldriver.Value {
	return func(args []any) [][]sqldriver.Value {
		return [][]sqldriver.Value{{args[0], at(1, 9), dialect.Nullable(f),
			int64(1000), int64(4000), nil}}
	}
}

func TestMarkTx(t *testing.T) {
	m := newMarks(t, SQLite)
	insert, load := insertText(m), loadText(m)
	body, other := []byte("body"), []byte("other body")
	var salt int64
	tests := []struct {
		name    string
		opts    []dedup.Option
		steps   []Step
		outcome driver.Outcome
		err     error
	}{
		{"first", nil, []Step{{Query: insert, Rows: inserted}}, dedup.Acquired, nil},
		{"duplicate", nil, []Step{{Query: insert},
			{Query: load, Rows: stored(driver.Fingerprint{})}}, dedup.Duplicate, nil},
		{
			"same payload",
			[]dedup.Option{dedup.WithFingerprint(body)},
			[]Step{{Query: insert}, {Query: load, Rows: stored(driver.FingerprintOf(body))}},
			dedup.Duplicate, nil,
		},
		{
			"other payload",
			[]dedup.Option{dedup.WithFingerprint(body)},
			[]Step{{Query: insert}, {Query: load, Rows: stored(driver.FingerprintOf(other))}},
			dedup.Mismatch, dedup.ErrMismatch,
		},
		{
			// Prevents: a stamp that the load finds is taken for ours. A stamp has few random
			// bits, so only the INSERT knows which transaction is first.
			"another row with our stamp", nil,
			[]Step{
				{Query: insert, Rows: func(args []any) [][]sqldriver.Value {
					salt, _ = args[1].(int64)
					return nil
				}},
				{Query: load, Rows: func(args []any) [][]sqldriver.Value {
					return [][]sqldriver.Value{{args[0], at(1, salt), nil, int64(1000),
						int64(1000), nil}}
				}},
			},
			dedup.Duplicate, nil,
		},
		{
			"row deleted between the statements", nil,
			[]Step{{Query: insert}, {Query: load}, {Query: insert, Rows: inserted}},
			dedup.Acquired, nil,
		},
		{
			"row that keeps vanishing", nil,
			[]Step{{Query: insert}, {Query: load}, {Query: insert}, {Query: load}, {Query: insert},
				{Query: load}},
			dedup.Unknown, dedup.ErrUnknown,
		},
		{"lock timeout", nil, []Step{{Query: insert, Err: codeError("55P03")}}, dedup.InFlight,
			dedup.ErrInFlight},
		{"serialization failure", nil, []Step{{Query: insert, Err: codeError("40001")}},
			dedup.Unknown, codeError("40001")},
		{
			// Prevents: a connection breaks after the INSERT. That is not "no row", and the next
			// answer is not a duplicate.
			"connection lost before the row", nil,
			[]Step{{Query: insert, NextErr: io.ErrUnexpectedEOF}},
			dedup.Unknown, io.ErrUnexpectedEOF,
		},
		{
			"error as late as Close", nil,
			[]Step{{Query: insert, Rows: inserted, CloseErr: codeError("40001")}},
			dedup.Unknown, codeError("40001"),
		},
		{
			"row of another shape", nil,
			[]Step{{Query: insert}, {Query: load, Rows: func([]any) [][]sqldriver.Value {
				return [][]sqldriver.Value{{[]byte("short"), at(1, 0), nil, int64(0), int64(0),
					nil}}
			}}},
			dedup.Unknown, driver.ErrUnreadable,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tx, _ := beginScript(t, tt.steps...)
			mark, err := m.MarkTx(t.Context(), tx, testKey, tt.opts...)
			require.Equal(t, tt.outcome, mark.Outcome)
			require.ErrorIs(t, err, tt.err)
			require.Equal(t, tt.err == nil, err == nil)
			assert.Equal(t, tt.outcome == dedup.Acquired, mark.First(), "First() = %v for %v",
				mark.First(), tt.outcome)
			assert.ErrorIs(t, mark.Err, err)
		})
	}
}

func TestMarkTxTellsTheStoredMark(t *testing.T) {
	m := newMarks(t, SQLite)
	tx, _ := beginScript(t, Step{Query: insertText(m)},
		Step{Query: loadText(m), Rows: stored(driver.FingerprintOf([]byte("x")))})
	mark, err := m.MarkTx(t.Context(), tx, testKey)
	require.NoError(t, err)
	e, err := m.entry(testKey, nil)
	require.NoError(t, err)
	want := Mark{
		Outcome: dedup.Duplicate, At: time.Unix(1, 0).UTC(), Age: 3 * time.Second,
		Fingerprint: driver.FingerprintOf([]byte("x")), id: e.id, stamp: at(1, 9),
	}
	assert.Equal(t, fmt.Sprintf("%+v", want), fmt.Sprintf("%+v", mark), "mark = %+v, want %+v",
		mark, want)
}

// TestDigestsOnly: neither a key nor a scope ever reaches the database.
func TestDigestsOnly(t *testing.T) {
	for _, d := range []Dialect{Postgres, SQLite} {
		m := newMarks(t, d)
		id, err := driver.NewID("payments", "tenant-7", testKey)
		require.NoError(t, err)
		tx, s := beginScript(t, Step{Query: insertText(m)},
			Step{Query: loadText(m), Rows: func([]any) [][]sqldriver.Value {
				return stored(driver.Fingerprint{})([]any{id[:]})
			}})
		_, err = m.MarkTx(t.Context(), tx, testKey, dedup.WithScope("tenant-7"),
			dedup.WithFingerprint([]byte("secret body")))
		require.NoError(t, err)
		text := fmt.Sprintf("%q", s.Args)
		for _, secret := range []string{"evt_42", "jane", "tenant-7", "secret"} {
			assert.NotContains(t, text, secret, "%v", d)
		}
	}
}

func TestBadInput(t *testing.T) {
	m := newMarks(t, Postgres)
	db, _ := openScript(t) // any statement fails the test
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	mark := func(m *Ledger, tx Tx, key string, opts ...dedup.Option) func() error {
		return func() error {
			_, err := m.MarkTx(context.Background(), tx, key, opts...)
			return err
		}
	}
	do := func(m *Ledger, db *sql.DB, key string, effect func(context.Context, *sql.Tx) error,
		opts ...dedup.Option) func() error {
		return func() error {
			_, err := m.Do(context.Background(), db, key, effect, opts...)
			return err
		}
	}
	doBatch := func(m *Ledger, db *sql.DB, keys []string, opts ...dedup.Option) func() error {
		return func() error {
			_, err := m.DoBatch(context.Background(),
				db, keys, func(context.Context, *sql.Tx, []int) error { return nil }, opts...)
			return err
		}
	}
	tests := map[string]struct {
		field string
		call  func() error
	}{
		"empty key":         {"key", mark(m, tx, "")},
		"oversized key":     {"key", mark(m, tx, strings.Repeat("k", 256))},
		"non-printable key": {"key", mark(m, tx, "a\x00b")},
		"broken UTF-8":      {"key", mark(m, tx, "a\xff")},
		"oversized scope":   {"scope", mark(m, tx, "k", dedup.WithScope(strings.Repeat("s", 256)))},
		"nil option":        {"Option", mark(m, tx, "k", nil)},
		"nil tx":            {"tx", mark(m, nil, "k")},
		"nil *sql.Tx":       {"tx", mark(m, (*sql.Tx)(nil), "k")},
		"a pool":            {"tx", mark(m, db, "k")},
		"nil Ledger":        {"Ledger", mark(nil, tx, "k")},
		"zero Ledger":       {"Ledger", mark(new(Ledger), tx, "k")},
		"batch, nil tx": {"tx", func() error {
			_, err := m.MarkBatchTx(context.Background(), nil, []dedup.Request{{Key: "k"}})
			return err
		}},
		"batch, a pool": {"tx", func() error {
			_, err := m.MarkBatchTx(context.Background(), db, []dedup.Request{{Key: "k"}})
			return err
		}},
		"batch, zero Ledger": {"Ledger", func() error {
			_, err := new(Ledger).MarkBatchTx(context.Background(), tx, nil)
			return err
		}},
		"lookup, nil": {"q", func() error {
			_, _, err := m.Lookup(context.Background(), nil, "k")
			return err
		}},
		"lookup, empty key": {"key", func() error {
			_, _, err := m.Lookup(context.Background(), tx, "")
			return err
		}},
		"migrate, nil": {"db", func() error { return m.Migrate(context.Background(), nil) }},
		"migrate, zero": {"Ledger", func() error {
			return new(Ledger).Migrate(context.Background(), db)
		}},
		"delete, nil": {"db", func() error {
			_, err := m.DeleteExpired(context.Background(), nil, 1)
			return err
		}},
		"result, nil tx": {"tx", func() error {
			return m.SaveResultTx(context.Background(), nil, "k", nil)
		}},
		"result, a pool": {"tx", func() error {
			return m.SaveResultTx(context.Background(), db, "k", nil)
		}},
		"result, empty key": {"key", func() error {
			return m.SaveResultTx(context.Background(), tx, "", nil)
		}},
		"result, oversized": {"result", func() error {
			return m.SaveResultTx(context.Background(), tx, "k", make([]byte, 256<<10+1))
		}},
		"result, zero": {"Ledger", func() error {
			return new(Ledger).SaveResultTx(context.Background(), tx, "k", nil)
		}},
		"check, nil": {"db", func() error { return m.Check(context.Background(), nil) }},
		"check, zero": {"Ledger", func() error {
			return new(Ledger).Check(context.Background(), db)
		}},
		"MySQL, query only": {"tx", mark(newMarks(t, MySQL), &nativeTx{}, "k")},
		"window, nil":       {"db", func() error { return m.SetWindow(context.Background(), nil) }},
		"window, zero": {"Ledger", func() error {
			return new(Ledger).SetWindow(context.Background(), db)
		}},
		"delete, limit 0": {"limit", func() error {
			_, err := m.DeleteExpired(context.Background(), db, 0)
			return err
		}},
		"do, empty key":    {"key", do(m, db, "", nothing)},
		"do, bad scope":    {"scope", do(m, db, "k", nothing, dedup.WithScope("a\xff"))},
		"do, nil option":   {"Option", do(m, db, "k", nothing, nil)},
		"do, nil db":       {"db", do(m, nil, "k", nothing)},
		"do, nil effect":   {"effect", do(m, db, "k", nil)},
		"do, nil Ledger":   {"Ledger", do(nil, db, "k", nothing)},
		"do, nil context":  {"ctx", func() error { _, err := m.Do(nil, db, "k", nothing); return err }}, //nolint:staticcheck // the mistake
		"batch do, nil db": {"db", doBatch(m, nil, nil)},
		"batch do, no work": {"effect", func() error {
			_, err := m.DoBatch(context.Background(), db, nil, nil)
			return err
		}},
		"batch do, scope":   {"scope", doBatch(m, db, []string{"k"}, dedup.WithScope("a\xff"))},
		"batch do, payload": {"Option", doBatch(m, db, []string{"k"}, dedup.WithFingerprint(nil))},
		"batch do, option":  {"Option", doBatch(m, db, []string{"k"}, nil)},
		"delete, zero": {"Ledger", func() error {
			_, err := new(Ledger).DeleteExpired(context.Background(), db, 1)
			return err
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := tt.call()
			var input *dedup.InputError
			require.ErrorAs(t, err, &input)
			require.Equal(t, tt.field, input.Field)
			assert.NotContains(t, err.Error(), "kkkk", "the error repeats the key")
		})
	}
}
