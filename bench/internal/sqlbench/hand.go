package sqlbench

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/onceward/onceward/sqladapter"
)

// What is written by hand writes the same columns into the same table, for an insert is dearer
// in a larger one, and does not look at anything that can go wrong.

// handEach is a transaction for every message: what programs have that know no batches.
func (g *ground) handEach(ctx context.Context, _ int, keys []string) error {
	insert := handInsert[g.server.Dialect](g.name)
	for _, key := range keys {
		err := g.inTx(ctx, func(tx *sql.Tx) error {
			id := digest(key)
			done, err := tx.ExecContext(ctx, insert, handID(g.server.Dialect, id))
			if err != nil {
				return err
			}
			if n, err := done.RowsAffected(); err != nil || n == 0 {
				return errors.Join(err, errors.New("sqlbench: a fresh key is there"))
			}
			return g.effect.single(ctx, tx, key)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// handInsert is the statement for one key. Stamps are whatever the clock says.
var handInsert = map[sqladapter.Dialect]func(table string) string{
	sqladapter.Postgres: func(table string) string {
		return `INSERT INTO ` + table + ` (id, stamp) VALUES ($1::uuid, ` + handStamp +
			`) ON CONFLICT (id) DO NOTHING`
	},
	sqladapter.MySQL: func(table string) string {
		return `INSERT INTO ` + table + ` (id, owner) VALUES (?, 1) ON DUPLICATE KEY UPDATE id = id`
	},
	sqladapter.SQLite: func(table string) string {
		return `INSERT INTO ` + table +
			` (id, stamp) VALUES (?, unixepoch() * 1000 << 20) ON CONFLICT (id) DO NOTHING`
	},
}

const handStamp = `(SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint << 20)`

func digest(key string) []byte {
	sum := sha256.Sum256([]byte(key))
	return sum[:16]
}

func handID(d sqladapter.Dialect, id []byte) any {
	if d == sqladapter.Postgres {
		return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
	}
	return id
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
		ids[i] = [16]byte(digest(key))
		byID[ids[i]] = key
	}
	slices.SortFunc(ids, func(a, b [16]byte) int { return bytes.Compare(a[:], b[:]) })
	return byID, ids
}

// handBatch is the batch by hand, for PostgreSQL: one INSERT of the records, and one for the
// effects of those that are new.
func (g *ground) handBatch(ctx context.Context, _ int, keys []string) error {
	byID, ids := digests(keys)
	return g.inTx(ctx, func(tx *sql.Tx) error {
		fresh, err := inserted(ctx, tx, g.handBatchInsert(), ids, byID)
		if err != nil {
			return err
		}
		return g.effect.many(ctx, tx, fresh)
	})
}

func inserted(ctx context.Context, tx *sql.Tx, insert string, ids [][16]byte,
	byID map[[16]byte]string) (fresh []string, err error) {
	rows, err := tx.QueryContext(ctx, insert, ids)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	fresh = make([]string, 0, len(ids))
	for rows.Next() {
		var id sql.RawBytes
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		fresh = append(fresh, byID[[16]byte(id)])
	}
	return fresh, rows.Err()
}
