package sqladapter

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/onceward/onceward/internal/sqlerr"
	"github.com/onceward/onceward/sqladapter/native"
)

// Retention is how marks are removed when their window has passed.
type Retention uint8

const (
	// DeleteRows keeps marks in one table. [Ledger.DeleteExpired] deletes expired marks row by row,
	// and a vacuum has to follow it.
	DeleteRows Retention = iota
	// Generations keeps marks in a series of tables without an index by age. Only the newest is
	// open for new marks. [Ledger.Rotate] seals the open table when it is a window old, opens the
	// next table, and drops the table that marks no longer look at: expiry costs nothing per row,
	// and leaves nothing to vacuum. A mark looks into two tables instead of one. This costs the
	// server about a sixth more, with MySQL a third, and with MySQL a duplicate may take one more
	// round trip. For PostgreSQL, MySQL and MariaDB. It is not for Galera, where a transaction on
	// another node does not prevent the renaming of a table.
	//
	// With PostgreSQL the first statement after a rotation fails with an error for which
	// [Retryable] is true: [Ledger.Do] and [Ledger.DoBatch] run their transactions again, and so
	// must callers of MarkTx. With MySQL this happens only to a transaction whose snapshot is older
	// than the rotation.
	//
	// The name in Config.Table is a view of all marks, for people to read.
	Generations
)

// text returns the name for errors.
func (r Retention) text() string {
	switch r {
	case DeleteRows:
		return "deletes"
	case Generations:
		return "generations"
	default:
		return "unknown"
	}
}

// A mark is inserted into the open generation unless the sealed one before it has it. An id is
// never in two generations, for this reason. A transaction that has marked in a table holds a lock
// on it until it ends. Renaming the table waits for all such locks, and afterwards the name that
// marks use is gone. So a statement that inserts into generation n finds n-1 complete, and every
// transaction that marked there ended before the statement began to read. A transaction with an
// older snapshot also sees an older number in the table of the generation, and inserts nothing.

// generations is what a Ledger knows of the series of tables.
type generations struct {
	read string // the number of the open one
	at   func(number int64) *statements
	// known has the statements of the newest generation known. It never goes back, although a
	// transaction with an old snapshot reads an old number.
	known atomic.Pointer[statements]
	// gone is the newest generation that was found sealed.
	gone atomic.Int64
}

func (m *Ledger) useGenerations(d Dialect) {
	if d == MySQL {
		m.dialect = newMySQLGenerations(m.table, m.window)
		return // their names stay, so nothing has to be remembered
	}
	m.dialect = newPostgresGenerations(m.table, m.window)
	m.generations = &generations{
		read: `SELECT generation FROM ` + m.table.state,
		at:   func(number int64) *statements { return m.dialect.inGeneration(m.table, number) },
	}
}

var (
	// errSealed says that the generation of a statement is not open any more.
	errSealed = errors.New("the table of marks has been rotated")
	// errOldSnapshot says that the transaction cannot see the marks of the sealed generation.
	errOldSnapshot = errors.New(
		"the transaction's snapshot is from before the last rotation of the table of marks")
)

// statements returns the statements for the tables that are open now, as far as m knows. If a
// rotation has come in between they fail: see rotated. It takes one round trip when m does not know
// the open generation.
func (m *Ledger) statements(ctx context.Context, tx Tx) (*statements, error) {
	g := m.generations
	if g == nil {
		if _, ok := tx.(native.Arrays); ok && m.binary != nil {
			return m.binary, nil
		}
		return m.dialect, nil
	}
	if d := g.known.Load(); d != nil && d.generation > g.gone.Load() {
		return d, nil
	}
	number, err := queryNumber(ctx, tx, g.read)
	if err != nil {
		return nil, err
	}
	return g.learn(number), nil
}

// openStatements returns the statements with which a transaction has just marked. The transaction's
// lock keeps the generation open.
func (m *Ledger) openStatements() *statements {
	if g := m.generations; g != nil {
		return g.known.Load()
	}
	return m.dialect
}

func (g *generations) learn(number int64) *statements {
	d := g.at(number)
	for {
		known := g.known.Load()
		if known != nil && known.generation >= number {
			if known.generation == number {
				return known
			}
			return d
		}
		if g.known.CompareAndSwap(known, d) {
			return d
		}
	}
}

// rotated recognizes the error of a statement that used the open name of a generation that is
// sealed.
func (m *Ledger) rotated(d *statements, err error) error {
	if m.generations == nil || !sqlerr.NoTable(err) {
		return err
	}
	for {
		gone := m.generations.gone.Load()
		if gone >= d.generation || m.generations.gone.CompareAndSwap(gone, d.generation) {
			return fmt.Errorf("%w: %w", errSealed, err)
		}
	}
}

// queryNumber reads one number.
func queryNumber(ctx context.Context, tx Tx, text string) (number int64, err error) {
	rows, err := query(ctx, tx, statement{text: text})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	if !rows.Next() {
		return 0, errors.Join(rows.Err(), errors.New("no generation is on record; call Migrate"))
	}
	return number, rows.Scan(&number)
}

// checkKind refuses tables that were made for another Retention.
func (m *Ledger) checkKind(ctx context.Context, tx Tx) error {
	if m.dialect.kind == "" {
		return nil
	}
	var other int64
	if err := m.alone(ctx, tx, func(q Tx) error {
		return scanOne(ctx, q, m.dialect.kind, &other)
	}); err != nil {
		return err
	}
	if other != 0 {
		return inputError("Retention",
			fmt.Sprintf("is %v, but table %s has been made for another kind; name another table",
				m.retention, m.table.full))
	}
	return nil
}
