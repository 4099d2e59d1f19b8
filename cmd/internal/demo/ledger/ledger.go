// Package ledger records every effect of the demo's workers.
//
// It only appends, and ids need not be unique: an effect that happens twice has two rows, and a
// lost effect has none.
package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	_ "modernc.org/sqlite" // driver "sqlite"

	"github.com/onceward/onceward/sqladapter"
)

// Table is the table of effects. The marks of the Atomic composition are in Table + "_marks".
const Table = "effects"

const ddl = `
CREATE TABLE effects (seq INTEGER PRIMARY KEY AUTOINCREMENT, composition TEXT NOT NULL,
	id TEXT NOT NULL, worker TEXT NOT NULL, part INTEGER NOT NULL, pos BIGINT NOT NULL,
	generation INTEGER NOT NULL);
CREATE INDEX effects_by_id ON effects (composition, id); -- not unique`

// Row is one effect of a message, with its worker and delivery.
type Row struct {
	ID         string
	Worker     string
	Partition  int32
	Offset     int64
	Generation int32 // of the consumer group
}

// Ledger is an open ledger. It is safe for concurrent use.
type Ledger struct {
	// DB holds the table, for transactions of the caller. Close closes it.
	*sql.DB
}

// Queryer runs a statement: a *sql.DB or a *sql.Tx.
type Queryer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Open opens the ledger in a SQLite file without touching the file.
func Open(file string) (*Ledger, error) {
	db, err := sql.Open("sqlite", "file:"+file+"?_txlock=immediate&_pragma=busy_timeout(10000)"+
		"&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)")
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	// One connection: SQLite has one writer, and a queue in the process is fairer than SQLite's
	// busy handler. The timeout is for the other processes.
	db.SetMaxOpenConns(1)
	return &Ledger{db}, nil
}

// Create makes the tables of effects and of marks.
func (l *Ledger) Create(ctx context.Context) error {
	if _, err := l.ExecContext(ctx, ddl); err != nil {
		return fmt.Errorf("ledger: create: %w", err)
	}
	marks, err := Records("any")
	if err != nil {
		return err
	}
	return marks.Migrate(ctx, l.DB)
}

// Records returns the marks that the Atomic composition keeps next to the ledger.
func Records(namespace string) (*sqladapter.Ledger, error) {
	return sqladapter.New(sqladapter.Config{Dialect: sqladapter.SQLite, Namespace: namespace,
		Table: Table + "_marks"})
}

// Append writes one effect.
func Append(ctx context.Context, q Queryer, composition string, r Row) error {
	_, err := q.ExecContext(ctx, `INSERT INTO effects
		(composition, id, worker, part, pos, generation) VALUES ($1, $2, $3, $4, $5, $6)`,
		composition, r.ID, r.Worker, r.Partition, r.Offset, r.Generation)
	return err
}

// First returns the first effect of an id, and false if there is none.
func First(ctx context.Context, q Queryer, composition, id string) (Row, bool, error) {
	r := Row{ID: id}
	err := q.QueryRowContext(ctx, `SELECT worker, part, pos, generation FROM effects
		WHERE composition = $1 AND id = $2 ORDER BY seq LIMIT 1`, composition, id).
		Scan(&r.Worker, &r.Partition, &r.Offset, &r.Generation)
	if errors.Is(err, sql.ErrNoRows) {
		return r, false, nil
	}
	return r, err == nil, err
}

// Count returns the number of effects of every id.
func (l *Ledger) Count(ctx context.Context, composition string) (map[string]int, error) {
	rows, err := l.QueryContext(ctx,
		`SELECT id, COUNT(*) FROM effects WHERE composition = $1 GROUP BY id`, composition)
	if err != nil {
		return nil, fmt.Errorf("ledger: count: %w", err)
	}
	defer rows.Close() //nolint:errcheck // rows.Err tells
	counts := make(map[string]int)
	for rows.Next() {
		var id string
		var n int
		if err := rows.Scan(&id, &n); err != nil {
			return nil, fmt.Errorf("ledger: count: %w", err)
		}
		counts[id] = n
	}
	return counts, rows.Err()
}
