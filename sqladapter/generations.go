package sqladapter

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/onceward/onceward/internal/sqlerr"
	"github.com/onceward/onceward/sqladapter/native"
)

// Retention is how marks go when their window has passed.
type Retention uint8

const (
	// DeleteRows keeps marks in one table. [Ledger.DeleteExpired] deletes those that have expired
	// row by row, and a vacuum has to follow it.
	DeleteRows Retention = iota
	// Generations keeps marks in a row of tables, of which only the newest is open for more, and
	// without an index by age. [Ledger.Rotate] seals the open one when it is a window old, opens
	// the next, and drops the one that is not looked at any more: expiry costs nothing per row, and
	// leaves nothing to vacuum. A mark looks into two tables instead of one, which costs the
	// server about a sixth more, with MySQL a third, where a duplicate may cost one more round
	// trip, too. For PostgreSQL, MySQL and MariaDB. Not for Galera, where a transaction on another
	// node does not keep a table from being renamed.
	//
	// With PostgreSQL a rotation is learned from an error, for which [Retryable] is true:
	// [Ledger.Do] and [Ledger.DoBatch] run their transactions again, and so must callers of MarkTx.
	// With MySQL it is so only for a transaction whose snapshot is older than the rotation.
	//
	// The name in Config.Table is a view of all marks, to be read by people.
	Generations
)

// text is the name for errors.
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

// A mark is inserted into the open generation unless the sealed one before it has it. Why an id
// is in no two of them: whoever has marked in a table holds a lock on it until its transaction
// ends. To rename it takes a lock that waits for all of those, and afterwards the name by which
// it could be marked in is gone. So who inserts into generation n finds n-1 complete, and
// everything in it ended before the statement began to read. A transaction that keeps an older
// snapshot than that sees an older number in the table of the generation, too, and inserts
// nothing.

// generations is what a Ledger knows of the tables in turn.
type generations struct {
	read string // the number of the open one
	at   func(number int64) *statements
	// known is the newest that was heard of. It never goes back: a transaction with an old
	// snapshot reads an old number.
	known atomic.Pointer[statements]
	// gone is the newest that was found sealed.
	gone atomic.Int64
}

func (m *Ledger) useGenerations(d Dialect) {
	if d == MySQL {
		m.dialect = newMySQLGenerations(m.table, m.window)
		return // their names stay, so there is nothing to know of them
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
	// errOldSnapshot says that marks of the sealed generation cannot be seen.
	errOldSnapshot = errors.New(
		"the transaction's snapshot is from before the last rotation of the table of marks")
)

// statements are those for the tables that are open now, to the best of what is known: when it
// is not so they fail, see rotated. One round trip when it is not known.
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

// openStatements are those that a transaction has just marked with: it keeps its generation open.
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

// rotated looks for the error of a statement that names a sealed generation as the open one.
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

// checkKind refuses tables that another kind of retention has made.
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
