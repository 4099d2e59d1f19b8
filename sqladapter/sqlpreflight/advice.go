package sqlpreflight

import (
	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/internal/advice"
)

// The codes of the findings of [Run]. docs/reference/findings.md says what each means. Metrics and
// alarms use them, so a code never changes.
const (
	// For any database.
	codeReadOnly         = "read_only"
	codeIsolation        = "isolation"
	codeNoTable          = "no_table"
	codeNoUniqueIndex    = "no_unique_index"
	codeNoRetentionIndex = "no_retention_index"
	codeCollation        = "collation"
	codeNotSeen          = "not_seen"

	// For PostgreSQL.
	codeSynchronousCommit = "synchronous_commit"
	codeFsync             = "fsync"
	codeFullPageWrites    = "full_page_writes"
	codeUnlogged          = "unlogged"
	codeIdleInTransaction = "idle_in_transaction"
	codeSimpleProtocol    = "simple_protocol"

	// For MySQL and MariaDB.
	codeFlushLog   = "innodb_flush_log_at_trx_commit"
	codeSyncBinlog = "sync_binlog"
	codeFoundRows  = "client_found_rows"
	codeAutocommit = "autocommit"
	codeLockWait   = "innodb_lock_wait_timeout"
	codeEngine     = "engine"

	// For SQLite.
	codeJournal     = "journal_mode"
	codeSynchronous = "synchronous"
	codeBusyTimeout = "busy_timeout"
	codeTxLock      = "txlock"
	codeInMemory    = "in_memory"
)

const lostCommits = "a crash of the machine loses commits that were answered: " +
	"the effect and its record, of a message that is acknowledged"

var advices = advice.Table{
	codeReadOnly: {Severity: preflight.Critical,
		Why: "nothing can be recorded",
		Fix: "connect to the primary"},
	codeIsolation: {Severity: preflight.Note,
		Why: "concurrent duplicates meet serialization failures or more locks, and are run again",
		Fix: "set the default to READ COMMITTED, or Config.Isolation"},
	codeNoTable: {Severity: preflight.Critical,
		Why: "every call fails",
		Fix: "migrate, or name the schema that holds it"},
	codeNoUniqueIndex: {Severity: preflight.Critical,
		Why: "the unique index is the arbiter: without it every duplicate is the first",
		Fix: "remove the duplicates and create the primary key again"},
	codeNoRetentionIndex: {Severity: preflight.Warning,
		Why: "removing what has expired reads the whole table each time",
		Fix: "create the index that the migration has"},
	codeCollation: {Severity: preflight.Critical,
		Why: "different keys are the same to it, and the second message is lost",
		Fix: "make the column binary"},
	codeNotSeen: {Severity: preflight.Note,
		Why: "it may be set so that records are lost",
		Fix: "look at it by hand"},
	codeSynchronousCommit: {Severity: preflight.Warning,
		Why: lostCommits,
		Fix: "set synchronous_commit to on"},
	codeFsync: {Severity: preflight.Critical,
		Why: "a crash of the machine loses commits and may leave indexes that miss rows",
		Fix: "set fsync to on"},
	codeFullPageWrites: {Severity: preflight.Critical,
		Why: "a crash can leave half of a page written, also of the unique index",
		Fix: "set full_page_writes to on"},
	codeUnlogged: {Severity: preflight.Critical,
		Why: "it is empty after a crash, and on a standby: redelivered messages run again",
		Fix: "ALTER TABLE ... SET LOGGED"},
	codeIdleInTransaction: {Severity: preflight.Note,
		Why: "a process that hangs in a transaction holds its keys, and every process with one of " +
			"them waits for it",
		Fix: "set idle_in_transaction_session_timeout for this role"},
	codeSimpleProtocol: {Severity: preflight.Warning,
		Why: "pgx 5.9 to 5.12 was seen to run a statement twice in this mode after a lost reply",
		Fix: "use the driver's default mode, or exec behind a pooler"},
	codeFlushLog: {Severity: preflight.Warning,
		Why: lostCommits,
		Fix: "set innodb_flush_log_at_trx_commit to 1"},
	codeSyncBinlog: {Severity: preflight.Warning,
		Why: "after a crash replicas may lack, or have too much of, what the server has",
		Fix: "set sync_binlog to 1"},
	codeFoundRows: {Severity: preflight.Critical,
		Why: "a duplicate looks like the first, and runs again",
		Fix: "remove clientFoundRows from the DSN"},
	codeAutocommit: {Severity: preflight.Note,
		Why: "after a deadlock the server has ended the transaction, and what a *sql.Tx runs next is " +
			"committed by itself",
		Fix: "begin with Do, or open the pool with autocommit=0 and roll back after every error"},
	codeLockWait: {Severity: preflight.Note,
		Why: "a loser waits so long for a winner that hangs",
		Fix: "set innodb_lock_wait_timeout to what a delivery may wait"},
	codeEngine: {Severity: preflight.Critical,
		Why: "it has no transactions: a record outlives the rollback of its effect",
		Fix: "ALTER TABLE ... ENGINE=InnoDB"},
	codeJournal: {Severity: preflight.Critical,
		Why: "a crash in a transaction leaves the file as it is, half written",
		Fix: "PRAGMA journal_mode = WAL"},
	codeSynchronous: {Severity: preflight.Warning,
		Why: lostCommits,
		Fix: "PRAGMA synchronous = FULL"},
	codeBusyTimeout: {Severity: preflight.Warning,
		Why: "a writer that meets another one fails at once",
		Fix: "set a busy timeout of some seconds"},
	codeTxLock: {Severity: preflight.Warning,
		Why: "one that reads before it writes can fail whatever the busy timeout is",
		Fix: "begin with BEGIN IMMEDIATE (_txlock=immediate)"},
	codeInMemory: {Severity: preflight.Critical,
		Why: "it is gone with the connection, and two connections have two of them",
		Fix: "use a file"},
}
