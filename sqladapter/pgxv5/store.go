package pgxv5

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/sqladapter/native"
	"github.com/onceward/onceward/sqladapter/sqlstore"
)

// NewStore is [sqlstore.New] over a pool of pgx. Only Migrate, Check and Drop use database/sql.
// Options.Dialect may be left out. The caller closes the pool. A nil pool is a [*dedup.InputError].
func NewStore(pool *pgxpool.Pool, cfg sqlstore.Options) (*sqlstore.Store, error) {
	if pool == nil {
		return nil, &dedup.InputError{Field: "pool", Reason: "is nil"}
	}
	if cfg.Dialect == 0 {
		cfg.Dialect = sqlstore.Postgres
	}
	return sqlstore.NewNative(sqlstore.Native{
		Begin: func(ctx context.Context, level sql.IsolationLevel) (native.Transaction, error) {
			at, err := options(level)
			if err != nil {
				return nil, err
			}
			// It holds no effect that could end it, so it needs no savepoint.
			tx, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: at.IsoLevel})
			if err != nil {
				return nil, err
			}
			return &Tx{tx}, nil
		},
		Query: func(ctx context.Context, query string, args ...any) (native.Rows, error) {
			found, err := pool.Query(ctx, query, args...)
			if err != nil {
				return nil, err
			}
			return rows{found}, nil
		},
		Open: func() *sql.DB { return stdlib.OpenDBFromPool(pool) },
	}, cfg)
}
