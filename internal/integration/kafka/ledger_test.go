package kafka_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/sqladapter"
)

// sqlLedger has effects and marks in one database: level Atomic. Nothing but the marks
// keeps an effect from being written twice.
type sqlLedger struct {
	dsn         string
	write, read *sql.DB
	marks       *sqladapter.Ledger
	// inside, if set, runs between the effect and the commit.
	inside func(link *mortal, m *kafkaadapter.Message)
}

// atomic makes the scene's members record their effects in a database.
func (s *scene) atomic() *sqlLedger {
	s.t.Helper()
	marks, err := sqladapter.New(sqladapter.Config{Dialect: sqladapter.SQLite, Namespace: "t"})
	require.NoError(s.t, err)
	dsn := "file:" + filepath.Join(s.t.TempDir(), "ledger.db") +
		"?_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_txlock=immediate"
	s.ledger = &sqlLedger{dsn: dsn, write: openSQLite(s.t, dsn), read: openSQLite(s.t, dsn),
		marks: marks}
	require.NoError(s.t, marks.Migrate(s.t.Context(), s.ledger.write))
	const table = "CREATE TABLE effects (id TEXT NOT NULL, key TEXT NOT NULL, part INTEGER NOT NULL, pos INTEGER NOT NULL)"
	_, err = s.ledger.write.Exec(table)
	require.NoError(s.t, err)
	s.records = s.ledger.missing
	return s.ledger
}

// openSQLite opens a database with one connection: SQLite has one writer, and with one connection
// nobody waits for its lock.
func openSQLite(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", dsn)
	require.NoError(t, err)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// land writes the effect of a message and marks it, in one transaction. If the process has died
// meanwhile, it does not commit. If it is frozen, it commits when it thaws.
func (l *sqlLedger) land(ctx context.Context, s *scene, link *mortal,
	m *kafkaadapter.Message) error {
	tx, err := l.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	mark, err := l.marks.MarkTx(ctx, tx, m.ID)
	switch {
	case err != nil:
		return err
	case mark.Outcome == dedup.Duplicate:
		s.note(func() { s.skipped["marked"]++ })
		return nil
	case !mark.First():
		return fmt.Errorf("mark: %v, %w", mark.Outcome, mark.Err)
	}
	const insert = "INSERT INTO effects (id, key, part, pos) VALUES (?, ?, ?, ?)"
	if _, err := tx.ExecContext(ctx, insert, m.ID, string(m.Key), m.Partition,
		m.Offset); err != nil {
		return err
	}
	if l.inside != nil {
		l.inside(link, m)
	}
	done, alive := link.reach()
	defer done()
	if !alive {
		return errDead
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	s.affect(m)
	return nil
}

// missing implements records.
func (l *sqlLedger) missing(ids []string) (missing []string) {
	for _, id := range ids {
		if _, found, err := l.marks.Lookup(context.Background(), l.read, id); err != nil || !found {
			missing = append(missing, fmt.Sprintf("%s is not marked (%v)", id, err))
		}
	}
	return missing
}

// load replaces the scene's count of effects by what the database has.
func (l *sqlLedger) load(s *scene) {
	s.t.Helper()
	rows, err := l.read.Query("SELECT id, key, part, pos FROM effects ORDER BY rowid")
	require.NoError(s.t, err)
	defer func() { _ = rows.Close() }()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.order = nil
	clear(s.effects)
	for rows.Next() {
		var e effect
		require.NoError(s.t, rows.Scan(&e.id, &e.key, &e.partition, &e.offset))
		s.effects[e.id]++
		s.order = append(s.order, e)
	}
	require.NoError(s.t, rows.Err())
}
