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
// [Ledger.Do] runs the transaction, and runs it again when it deadlocks or loses its connection.
// [Ledger.DoBatch] puts the effects of many messages into one transaction. [Ledger.MarkTx] and
// [Ledger.MarkBatchTx] are for a transaction of your own:
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
// key's own time and 96 bits of the digest. The transaction that inserts first runs the effect.
// Another transaction with the same key waits for the first to end. If the first committed, the
// other finds a [dedup.Duplicate]; if it rolled back, the other becomes the first. The other
// transaction stays usable either way.
//
// # Which transactions
//
// The package needs a database/sql transaction and no driver. [Tx] has one method, so a wrapper of
// a *sql.Tx fits too: a *sqlx.Tx, the Statement.ConnPool of gorm, the Tx field of a bun.Tx (not
// bun.Tx, which replaces placeholders by itself, and fails). You can also pass the *sql.Tx that Do
// has begun to those libraries and to ent's driver. Package [pgxv5] is for pgx.
// PostgreSQL, MySQL and MariaDB, and SQLite (3.35 or newer) are supported.
//
// PostgreSQL: READ COMMITTED, the default, is the level to use. At REPEATABLE READ and SERIALIZABLE
// the loser of a race gets SQLSTATE 40001 instead of an answer, and its transaction must be run
// again from BEGIN; [Retryable] recognizes that. A lock_timeout, when set, bounds the wait for the
// first transaction: after it the answer is [dedup.ErrInFlight] and the transaction is aborted. A
// COMMIT or ROLLBACK that an effect sends as text ends the transaction without *sql.Tx noticing.
// Do, DoBatch, a Fence and a Runner see it before their COMMIT, at the cost of one round trip with
// database/sql, none with pgxv5 and none in a Runner. MarkTx refuses a *sql.Conn on which no
// transaction was begun; it does not check a *sql.Tx. A demoted primary answers 25006, and Do runs
// its transaction on another connection. For your own transactions set
// target_session_attrs=read-write (MySQL, go-sql-driver: rejectReadOnly=true), so that the pool
// drops the connection.
//
// SQLite: begin with BEGIN IMMEDIATE (most drivers: _txlock=immediate) and set a busy_timeout, or
// let MarkTx be the first statement. A transaction that reads first and marks later can fail with
// SQLITE_BUSY_SNAPSHOT whatever the timeout; [Retryable] recognizes that as well. A write ends the
// whole transaction when its own context ends and interrupts it, or when the disk is full. *sql.Tx
// does not notice, and each statement that it runs next commits by itself, without a record. So
// open the pool with [OpenSQLite], which refuses those statements; otherwise an effect must return
// the first error of a statement. Without OpenSQLite, Do, a Fence and a Runner notice at their
// COMMIT, and return an error that is not [Retryable]: nothing is recorded, but what the effect has
// written since then stays. MarkTx refuses a transaction that is not open.
//
// MySQL and MariaDB: batches that overlap do not deadlock over marks and results at any level, as
// long as nobody rolls back. When the transaction that has marked a key rolls back, all
// transactions that wait for the key get the lock of its gap. Then each waits for the others before
// it can insert, and InnoDB ends some of them with 1213. Measured on MariaDB 10.11, with eight
// callers of one key and every second effect failing: about two deadlocks a key. Do and DoBatch run
// theirs again, and every effect still happens once; a transaction of your own gets a [Retryable]
// error. PostgreSQL has no such deadlocks. Use READ COMMITTED for a transaction of your own that
// saves results. Above that level a transaction that meets a duplicate without a result locks the
// gap where the result would be. Two transactions deadlock when both have that lock and want to
// save a result there. The lock wait timeout, 50 s by default, bounds the wait and is answered with
// [dedup.ErrInFlight]; it undoes only its own statement. After a deadlock the server has rolled
// back, and *sql.Tx does not notice: the next statement would commit by itself. So roll back after
// every error. Do takes care of all that, whatever the effect does with an error. MarkTx refuses a
// transaction that is not open, which it cannot tell when autocommit is off. The driver must not
// report found rows (clientFoundRows): Migrate and Check refuse it. Go-sql-driver's COMMIT watches
// no context: only its readTimeout bounds the wait for a server that is out of reach. Do not use
// statements that commit by themselves (TRUNCATE, LOCK TABLES and DDL) in a transaction with a
// mark.
//
// Package [sqlserver] has the dialect of SQL Server, which is experimental.
//
// # When Commit returns an error
//
// The commit may have happened. Do not acknowledge; run the whole transaction again, MarkTx
// included. Its INSERT waits for a backend that is still committing, so it finds the mark when the
// first try succeeded and runs the effect when it did not. A plain SELECT is not enough: it can say
// "absent" while the commit is under way. Do does all of this by itself. If you cannot run the
// transaction again, [Ledger.Confirm] only asks what became of it.
//
// # Requests
//
// Package [httpadapter] needs a [Runner] to put a request's effect, its record and its response
// into one transaction:
//
//	run, err := ledger.Runner(db)
//	once, err := httpadapter.New(run, scope, httpadapter.Config{})
//	mux.Handle("/payments", once.Handler(pay)) // pay writes through TxFrom(r.Context())
//
// # How long
//
// A mark lives until [Ledger.DeleteExpired] removes it, and a duplicate that arrives
// after that runs again. Config.Window must exceed the longest time after which a
// message can still be delivered: the topic's retention, a provider's retry schedule. With
// [Generations], [Ledger.Rotate] removes marks, a table at a time. Namespaces that share a table
// share the longest of their windows, which is on record in the database.
//
// # Effects elsewhere
//
// An effect that cannot be in the transaction, such as a request or a mail, needs level Claimed:
// package [sqlstore] keeps a store for [dedup.New] in a table.
//
// [pgxv5]: https://pkg.go.dev/github.com/onceward/onceward/sqladapter/pgxv5
// [sqlserver]: https://pkg.go.dev/github.com/onceward/onceward/sqladapter/sqlserver
// [sqlstore]: https://pkg.go.dev/github.com/onceward/onceward/sqladapter/sqlstore
// [httpadapter]: https://pkg.go.dev/github.com/onceward/onceward/httpadapter
package sqladapter
