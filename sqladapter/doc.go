// Package sqladapter records a message in the very transaction that holds its effect,
// so that both are committed or neither is: level Atomic, an effect exactly once within
// the window.
//
//	_, err := ledger.Do(ctx, db, message.ID, func(ctx context.Context, tx *sql.Tx) error {
//		_, err := tx.ExecContext(ctx, `UPDATE account SET ...`) // the effect
//		return err
//	})
//	if err != nil { return err }                // do not acknowledge
//
// [Ledger.Do] runs the transaction, again when it deadlocks or loses its connection;
// [Ledger.DoBatch] has the effects of many messages in one. [Ledger.MarkTx] and
// [Ledger.MarkBatchTx] are for a transaction that is the caller's own:
//
//	tx, err := db.BeginTx(ctx, nil)
//	...
//	mark, err := ledger.MarkTx(ctx, tx, message.ID)
//	if err != nil { return err }                // roll back, do not acknowledge
//	if mark.First() {
//		_, err = tx.ExecContext(ctx, `UPDATE account SET ...`) // the effect
//	}
//	err = tx.Commit()                           // only then acknowledge
//
// The arbiter is a unique index on a 128-bit digest of the key, or, with [Config.IDTime], on the
// key's own time and 96 bits of the digest. Whoever inserts first
// runs the effect. Another transaction with the same key waits for the first to end: it
// finds a [dedup.Duplicate] when that one committed, and becomes the first itself when
// it rolled back. Its own transaction stays usable either way.
//
// # Which transactions
//
// The package needs a database/sql transaction and no driver. [Tx] is one method, so
// a wrapper of a *sql.Tx fits too: a *sqlx.Tx, the Statement.ConnPool of gorm, the Tx field of a
// bun.Tx (not bun.Tx, which replaces placeholders by itself, and fails). The other way round
// those libraries, and ent's driver, can be handed the *sql.Tx that Do has begun. Package
// sqladapter/pgxv5 is for pgx. PostgreSQL, MySQL and MariaDB, and SQLite (3.35 or newer) are
// supported.
//
// PostgreSQL: READ COMMITTED, the default, is the level to use. At REPEATABLE READ and SERIALIZABLE
// the loser of a race gets SQLSTATE 40001 instead of an answer and its transaction must be run
// again from BEGIN; [Retryable] recognizes that. Waiting for the first transaction is bounded by
// lock_timeout, when that is set: the answer is then [dedup.ErrInFlight] and the transaction is
// aborted. A COMMIT or ROLLBACK that an effect sends as text ends the transaction without *sql.Tx
// noticing. Do, DoBatch, a Fence and a Runner see it before their COMMIT, at the cost of one round
// trip with database/sql, none with pgxv5 and none in a Runner. MarkTx refuses a *sql.Conn on which
// no transaction was begun; a *sql.Tx is not asked. A primary that was demoted answers 25006: the
// transactions of Do go to another connection; for your own set target_session_attrs=read-write
// (MySQL, go-sql-driver: rejectReadOnly=true), so that the pool drops it.
//
// SQLite: begin with BEGIN IMMEDIATE (most drivers: _txlock=immediate) and set a busy_timeout, or
// let MarkTx be the first statement. A transaction that reads first and marks later can fail with
// SQLITE_BUSY_SNAPSHOT whatever the timeout; [Retryable] recognizes that as well. A statement that
// writes and is interrupted because its own context has ended, or finds the disk full, ends the
// whole transaction; *sql.Tx does not know, and what it runs next is committed by itself, without a
// record. So open the pool with [OpenSQLite], which refuses what comes next; otherwise an effect
// must return the first error of a statement. Without it Do, a Fence and a Runner see at their
// COMMIT what has happened, and return an error that is not [Retryable]: nothing is recorded, but
// what has been written since then stays. MarkTx refuses a transaction that is not open.
//
// MySQL and MariaDB: batches that overlap do not deadlock over marks and results at any level, as
// long as nobody rolls back. When the transaction that has marked a key rolls back, those that wait
// for the key get its gap together, and each waits for the others to insert into it: InnoDB ends
// some of them with 1213. Measured on MariaDB 10.11, eight callers of one key and every second
// effect failing: about two deadlocks a key. Do and DoBatch run theirs again, and every effect is
// still had once; a transaction of your own gets a [Retryable] error. PostgreSQL has none of these.
// For a transaction of the caller's own that saves results READ COMMITTED is the level to use.
// Above it a transaction that meets a duplicate without a result locks the gap where that would be.
// Two that have that lock, and want to save a result there, deadlock. The lock wait timeout, 50 s
// by default, bounds the wait and is answered with [dedup.ErrInFlight]; it undoes its statement
// alone. After a deadlock the server has rolled back, and *sql.Tx does not know: the next statement
// would be committed by itself. So roll back after every error. Do sees to all that, whatever the
// effect does with an error; MarkTx refuses a transaction that is not open, which it cannot tell
// with autocommit off. The driver must not be told to report found rows (clientFoundRows): Migrate
// and Check see. Go-sql-driver's COMMIT watches no context: its readTimeout alone bounds the wait
// for a server that is out of reach. Statements that commit by themselves, TRUNCATE, LOCK TABLES
// and DDL, have no place in a transaction with a mark.
//
// Package sqladapter/sqlserver has the dialect of SQL Server, which is experimental.
//
// # When Commit returns an error
//
// The commit may have happened. Do not acknowledge; run the whole transaction again,
// MarkTx included. Its INSERT waits for a backend that is still committing, so it finds
// the mark when the first try succeeded and runs the effect when it did not. A plain
// SELECT would not do: it can say "absent" while the commit is under way. Do does all of
// this by itself; [Ledger.Confirm] only asks, for those who cannot run it again.
//
// # Requests
//
// [Runner] is what package httpadapter needs to have a request's effect, its record and its
// response in one transaction:
//
//	run, err := ledger.Runner(db)
//	once, err := httpadapter.New(run, scope, httpadapter.Config{})
//	mux.Handle("/payments", once.Handler(pay)) // pay writes through TxFrom(r.Context())
//
// # How long
//
// A mark lives until [Ledger.DeleteExpired] removes it, and a duplicate that arrives
// after that runs again. Config.Window must exceed the longest time after which a
// message can still be delivered: the topic's retention, a provider's retry schedule.
// With [Generations] it is [Ledger.Rotate] that removes them, a table at a time.
// Namespaces that share a table share the longest of their windows; it is on record there.
//
// # Effects elsewhere
//
// An effect that cannot be in the transaction, a request or a mail, is level Claimed: package
// sqladapter/sqlstore has a store for dedup.New in a table.
package sqladapter
