package sqladapter

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/onceward/onceward/dedup"
)

// nativeTx is a transaction that is not of database/sql.
type nativeTx struct {
	id    dedup.ID
	asked []string
}

func (t *nativeTx) QueryContext(context.Context, string, ...any) (*sql.Rows, error) {
	return nil, errors.New("database/sql was asked")
}

func (t *nativeTx) QueryRows(_ context.Context, query string, _ ...any) (Rows, error) {
	t.asked = append(t.asked, query)
	return &nativeRows{id: t.id, ended: len(t.asked) == 1}, nil // the INSERT finds it taken
}

// nativeRows is one row, of somebody else.
type nativeRows struct {
	id    dedup.ID
	ended bool
}

func (r *nativeRows) Next() bool   { return !r.ended }
func (r *nativeRows) Err() error   { return nil }
func (r *nativeRows) Close() error { return nil }

func (r *nativeRows) Scan(dest ...any) error {
	r.ended = true
	*dest[0].(*[]byte), *dest[1].(*int64) = r.id[:], at(1, 0) //nolint:forcetypeassert // as scanLoaded has them
	return nil
}

// A transaction with rows of its own is asked for those, and never for those of
// database/sql.
func TestNativeTx(t *testing.T) {
	m := newMarks(t, Postgres)
	e, err := m.entry("k", nil)
	if err != nil {
		t.Fatal(err)
	}
	tx := &nativeTx{id: e.id}
	mark, err := m.MarkTx(t.Context(), tx, "k")
	if err != nil || mark.Outcome != dedup.Duplicate || len(tx.asked) != 2 {
		t.Errorf("mark %v, %v after %d statements", mark.Outcome, err, len(tx.asked))
	}
}
