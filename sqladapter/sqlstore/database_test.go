package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/sqladapter/native"
)

var errRefused = errors.New("refused")

// refusing is a native database that refuses everything.
func refusing() Native {
	return Native{
		Begin: func(context.Context, sql.IsolationLevel) (native.Transaction, error) {
			return nil, errRefused
		},
		Query: func(context.Context, string, ...any) (native.Rows, error) {
			return nil, errRefused
		},
		Open: func() *sql.DB { return nil },
	}
}

func TestNewNative(t *testing.T) {
	for field, edit := range map[string]func(*Native, *Options){
		"":          func(*Native, *Options) {},
		"Begin":     func(n *Native, _ *Options) { n.Begin = nil },
		"Query":     func(n *Native, _ *Options) { n.Query = nil },
		"Open":      func(n *Native, _ *Options) { n.Open = nil },
		"Dialect":   func(_ *Native, o *Options) { o.Dialect = MySQL },
		"Table":     func(_ *Native, o *Options) { o.Table = `"` },
		"MaxResult": func(_ *Native, o *Options) { o.MaxResult = -1 },
	} {
		n, o := refusing(), Options{Dialect: Postgres}
		edit(&n, &o)
		_, err := NewNative(n, o)
		wantField(t, err, field)
	}
}

// TestNativeErrors: whichever way a call uses the database, its items get the error.
func TestNativeErrors(t *testing.T) {
	store, err := NewNative(refusing(), Options{Dialect: Postgres})
	require.NoError(t, err)
	claim := driver.ClaimRequest{Token: scripted.Token, Lease: time.Minute}
	require.ErrorIs(t, store.Claim(t.Context(), []driver.ClaimRequest{claim})[0].Err, errRefused)
	require.ErrorIs(t, store.Renew(t.Context(), []driver.Renewal{scripted})[0].Err, errRefused)
	require.ErrorIs(t, store.Lookup(t.Context(), make([]driver.ID, 1))[0].Err, errRefused)
	_, err = store.Forgets(t.Context())
	require.ErrorIs(t, err, errRefused)
	_, err = store.Sweep(t.Context(), 1)
	require.ErrorIs(t, err, errRefused)
}

// rowsOf has rows without columns.
type rowsOf struct {
	left         int
	err, closing error
	closed       bool
}

func (r *rowsOf) Next() bool        { r.left--; return r.left >= 0 }
func (r *rowsOf) Scan(...any) error { return nil }
func (r *rowsOf) Err() error        { return r.err }
func (r *rowsOf) Close() error      { r.closed = true; return r.closing }

// TestNativeRows: an error that comes with the rows, or when they are closed, is an error of the
// statement.
func TestNativeRows(t *testing.T) {
	for name, tt := range map[string]struct {
		rows rowsOf
		exec error
		one  error
	}{
		"one row": {rows: rowsOf{left: 1}},
		"none":    {rows: rowsOf{}, one: sql.ErrNoRows},
		"cut off": {rows: rowsOf{err: errRefused}, exec: errRefused, one: errRefused},
		"failed at last": {rows: rowsOf{left: 1, closing: errRefused}, exec: errRefused,
			one: errRefused},
	} {
		t.Run(name, func(t *testing.T) {
			q := func(rows *rowsOf) nativeQuerier {
				return nativeQuerier{func(context.Context, string, ...any) (native.Rows, error) {
					return rows, nil
				}}
			}
			first, second := tt.rows, tt.rows
			assert.Equal(t, tt.exec, q(&first).exec(t.Context(), statement{}))
			assert.Equal(t, tt.one, queryOne(t.Context(), q(&second), ""))
			assert.True(t, first.closed && second.closed)
		})
	}
}
