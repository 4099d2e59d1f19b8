package sqlerr

import (
	"errors"
	"slices"
)

// SQLServer is the error number of SQL Server in err. Zero is a number, too: go-mssqldb uses it for
// errors of its own.
func SQLServer(err error) (number int, ok bool) {
	var server interface{ SQLErrorNumber() int32 }
	if errors.As(err, &server) {
		return int(server.SQLErrorNumber()), true
	}
	return 0, false
}

// Numbers of SQL Server, from its list of "Database engine events and errors".
const (
	// The number of go-mssqldb, from 1.10 on, for a transaction that the server has ended. It is
	// also its number for a request that failed without a reason.
	msNoTransaction = 0

	msNoTable     = 208
	msDeadlock    = 1205
	msLockTimeout = 1222
	// A row has changed since the snapshot.
	msSnapshot = 3960
	// The transaction cannot be committed: a write was refused, or its batch has ended.
	msUncommittable, msUncommitted = 3930, 3998
	// COMMIT and ROLLBACK without a transaction.
	msNoCommit, msNoRollback = 3902, 3903
	// A duplicate in a unique index, and one in a primary key or a unique constraint.
	msDuplicateRow, msDuplicateKey = 2601, 2627
)

func isServer(err error, numbers ...int) bool {
	n, ok := SQLServer(err)
	return ok && slices.Contains(numbers, n)
}

// Duplicate reports that a statement of SQL Server was undone because its row exists already. Its
// transaction continues, unless XACT_ABORT is ON.
func Duplicate(err error) bool { return isServer(err, msDuplicateRow, msDuplicateKey) }

func transientServer(n int) bool {
	switch n {
	case msNoTransaction, msDeadlock, msLockTimeout, msSnapshot, msUncommittable, msUncommitted,
		msNoCommit, msNoRollback,
		1204,                // no memory for locks
		3966,                // the versions that a snapshot needs are gone
		596,                 // the session was killed
		6005,                // the server is shutting down
		921,                 // the database has not been recovered yet
		17809,               // too many connections
		10928, 10929, 49918, // Azure: too many requests, sessions, operations
		49919, 49920, 40501,
		40197, 40613: // Azure: fails over, or is not available
		return true
	}
	return false
}

// severed reports an error after which SQL Server has closed the connection: severity 20 and
// above.
func severed(err error) bool {
	var server interface{ SQLErrorClass() uint8 }
	return errors.As(err, &server) && server.SQLErrorClass() >= 20
}
