package sqladapter

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/sqladapter/internal/dialect"
	"github.com/onceward/onceward/sqladapter/native"
)

// nativeTx is a transaction of another package than database/sql.
type nativeTx struct {
	id    driver.ID
	fresh bool // the INSERT inserts a row
	asked []string
}

func (t *nativeTx) QueryContext(context.Context, string, ...any) (*sql.Rows, error) {
	return nil, errors.New("database/sql was asked")
}

func (t *nativeTx) QueryRows(_ context.Context, query string, _ ...any) (native.Rows, error) {
	t.asked = append(t.asked, query)
	return &nativeRows{id: t.id, ended: len(t.asked) == 1 && !t.fresh}, nil
}

// nativeRows has one row, which another transaction has written.
type nativeRows struct {
	id    driver.ID
	ended bool
}

func (r *nativeRows) Next() bool   { return !r.ended }
func (r *nativeRows) Err() error   { return nil }
func (r *nativeRows) Close() error { return nil }

func (r *nativeRows) Scan(dest ...any) error {
	r.ended = true
	*dest[0].(*[]byte), *dest[1].(*int64) = r.id[:], at(1, 0) //nolint:forcetypeassert // as columns has them
	return nil
}

// A transaction that has QueryRows is asked by that method, and never by the one of database/sql.
func TestNativeTx(t *testing.T) {
	m := newMarks(t, Postgres)
	m.idsKnown.Store(true)
	e, err := m.entry("k", nil)
	require.NoError(t, err)
	tx := &nativeTx{id: e.id}
	mark, err := m.MarkTx(t.Context(), tx, "k")
	require.NoError(t, err)
	assert.Equal(t, dedup.Duplicate, mark.Outcome)
	assert.Len(t, tx.asked, 2)
}

// nativeTransaction is a transaction of Native. It answers COMMIT with commits in turn.
type nativeTransaction struct {
	nativeTx
	commits *[]error
	ended   *int
}

func (t *nativeTransaction) Commit(context.Context) error   { return shift(t.commits) }
func (t *nativeTransaction) Rollback(context.Context) error { *t.ended++; return nil }

// A native transaction is retried like one of database/sql, and always ended.
func TestNative(t *testing.T) {
	m := newMarks(t, Postgres)
	m.idsKnown.Store(true)
	e, err := m.entry("k", nil)
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		begun, ended, ran := 0, 0, 0
		commits := []error{codeError("40001"), safeError(true)}
		n := Native{Ledger: m,
			Begin: func(_ context.Context, level sql.IsolationLevel) (native.Transaction, error) {
				if begun++; begun == 2 {
					return nil, codeError("57P03")
				}
				return &nativeTransaction{nativeTx: nativeTx{id: e.id, fresh: begun < 4},
					commits: &commits, ended: &ended}, nil
			}}
		mark, err := n.Do(t.Context(),
			"k", func(_ context.Context, tx native.Transaction) error {
				_, ok := tx.(*nativeTransaction)
				assert.True(t, ok, "the effect was given %T", tx)
				ran++
				return nil
			})
		require.NoError(t, err)
		assert.Equal(t, dedup.Duplicate, mark.Outcome)
		assert.Equal(t, 4, begun)
		assert.Equal(t, 3, ended)
		assert.Equal(t, 2, ran)
	})
}

// A dialect without native transactions is refused, and does not panic later.
func TestNativeRefuses(t *testing.T) {
	none := func(context.Context, sql.IsolationLevel) (native.Transaction, error) {
		return (*nativeTransaction)(nil), nil
	}
	nothing := func(context.Context, native.Transaction) error { return nil }
	for name, tt := range map[string]struct {
		native Native
		field  string
	}{
		"MySQL":          {Native{Ledger: newMarks(t, MySQL), Begin: none}, "Ledger"},
		"SQL Server":     {Native{Ledger: newMarks(t, dialect.SQLServer), Begin: none}, "Ledger"},
		"no transaction": {Native{Ledger: newMarks(t, Postgres), Begin: none}, "Begin"},
		"no Begin":       {Native{Ledger: newMarks(t, Postgres)}, "Begin"},
		"no Ledger":      {Native{Begin: none}, "Ledger"},
	} {
		var input *dedup.InputError
		_, err := tt.native.Do(t.Context(), "k", nothing)
		require.ErrorAs(t, err, &input, name)
		assert.Equal(t, tt.field, input.Field, name)
	}
}
