package sqladapter

import (
	"database/sql"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/onceward/onceward/sqladapter/internal/dialect"
)

// sqlserverNow is the clock in milliseconds since 1970; SYSUTCDATETIME does not depend on time
// zones.
const sqlserverNow = `DATEDIFF_BIG(millisecond, CAST('19700101' AS datetime2(3)), SYSUTCDATETIME())`

// sqlserverWrite stands before a statement that writes a mark, in the same round trip. Statements
// with parameters run in sp_executesql, which restores the options when it returns ("SET
// Statements": dynamic SQL). NOCOUNT would hide how many rows were new. Under XACT_ABORT, which
// many sessions have set, a row that already exists would roll back the transaction ("SET
// XACT_ABORT"). It refuses a transaction that the server has ended, or that cannot be committed any
// more ("XACT_STATE"): outside of a transaction the mark would be committed by itself.
const sqlserverWrite = `SET NOCOUNT OFF; SET XACT_ABORT OFF;` +
	` IF XACT_STATE() <> 1 THROW ` + sqlserverNotOpenText +
	`, N'onceward: there is no transaction that can be committed', 1; `

// sqlserverNotOpen is the number of that error; those from 50000 on are for applications.
const (
	sqlserverNotOpen     = 50916
	sqlserverNotOpenText = `50916`
)

// sqlserverImpatient bounds how long an insert of the probe waits, in milliseconds.
const sqlserverImpatient = `SET LOCK_TIMEOUT 200; `

// newSQLServer was never tested on a real server. So it uses only statements whose behavior is
// documented, and Migrate and Check verify what they rely on (probe, probeWait).
//
// The key has IGNORE_DUP_KEY: a row that already exists is left out, with a message that is not an
// error, and the transaction continues whatever XACT_ABORT says; the rest of a batch is inserted
// ("CREATE TABLE", index options). The key is clustered: there the server inserts the row first and
// then finds that it is a duplicate (sql.kiwi, "Why IGNORE_DUP_KEY is slower on clustered
// indexes"). So the INSERT waits, as any INSERT does, for a transaction that has written the same
// key and not ended. On an index that is not clustered it locks ranges (aboutsqlserver.com, "Range
// lock deadlocks"), and others' keys lie in them. NOT EXISTS with UPDLOCK and HOLDLOCK locks
// ranges, too; without these hints it is check-then-insert. So is MERGE, which does not know
// IGNORE_DUP_KEY. A key without the option works as well: 2627 undoes only the statement, and what
// is left is inserted after the load.
//
// The owner of a row says which statement has inserted it, as in MySQL. Rows of OUTPUT prove
// nothing, because the statement may fail after them ("OUTPUT clause").
func newSQLServer(t tableName, window time.Duration) *statements {
	into := `INSERT INTO ` + t.full + ` (id, owner, fingerprint) VALUES `
	return &statements{
		form: `SELECT id, owner, created_at, fingerprint FROM ` + t.full + ` WHERE 1 = 0`,
		// There is no race: of two INSERTs one is left out, and of two UPDATEs one waits for the
		// other.
		raise: sqlserverWindow(t, windowText(window)) + ` AND window_ms < ` + windowText(window),
		// A request may have at most 2100 parameters, and the VALUES of an INSERT at most 1000
		// rows.
		chunk: 500,
		insert: func(es []entry, salt int64) statement {
			args := append(make([]any, 0, 1+2*len(es)), salt)
			var text strings.Builder
			text.WriteString(sqlserverWrite + into)
			for i := range es {
				id := strconv.Itoa(2*i + 2)
				text.WriteString(comma(i) + `(CAST(@p` + id + ` AS binary(16)), @p1, CAST(@p` +
					strconv.Itoa(2*i+3) + ` AS varbinary(17)))`)
				args = append(args, es[i].id[:], dialect.Nullable(es[i].fingerprint))
			}
			return statement{text.String(), args}
		},
		counts: true,
		salt:   63,
		load:   sqlserverLoad(t, `READCOMMITTEDLOCK, FORCESEEK`),
		// Locked rows are not committed, so they count as absent.
		peek:      sqlserverLoad(t, `READCOMMITTEDLOCK, READPAST`),
		window:    `SELECT window_ms FROM ` + t.meta,
		setWindow: sqlserverWindow(t, `@p1`),
		tick:      time.Millisecond,
		// Two calls of DeleteExpired do not wait for each other, nor for the newest mark to be
		// committed.
		clock: `SELECT ` + sqlserverNow,
		expire: `SELECT TOP (@p2) m.id FROM ` + t.full + ` AS m WITH (UPDLOCK, READPAST, ROWLOCK)` +
			` CROSS JOIN (SELECT MAX(created_at) AS created_at FROM ` + t.full +
			` WITH (READCOMMITTEDLOCK, READPAST)) AS newest` +
			` WHERE m.created_at < newest.created_at - @p1 AND m.created_at < ` + sqlserverNow +
			` - @p1 ORDER BY m.created_at`,
		forget: func(es []entry) []string {
			ids := ` WHERE id IN (` + sqlserverLiterals(es) + `)`
			return []string{`DELETE FROM ` + t.results + ids, `DELETE FROM ` + t.full + ids}
		},
		save: func(e entry, result []byte) statement {
			return statement{sqlserverWrite + `INSERT INTO ` + t.results +
				` (id, result) SELECT id, @p2 FROM ` + t.full +
				` WHERE id = CAST(@p1 AS binary(16))`, []any{e.id[:], result}}
		},
		weakest:   sql.LevelReadCommitted,
		begin:     beginServer,
		impatient: sqlserverImpatient,
	}
}

// sqlserverLoad reads with locks at every isolation level, even where the database keeps row
// versions: a snapshot would not have what was committed after it. FORCESEEK prevents a scan, which
// would wait for everybody's rows, and deadlock with transactions that wait for ours. The CAST
// makes the parameter, or NULL, the type of its column.
func sqlserverLoad(t tableName, hints string) func([]entry) statement {
	head := `SELECT m.id, m.owner, m.fingerprint, m.created_at, ` + sqlserverNow +
		`, r.result FROM (VALUES `
	tail := `) AS b (id) JOIN ` + t.full + ` AS m WITH (` + hints + `) ON m.id = b.id` +
		` LEFT JOIN ` + t.results + ` AS r WITH (` + hints + `) ON r.id = b.id`
	return func(es []entry) statement {
		args := make([]any, len(es))
		var text strings.Builder
		text.WriteString(head)
		for i := range es {
			text.WriteString(comma(i) + `(CAST(@p` + strconv.Itoa(i+1) + ` AS binary(16)))`)
			args[i] = es[i].id[:]
		}
		return statement{text.String() + tail, args}
	}
}

// sqlserverWindow puts a window on record. It changes an existing one under the condition that the
// caller appends.
func sqlserverWindow(t tableName, millis string) string {
	return `INSERT INTO ` + t.meta + ` (one, window_ms) SELECT 1, ` + millis +
		` WHERE NOT EXISTS (SELECT 1 FROM ` + t.meta +
		` WHERE one = 1); UPDATE ` + t.meta + ` SET window_ms = ` + millis + ` WHERE one = 1`
}

func sqlserverLiterals(es []entry) string {
	var text strings.Builder
	for i := range es {
		text.WriteString(comma(i) + `CAST(0x` + hex.EncodeToString(es[i].id[:]) + ` AS binary(16))`)
	}
	return text.String()
}

func comma(i int) string {
	if i == 0 {
		return ""
	}
	return ", "
}
