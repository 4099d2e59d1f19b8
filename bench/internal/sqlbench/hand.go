package sqlbench

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/pgxv5"
)

// A program by hand writes the same columns into the same table, for an insert is dearer
// in a larger one, and does not look at anything that can go wrong.

// handEach is a transaction for every message: what programs have that know no batches.
func (g *ground) handEach(ctx context.Context, _ int, keys []string) {
	insert := fmt.Sprintf(handInsert[g.server.Dialect], g.name)
	for _, key := range keys {
		g.inTx(ctx, func(tx *sql.Tx) {
			done := must.Get(tx.ExecContext(ctx, insert, handID(g.server.Dialect, digest(key))))
			if must.Get(done.RowsAffected()) == 0 {
				must.Do(errors.New("sqlbench: a fresh key is there"))
			}
			g.effect.single(ctx, tx, key)
		})
	}
}

// handInsert is the statement for one key. Stamps are whatever the clock says.
var handInsert = map[sqladapter.Dialect]string{
	sqladapter.Postgres: `INSERT INTO %s (id, stamp) VALUES ($1::uuid, ` + handStamp +
		`) ON CONFLICT (id) DO NOTHING`,
	sqladapter.MySQL: `INSERT INTO %s (id, owner) VALUES (?, 1) ON DUPLICATE KEY UPDATE id = id`,
	sqladapter.SQLite: `INSERT INTO %s (id, stamp) VALUES (?, unixepoch() * 1000 << 20) ` +
		`ON CONFLICT (id) DO NOTHING`,
}

const handStamp = `(SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint << 20)`

func digest(key string) [16]byte {
	sum := sha256.Sum256([]byte(key))
	return [16]byte(sum[:16])
}

func handID(d sqladapter.Dialect, id [16]byte) any {
	if d == sqladapter.Postgres {
		return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
	}
	return id[:]
}

// handBatchInsert takes sorted ids and returns those that are new, in PostgreSQL.
func (g *ground) handBatchInsert() string {
	return `INSERT INTO ` + g.name + ` (id, stamp) SELECT id, ` + handStamp +
		` FROM unnest($1::uuid[]) AS b(id) ON CONFLICT (id) DO NOTHING RETURNING uuid_send(id)`
}

// digests are the sorted ids of keys.
func digests(keys []string) (byID map[[16]byte]string, ids [][16]byte) {
	byID, ids = make(map[[16]byte]string, len(keys)), make([][16]byte, len(keys))
	for i, key := range keys {
		ids[i] = digest(key)
		byID[ids[i]] = key
	}
	slices.SortFunc(ids, func(a, b [16]byte) int { return bytes.Compare(a[:], b[:]) })
	return byID, ids
}

// handBatch is the batch by hand, for PostgreSQL: one INSERT of the records, and one for the
// effects of those that are new.
func (g *ground) handBatch(ctx context.Context, _ int, keys []string) {
	byID, ids := digests(keys)
	g.inTx(ctx, func(tx *sql.Tx) {
		g.effect.many(ctx, tx, selected(ctx, tx, g.handBatchInsert(), ids,
			func(id sql.RawBytes) string { return byID[[16]byte(id)] }))
	})
}

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

func (g *ground) native(ctx context.Context, s *harness.Setup, connections int) *native {
	cfg := must.Get(pgxpool.ParseConfig(g.server.URL))
	cfg.MaxConns = int32(connections) //nolint:gosec // a handful
	pool := must.Get(pgxpool.NewWithConfig(ctx, cfg))
	s.Defer(func() error { pool.Close(); return nil })
	return &native{g, pool}
}

// many has the effects of a batch.
func (n *native) many(ctx context.Context, tx pgx.Tx, keys []string) error {
	text, args := n.effect.unnested(keys)
	_, err := tx.Exec(ctx, text, args...)
	return err
}

func (n *native) effectAlone(ctx context.Context, _ int, keys []string) {
	must.Do(pgx.BeginFunc(ctx, n.pool, func(tx pgx.Tx) error { return n.many(ctx, tx, keys) }))
}

func (n *native) both(ctx context.Context, _ int, keys []string) {
	must.Get(pgxv5.DoBatch(ctx, n.marks, n.pool, keys,
		func(ctx context.Context, tx pgx.Tx, first []int) error {
			return n.many(ctx, tx, chosen(keys, first))
		}))
}

// handBatch is the batch of [ground.handBatch] in this client.
func (n *native) handBatch(ctx context.Context, _ int, keys []string) {
	byID, ids := digests(keys)
	must.Do(pgx.BeginFunc(ctx, n.pool, func(tx pgx.Tx) error {
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
	}))
}
