package sql_test

import (
	"context"
	"database/sql"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/pgxv5"
)

// TestRoundTrips checks the numbers of round trips in the documentation, on PostgreSQL. The effect
// sends nothing, and the connection has prepared its statements.
func TestRoundTrips(t *testing.T) {
	s := newShop(t, postgres("cache_statement"))
	fence := newTill(t, postgres("cache_statement"))
	u, err := url.Parse(postgresURL(t, servertest.Postgres(t), "cache_statement"))
	require.NoError(t, err)
	p := newWireProxy(t, u.Host)
	u.Host = p.addr
	dsn := u.String()
	db := openDB(t, "pgx", dsn)
	db.SetMaxOpenConns(1)
	pool := openPool(t, dsn+"&pool_max_conns=1")
	nothing := func(context.Context, *sql.Tx) error { return nil }
	runner, err := s.marks.Runner(db)
	require.NoError(t, err)
	next := 0
	for name, tt := range map[string]struct {
		want int
		call func(key string) error
	}{
		"Do": {4, func(key string) error {
			_, err := s.marks.Do(t.Context(), db, key, nothing)
			return err
		}},
		"DoBatch": {4, func(key string) error {
			_, err := s.marks.DoBatch(t.Context(), db, []string{key},
				func(context.Context, *sql.Tx, []int) error { return nil })
			return err
		}},
		"Fence.Do": {4, func(string) error {
			next++
			_, err := fence.Do(t.Context(), db, sqladapter.Position{Topic: "t", TopicID: "i"},
				int64(next), int64(next)+1, func(context.Context, *sql.Tx, int64) error {
					return nil
				})
			return err
		}},
		"Runner": {8, func(key string) error {
			_, err := runner.Run(t.Context(), key, func(context.Context) ([]byte, bool, error) {
				return []byte("answer"), false, nil
			})
			return err
		}},
		"pgxv5.Do": {3, func(key string) error {
			_, err := pgxv5.Do(t.Context(), s.marks, pool,
				key, func(context.Context, pgx.Tx) error { return nil })
			return err
		}},
	} {
		for _, warm := range []string{" 0", " 1"} {
			require.NoError(t, tt.call(name+warm))
		}
		p.arm(0, requestUnsent, nil)
		require.NoError(t, tt.call(name+" 2"))
		got, _ := p.counted()
		assert.Equal(t, tt.want, got, name)
	}
}
