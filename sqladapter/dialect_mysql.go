package sqladapter

import (
	"database/sql"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/onceward/onceward/dedup/driver"
)

// mysqlNow does without UNIX_TIMESTAMP, which uses the session's time zone and repeats an hour a
// year.
const mysqlNow = `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000`

// newMySQL writes digests and numbers into the text instead of parameters: drivers that
// prepare every statement with parameters would need three round trips for one. Digests are
// hexadecimal, so there is nothing to escape.
//
// The upsert changes nothing in an existing row. IGNORE would change nothing either, but swallow
// every other error; MariaDB does not know an alias for the new row. The upsert takes an exclusive
// lock on the rows that it finds, so the locking read of load waits for nobody. A plain read would
// not see what was committed after the transaction's snapshot. Without FORCE INDEX the server reads
// a batch that is a large part of the table by a scan, which locks other transactions' rows on its
// way: sorted batches would deadlock.
//
// Above READ COMMITTED a locking read of an absent row locks the gap where it would be. Two
// transactions may both hold that lock, and then neither can insert there. So the results of a
// batch are read apart from its marks, and never for marks that it has just made, which have none
// yet.
func newMySQL(t tableName, window time.Duration) *statements {
	const now = mysqlNow
	into := `INSERT INTO ` + t.full + ` (id, owner, fingerprint) VALUES `
	const share = ` LOCK IN SHARE MODE`
	marks := `SELECT m.id, m.owner, m.fingerprint, m.created_at, ` + now
	of := ` FROM ` + t.full + ` AS m FORCE INDEX (PRIMARY)`
	from := marks + `, r.result` + of + ` LEFT JOIN ` + t.results +
		` AS r FORCE INDEX (PRIMARY) ON r.id = m.id WHERE m.id IN (`
	return &statements{
		form: `SELECT id, owner, created_at, fingerprint FROM ` + t.full + ` WHERE 1 = 0`,
		raise: `INSERT INTO ` + t.meta + ` (one, window_ms) VALUES (1, ` +
			windowText(window) + `)` +
			` ON DUPLICATE KEY UPDATE window_ms = GREATEST(window_ms, ` + windowText(window) + `)`,
		// With 1000 values or more MariaDB turns IN into a join with a table, and reads and locks
		// every mark (in_predicate_conversion_threshold). The limit also bounds the text to 120 KB.
		chunk: 900,
		insert: func(es []entry, salt int64) statement {
			owner := `, ` + strconv.FormatInt(salt, 10) + `, `
			values := listOf(es, func(b []byte, e *entry) []byte {
				b = append(appendHex(append(b, '('), e.id[:]), owner...)
				return append(appendFingerprint(b, e.fingerprint), ')')
			})
			return statement{text: into + values + ` ON DUPLICATE KEY UPDATE id = id`}
		},
		counts: true,
		salt:   63,
		load: func(es []entry) statement {
			return statement{text: from + idLiterals(es) + `)` + share}
		},
		apart: func(es []entry) statement {
			return statement{text: marks + of + ` WHERE m.id IN (` + idLiterals(es) + `)` + share}
		},
		results: func(es []entry, locked bool) statement {
			text := `SELECT r.id, r.result FROM ` + t.results +
				` AS r FORCE INDEX (PRIMARY) WHERE r.id IN (` + idLiterals(es) + `)`
			if locked {
				text += share
			}
			return statement{text: text}
		},
		peek:   func(es []entry) statement { return statement{text: from + idLiterals(es) + `)`} },
		ids:    `SELECT id_form FROM ` + t.meta,
		window: `SELECT window_ms FROM ` + t.meta,
		setWindow: `INSERT INTO ` + t.meta + ` (one, window_ms) VALUES (1, ?)` +
			` ON DUPLICATE KEY UPDATE window_ms = VALUES(window_ms)`,
		tick:   time.Millisecond,
		clock:  `SELECT ` + now,
		walker: newMySQLWalk(t, mysqlForget(t)),
		takeBack: func(es []entry) statement {
			return statement{text: mysqlForget(t)(es)[1]}
		},
		save: func(e entry, result []byte) statement {
			return statement{text: `INSERT INTO ` + t.results + ` (id, result) SELECT m.id, ` +
				hexLiteral(result) +
				` FROM ` + t.full + ` AS m WHERE m.id = ` + hexLiteral(e.id[:]) +
				` ON DUPLICATE KEY UPDATE ` + t.results + `.id = ` + t.results + `.id`}
		},
		weakest: sql.LevelReadCommitted,
		kind:    mysqlKind(t, "BASE TABLE"),
		guard:   guardMySQL,
		bound:   mysqlBound,
	}
}

// mysqlForget deletes rows that are locked, and reads no others. Without FORCE INDEX the server
// reads all of a small table, and waits for rows that are not committed.
func mysqlForget(t tableName) func([]entry) []string {
	return func(es []entry) []string {
		ids := ` AS m FORCE INDEX (PRIMARY) WHERE m.id IN (` + idLiterals(es) + `)`
		return []string{`DELETE m FROM ` + t.results + ids, `DELETE m FROM ` + t.full + ids}
	}
}

// mysqlKind counts the tables of t's name that are not of the wanted kind.
func mysqlKind(t tableName, want string) string {
	return `SELECT COUNT(*) FROM information_schema.tables WHERE ` + mysqlNamed(t, t.name) +
		` AND table_type <> '` + want + `'`
}

// mysqlNamed returns the condition on information_schema.tables for a table next to that of t.
func mysqlNamed(t tableName, table string) string {
	return `table_schema = ` + mysqlSchema(t) + ` AND table_name = '` + table + `'`
}

func mysqlSchema(t tableName) string {
	if t.schema == "" {
		return `DATABASE()`
	}
	return `'` + t.schema + `'`
}

func idLiterals(es []entry) string {
	return listOf(es, func(b []byte, e *entry) []byte { return appendHex(b, e.id[:]) })
}

func hexLiteral(b []byte) string { return string(appendHex(nil, b)) }

func appendHex(b, value []byte) []byte {
	return append(hex.AppendEncode(append(b, `x'`...), value), '\'')
}

func appendFingerprint(b []byte, f driver.Fingerprint) []byte {
	if f == (driver.Fingerprint{}) {
		return append(b, "NULL"...)
	}
	return appendHex(b, f[:])
}

func listOf(es []entry, text func([]byte, *entry) []byte) string {
	b := make([]byte, 0, 72*len(es)) // bytes of an id, an owner and NULL
	for i := range es {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = text(b, &es[i])
	}
	return string(b)
}
