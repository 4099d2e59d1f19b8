package sqladapter

import "fmt"

// Severity says how bad a [Finding] is.
type Severity uint8

const (
	// Note is worth knowing and loses nothing.
	Note Severity = iota
	// Warning may lose records, or effects, when something else fails too.
	Warning
	// Critical will lose records, or takes different keys for the same, or cannot work at all.
	Critical
)

// String returns the lower-case name.
func (s Severity) String() string {
	switch s {
	case Note:
		return "note"
	case Warning:
		return "warning"
	case Critical:
		return "critical"
	}
	return fmt.Sprintf("severity(%d)", uint8(s))
}

// Code names the kind of a [Finding], for metrics and alarms.
type Code string

// What [Preflight] finds of any database.
const (
	// CodeReadOnly: a standby, or a server or session that takes no writes.
	CodeReadOnly Code = "read_only"
	// CodeIsolation: the default level is above READ COMMITTED.
	CodeIsolation Code = "isolation"
	// CodeNoTable: a table that was named is not there.
	CodeNoTable Code = "no_table"
	// CodeNoUniqueIndex: nothing keeps a key from being there twice.
	CodeNoUniqueIndex Code = "no_unique_index"
	// CodeNoRetentionIndex: removing the oldest rows reads all of them.
	CodeNoRetentionIndex Code = "no_retention_index"
	// CodeCollation: a unique column of text is compared by a collation.
	CodeCollation Code = "collation"
	// CodeNotSeen: something could not be looked at.
	CodeNotSeen Code = "not_seen"
)

// What it finds of PostgreSQL.
const (
	// CodeSynchronousCommit: COMMIT is answered before it is on disk.
	CodeSynchronousCommit Code = "synchronous_commit"
	// CodeFsync: nothing is ever forced to the disk.
	CodeFsync Code = "fsync"
	// CodeFullPageWrites: a page that was torn by a crash stays torn.
	CodeFullPageWrites Code = "full_page_writes"
	// CodeUnlogged: a table that a crash empties.
	CodeUnlogged Code = "unlogged"
	// CodeIdleInTransaction: an owner that hangs holds its keys for ever.
	CodeIdleInTransaction Code = "idle_in_transaction"
	// CodeSimpleProtocol: the driver writes parameters into the text of statements.
	CodeSimpleProtocol Code = "simple_protocol"
)

// What it finds of MySQL and MariaDB.
const (
	// CodeFlushLog: COMMIT is answered before it is on disk.
	CodeFlushLog Code = "innodb_flush_log_at_trx_commit"
	// CodeSyncBinlog: the log that replicas read is behind what is committed.
	CodeSyncBinlog Code = "sync_binlog"
	// CodeFoundRows: the connection counts rows that were found for changed.
	CodeFoundRows Code = "client_found_rows"
	// CodeAutocommit: what follows a transaction that the server has ended is committed.
	CodeAutocommit Code = "autocommit"
	// CodeLockWait: a loser waits for long.
	CodeLockWait Code = "innodb_lock_wait_timeout"
	// CodeEngine: a table without transactions.
	CodeEngine Code = "engine"
)

// What it finds of SQLite.
const (
	// CodeJournal: no journal that survives a crash.
	CodeJournal Code = "journal_mode"
	// CodeSynchronous: COMMIT is answered before it is on disk.
	CodeSynchronous Code = "synchronous"
	// CodeBusyTimeout: who meets another writer fails at once.
	CodeBusyTimeout Code = "busy_timeout"
	// CodeTxLock: transactions begin as readers.
	CodeTxLock Code = "txlock"
	// CodeInMemory: the database is gone with its connection.
	CodeInMemory Code = "in_memory"
)

// Finding is one thing about a database, a table, or the way to it, that an operator should
// know. The texts are English sentences without names of keys.
type Finding struct {
	Code     Code
	Severity Severity
	// Server is where it was found: host and port, or a file.
	Server string
	// Detail is what was seen, Why what follows from it, and Fix what to do about it.
	Detail, Why, Fix string
}

// String is the finding on one line.
func (f Finding) String() string {
	where := ""
	if f.Server != "" {
		where = " at " + f.Server
	}
	return fmt.Sprintf("%s: %s%s: %s; %s; %s", f.Severity, f.Code, where, f.Detail, f.Why, f.Fix)
}

// advice is what does not depend on the database that was looked at.
type advice struct {
	severity Severity
	why, fix string
}

const lostCommits = "a crash of the machine loses commits that were answered: the effect, its record, and, acknowledged, the message"

var advices = map[Code]advice{
	CodeReadOnly: {Critical, "nothing can be recorded", "connect to the primary"},
	CodeIsolation: {Note,
		"concurrent duplicates meet serialization failures or more locks, and are run again",
		"set the default to READ COMMITTED, or Config.Isolation"},
	CodeNoTable: {Critical, "every call fails", "migrate, or name the schema that holds it"},
	CodeNoUniqueIndex: {Critical,
		"the unique index is the arbiter: without it every duplicate is the first",
		"remove the duplicates and create the primary key again"},
	CodeNoRetentionIndex: {Warning, "removing what has expired reads the whole table each time",
		"create the index that the migration has"},
	CodeCollation: {Critical,
		"different keys are the same to it, and the second message is lost",
		"make the column binary"},
	CodeNotSeen: {Note, "what it would have told is not known", "look at it by hand"},

	CodeSynchronousCommit: {Warning, lostCommits, "set synchronous_commit to on"},
	CodeFsync: {Critical,
		"a crash of the machine loses commits and may leave indexes that miss rows",
		"set fsync to on"},
	CodeFullPageWrites: {Critical,
		"a crash in the midst of a page leaves it torn, the unique index too",
		"set full_page_writes to on"},
	CodeUnlogged: {Critical,
		"it is empty after a crash, and on a standby: what is delivered again runs again",
		"ALTER TABLE ... SET LOGGED"},
	CodeIdleInTransaction: {Note,
		"a process that hangs in a transaction holds its keys, and whoever has them too waits for it",
		"set idle_in_transaction_session_timeout for this role"},
	CodeSimpleProtocol: {Warning,
		"pgx 5.9 to 5.12 was seen to run a statement twice in this mode after a lost reply",
		"use the driver's default mode, or exec behind a pooler"},

	CodeFlushLog: {Warning, lostCommits, "set innodb_flush_log_at_trx_commit to 1"},
	CodeSyncBinlog: {Warning,
		"after a crash replicas may lack, or have too much of, what the server has",
		"set sync_binlog to 1"},
	CodeFoundRows: {Critical, "a duplicate looks like the first, and runs again",
		"remove clientFoundRows from the DSN"},
	CodeAutocommit: {Note,
		"after a deadlock the server has ended the transaction, and what a *sql.Tx runs next is committed by itself",
		"begin with Do, or open the pool with autocommit=0 and roll back after every error"},
	CodeLockWait: {Note, "a loser waits so long for a winner that hangs",
		"set innodb_lock_wait_timeout to what a delivery may wait"},
	CodeEngine: {Critical, "it has no transactions: a record outlives the rollback of its effect",
		"ALTER TABLE ... ENGINE=InnoDB"},

	CodeJournal: {Critical, "a crash in a transaction leaves the file as it is, half written",
		"PRAGMA journal_mode = WAL"},
	CodeSynchronous: {Warning, lostCommits, "PRAGMA synchronous = FULL"},
	CodeBusyTimeout: {Warning, "who meets another writer fails at once",
		"set a busy timeout of some seconds"},
	CodeTxLock: {Warning,
		"one that reads before it writes can fail whatever the busy timeout is",
		"begin with BEGIN IMMEDIATE (_txlock=immediate)"},
	CodeInMemory: {Critical,
		"it is gone with the connection, and two connections have two of them", "use a file"},
}

func finding(code Code, format string, args ...any) Finding {
	a := advices[code]
	return Finding{Code: code, Severity: a.severity, Detail: fmt.Sprintf(format, args...),
		Why: a.why, Fix: a.fix}
}

// as has another severity than its kind.
func (f Finding) as(s Severity) Finding {
	f.Severity = s
	return f
}
