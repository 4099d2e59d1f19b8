// Package sqlserver is experimental: it has the dialect of SQL Server for the ledger of package
// sqladapter. This project's tests have never run against a real SQL Server.
//
//	ledger, err := sqladapter.New(sqladapter.Config{Dialect: sqlserver.Dialect, Namespace: "payments"})
//
// The tests compare the text of the statements, use a scripted driver, and run go-mssqldb against a
// fake server that behaves as the documentation says. Migrate and Check of the ledger verify on
// your server what the dialect relies on. It is for a ledger with DeleteRows. A Fence, a Runner, a
// store and package sqlpreflight refuse it.
//
// A duplicate leaves the transaction usable, whatever XACT_ABORT says. A mark waits as long as
// LOCK_TIMEOUT allows, without end by default; the answer is then dedup.ErrInFlight. The server
// rolls back after a deadlock, and under XACT_ABORT after any error. go-mssqldb before 1.10 still
// sends later statements, and each commits by itself. So roll back after every error. MarkTx
// refuses a transaction that is not open.
//
// Do sets XACT_ABORT and IMPLICIT_TRANSACTIONS for its transaction and puts them back, and commits
// only the transaction that it has begun, at three round trips more. Batches are in order here too,
// but the server does not promise to insert in that order: Do runs a transaction that deadlocks
// again. With delayed durability a crash can lose mark and effect together, even of a message that
// was acknowledged.
package sqlserver

import "github.com/onceward/onceward/sqladapter/internal/dialect"

// Dialect is the dialect of SQL Server 2016 or newer, and of Azure SQL Database.
const Dialect = dialect.SQLServer
