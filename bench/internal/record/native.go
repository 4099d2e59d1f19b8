package record

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
)

// native is a ground's tables through a pool of pgx, without database/sql.
type native struct {
	*ground
	pool *pgxpool.Pool
}

func (g *ground) native(ctx context.Context, connections int) (*native, error) {
	cfg, err := pgxpool.ParseConfig(g.server.URL)
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	cfg.MaxConns = int32(connections) //nolint:gosec // a handful
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	return &native{g, pool}, nil
}

// many has the effects of a batch.
func (n *native) many(ctx context.Context, tx pgx.Tx, keys []string) error {
	text, args := n.effect.batch(keys)
	_, err := tx.Exec(ctx, text, args...)
	return err
}

func (n *native) effectAlone(ctx context.Context, _ int, keys []string) error {
	return pgx.BeginFunc(ctx, n.pool, func(tx pgx.Tx) error { return n.many(ctx, tx, keys) })
}

func (n *native) both(ctx context.Context, _ int, keys []string) error {
	_, err := pgxv5.DoBatch(ctx, n.marks, n.pool, keys, func(ctx context.Context, tx pgx.Tx, first []int) error {
		fresh := make([]string, len(first))
		for i, at := range first {
			fresh[i] = keys[at]
		}
		return n.many(ctx, tx, fresh)
	})
	return err
}

// nativePairs have the goals of the others.
func (p point) nativePairs() []harness.Pair {
	return []harness.Pair{
		{Name: p.title(), Side: nativeBothSide, Against: nativeEffectSide, Goal: harness.AtLeast(0.45, 0.55)},
		{Name: p.title(), Side: nativeBothSide, Against: bothSide, Text: "the same through database/sql"},
	}
}
