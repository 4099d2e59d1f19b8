package sqlbench

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/sqladapter/pgxv5"
)

const (
	nativeEffectSide = "effect alone, batched, pgx itself"
	nativeBothSide   = "record + effect, handler per batch, pgx itself"
	nativeHandSide   = "record + effect, batched, by hand, pgx itself"
)

// native is a ground's tables through a pool of pgx, without database/sql.
type native struct {
	*ground
	pool *pgxpool.Pool
}

func (g *ground) native(ctx context.Context, s *harness.Setup, connections int) (*native, error) {
	cfg, err := pgxpool.ParseConfig(g.server.URL)
	if err != nil {
		return nil, fmt.Errorf("sqlbench: %w", err)
	}
	cfg.MaxConns = int32(connections) //nolint:gosec // a handful
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("sqlbench: %w", err)
	}
	s.Defer(func() error { pool.Close(); return nil })
	return &native{g, pool}, nil
}

// many has the effects of a batch.
func (n *native) many(ctx context.Context, tx pgx.Tx, keys []string) error {
	text, args := n.effect.unnested(keys)
	_, err := tx.Exec(ctx, text, args...)
	return err
}

func (n *native) effectAlone(ctx context.Context, _ int, keys []string) error {
	return pgx.BeginFunc(ctx, n.pool, func(tx pgx.Tx) error { return n.many(ctx, tx, keys) })
}

func (n *native) both(ctx context.Context, _ int, keys []string) error {
	_, err := pgxv5.DoBatch(ctx, n.marks, n.pool, keys,
		func(ctx context.Context, tx pgx.Tx, first []int) error {
			fresh := make([]string, len(first))
			for i, at := range first {
				fresh[i] = keys[at]
			}
			return n.many(ctx, tx, fresh)
		})
	return err
}

// handBatch is the batch of [ground.handBatch] in this client.
func (n *native) handBatch(ctx context.Context, _ int, keys []string) error {
	byID, ids := digests(keys)
	return pgx.BeginFunc(ctx, n.pool, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, n.handBatchInsert(), ids)
		if err != nil {
			return err
		}
		fresh, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
			var id []byte
			if err := row.Scan(&id); err != nil {
				return "", err
			}
			return byID[[16]byte(id)], nil
		})
		if err != nil {
			return err
		}
		return n.many(ctx, tx, fresh)
	})
}
