// Package sqlserver is experimental: it has the dialect of SQL Server for the ledger of package
// sqladapter, which this project's tests have never run against a real server.
//
//	ledger, err := sqladapter.New(sqladapter.Config{Dialect: sqlserver.Dialect, Namespace: "payments"})
//
// The tests compare the text of the statements, script a driver, and play the documentation of the
// server behind go-mssqldb. Migrate and Check of the ledger look on your server at what the dialect
// relies on. It is for a ledger with DeleteRows. A Fence, a Runner, a store and package
// sqlpreflight refuse it.
//
// A duplicate leaves the transaction usable, whatever XACT_ABORT says. A mark waits as long as
// LOCK_TIMEOUT allows, without end by default; the answer is then dedup.ErrInFlight. The server
// rolls back after a deadlock, and under XACT_ABORT after any error. go-mssqldb before 1.10 then
// sends later statements to be committed by themselves, so roll back after every error. MarkTx
// refuses a transaction that is not open.
//
// Do sets XACT_ABORT and IMPLICIT_TRANSACTIONS for its transaction and puts them back, and commits
// only the transaction that it has begun, at three round trips more. Batches are in order here too,
// but the server promises no order of its inserts: a deadlock is run again. With delayed durability
// a crash takes mark and effect together, of a message that may have been acknowledged.
package sqlserver

import "github.com/onceward/onceward/sqladapter/internal/dialect"

// Dialect is that of SQL Server 2016 or newer, and of Azure SQL Database.
const Dialect = dialect.SQLServer
