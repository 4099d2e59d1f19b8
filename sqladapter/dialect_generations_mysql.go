package sqladapter

import (
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/sqladapter/internal/dialect"
)

// nameCycle holds the names of MySQL's generations. The names stay, and tables move from name to
// name: from next to open to sealed to gone. RENAME TABLE takes its locks in the order of the
// names' bytes. Of the names in use, open is the first in that order, and every transaction also
// touches it first. So RENAME never holds a table for which the holder of another table waits.
type nameCycle struct {
	next, open, sealed, gone tablePair
}

// tablePair is a table of marks and that of their results.
type tablePair struct{ marks, results string }

// newNameCycle cuts all names to the same stem. If each were cut by itself, their order would
// depend on the length of the table's own name.
func newNameCycle(t tableName) nameCycle {
	stem := dialect.Stem(t.name)
	name := func(suffix string) tablePair {
		return tablePair{MySQL.In(t.schema, stem+suffix),
			MySQL.In(t.schema, stem+suffix+"_results")}
	}
	return nameCycle{next: name("_next"), open: name("_open"), sealed: name("_sealed"),
		gone: name("_gone")}
}

// bareName returns a quoted name without schema and quotes.
func bareName(name string) string {
	return strings.Trim(name[strings.LastIndexByte(name, '.')+1:], "`")
}

// birth is the id of the row that says when a generation was opened. No key has it.
var birth = hexLiteral(make([]byte, len(driver.ID{})))

// newMySQLGenerations returns statements that insert marks into the open table unless the sealed
// one has them.
//
// LOCK IN SHARE MODE reads what is committed now, at every level; a plain read at REPEATABLE READ
// shows the sealed table as it was when the transaction began to read. It locks rows of the sealed
// table, which nobody writes. In the open table it reads only keys that the INSERT has found there
// and locked: for an absent key it would lock the gap, and block everybody's inserts.
func newMySQLGenerations(t tableName, window time.Duration) *statements {
	g := newNameCycle(t)
	in := func(s tablePair) *statements {
		side := t
		side.full, side.results = s.marks, s.results
		return newMySQL(side, window)
	}
	d, sealed := in(g.open), in(g.sealed)
	peek := d.peek
	d.peek = func(es []entry) statement {
		return statement{text: `(` + peek(es).text + `) UNION ALL (` + sealed.peek(es).text + `)`}
	}
	d.insert, d.earlier = mysqlInsertUnless(g), sealed.load
	d.texts = map[string]string{
		"open": g.open.marks, "open_results": g.open.results, "sealed": g.sealed.marks,
		"sealed_results": g.sealed.results,
		"next":           g.next.marks, "next_results": g.next.results, "gone": g.gone.marks,
		"gone_results": g.gone.results, "birth": birth,
	}
	d.kind, d.expire, d.ids = mysqlKind(t, "VIEW"), "", ""
	d.takeBack = nil
	return d
}

// shareSealed locks the rows of the sealed table. MySQL refuses LOCK IN SHARE MODE here, because
// that includes the table that JSON_TABLE makes ("Table b appears in multiple locking clauses",
// error 3569), and MariaDB does not know OF. Each server runs only the comment that is meant for
// it: MariaDB skips MySQL's comments with a version above 5.7, and MySQL skips those that begin
// with M.
const shareSealed = ` /*!80000 FOR SHARE OF p */ /*M! LOCK IN SHARE MODE */`

// mysqlInsertUnless sends the rows as a table that the server joins, in the order of the ids, so
// that batches do not deadlock. JSON_TABLE costs the server a third less than a SELECT for each
// row.
func mysqlInsertUnless(g nameCycle) func([]entry, int64) statement {
	insert := `INSERT INTO ` + g.open.marks + ` (id, owner, fingerprint) SELECT UNHEX(b.id), `
	from := `, UNHEX(b.fingerprint) FROM JSON_TABLE('[`
	unless := `]', '$[*]' COLUMNS (id CHAR(32) PATH '$[0]', fingerprint VARCHAR(34) PATH '$[1]')) AS b` +
		` LEFT JOIN ` + g.sealed.marks +
		` AS p FORCE INDEX (PRIMARY) ON p.id = UNHEX(b.id) WHERE p.id IS NULL` + shareSealed +
		` ON DUPLICATE KEY UPDATE ` + g.open.marks + `.id = ` + g.open.marks + `.id`
	return func(es []entry, salt int64) statement {
		return statement{text: insert + strconv.FormatInt(salt, 10) +
			from + listOf(es, appendPair) + unless}
	}
}

// appendPair appends a JSON array of an id and its fingerprint, if it has one.
func appendPair(b []byte, e *entry) []byte {
	b = append(hex.AppendEncode(append(b, `["`...), e.id[:]), '"')
	if e.fingerprint != (driver.Fingerprint{}) {
		b = append(hex.AppendEncode(append(b, `,"`...), e.fingerprint[:]), '"')
	}
	return append(b, ']')
}
