package sqladapter

import (
	"encoding/hex"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/onceward/onceward/dedup"
)

// Dialect is the SQL a database speaks.
type Dialect uint8

const (
	// Postgres is PostgreSQL 12 or newer.
	Postgres Dialect = iota + 1
	// SQLite is SQLite 3.35 or newer, which has RETURNING.
	SQLite
)

// String returns the lower-case name.
func (d Dialect) String() string {
	switch d {
	case Postgres:
		return "postgres"
	case SQLite:
		return "sqlite"
	default:
		return "unknown"
	}
}

// dialect holds the statements for one table. Every statement that returns rows returns
// the columns that scanRow reads: id, owner, fingerprint, microseconds since 1970, and
// age in microseconds, both by the database's clock.
type dialect struct {
	ddl string
	// lock serialises migrations; empty where the engine does it by itself.
	lock string
	// insert one row unless its id is taken, and return it if it was inserted.
	insert     string
	insertArgs func(e entry, token dedup.Token, namespace string) []any
	// load the row of one id.
	load     string
	loadArgs func(e entry) []any
	// chunk is how many rows the following statements take at once; with 1 they are
	// not used.
	chunk          int
	insertMany     string
	insertManyArgs func(es []entry, token dedup.Token, namespace string) []any
	loadMany       string
	loadManyArgs   func(es []entry) []any
	// expire deletes the oldest rows: namespace, window, limit.
	expire string
	// ticks converts a window to the unit that expire wants.
	ticks func(time.Duration) int64
}

var dialects = map[Dialect]func(tableName) *dialect{Postgres: newPostgres, SQLite: newSQLite}

// newPostgres: ids travel as text and are cast, which every driver and every query mode
// agrees on; a []byte would be taken for bytea where the driver does not ask the server
// for parameter types (the simple protocol).
func newPostgres(t tableName) *dialect {
	const columns = `uuid_send(id), uuid_send(owner), fingerprint, ` +
		`(extract(epoch FROM created_at) * 1000000)::bigint, ` +
		`(extract(epoch FROM clock_timestamp() - created_at) * 1000000)::bigint`
	into := `INSERT INTO ` + t.full + ` (id, owner, namespace, fingerprint) `
	tail := ` ON CONFLICT (id) DO NOTHING RETURNING ` + columns
	from := `SELECT ` + columns + ` FROM ` + t.full
	return &dialect{
		ddl:    render(postgresSchema, t),
		lock:   `SELECT pg_advisory_xact_lock(hashtextextended('onceward migrate', 0))`,
		insert: into + `VALUES ($1::uuid, $2::uuid, $3::text, $4::bytea)` + tail,
		insertArgs: func(e entry, token dedup.Token, namespace string) []any {
			return []any{uuidText(e.id), uuidText(token), namespace, nullable(e.fingerprint)}
		},
		load:     from + ` WHERE id = $1::uuid`,
		loadArgs: func(e entry) []any { return []any{uuidText(e.id)} },
		// Bounds the parameter text to about 750 KB.
		chunk: 10_000,
		insertMany: into + `SELECT b.id, $2::uuid, $3::text, decode(b.fingerprint, 'hex')` +
			` FROM unnest($1::text::uuid[], $4::text::text[]) AS b(id, fingerprint)` + tail,
		insertManyArgs: func(es []entry, token dedup.Token, namespace string) []any {
			return []any{idArray(es), uuidText(token), namespace, fingerprintArray(es)}
		},
		// A join: = ANY would compare every row of a small table with every id.
		loadMany:     from + ` JOIN unnest($1::text::uuid[]) AS b(id) USING (id)`,
		loadManyArgs: func(es []entry) []any { return []any{idArray(es)} },
		// ctid: rows are never updated, and a slot that is reused meanwhile is not
		// visible to this statement's snapshot. SKIP LOCKED: sweepers do not queue.
		expire: `DELETE FROM ` + t.full + ` WHERE ctid = ANY (ARRAY(SELECT ctid FROM ` + t.full +
			` WHERE namespace = $1::text AND created_at < least(statement_timestamp(), (SELECT max(created_at) FROM ` + t.full +
			` WHERE namespace = $1::text)) - $2::bigint * interval '1 microsecond'` +
			` ORDER BY created_at LIMIT $3::bigint FOR UPDATE SKIP LOCKED))`,
		ticks: time.Duration.Microseconds,
	}
}

// newSQLite has no statement for many rows: inside the process single statements are
// faster than multi-row ones, and one writer at a time cannot deadlock.
func newSQLite(t tableName) *dialect {
	const now = `CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)`
	const columns = `id, owner, fingerprint, created_at * 1000, (` + now + ` - created_at) * 1000`
	return &dialect{
		ddl: render(sqliteSchema, t),
		insert: `INSERT INTO ` + t.full + ` (id, owner, namespace, fingerprint, created_at) VALUES (?, ?, ?, ?, ` + now + `)` +
			` ON CONFLICT (id) DO NOTHING RETURNING ` + columns,
		insertArgs: func(e entry, token dedup.Token, namespace string) []any {
			return []any{e.id[:], token[:], namespace, nullable(e.fingerprint)}
		},
		load:     `SELECT ` + columns + ` FROM ` + t.full + ` WHERE id = ?`,
		loadArgs: func(e entry) []any { return []any{e.id[:]} },
		chunk:    1,
		expire: `DELETE FROM ` + t.full + ` WHERE id IN (SELECT id FROM ` + t.full +
			` WHERE namespace = ?1 AND created_at < min(` + now + `, (SELECT max(created_at) FROM ` + t.full +
			` WHERE namespace = ?1)) - ?2 ORDER BY created_at LIMIT ?3)`,
		ticks: func(d time.Duration) int64 { return int64(math.Ceil(float64(d) / float64(time.Millisecond))) },
	}
}

func render(ddl string, t tableName) string {
	return strings.NewReplacer("{{table}}", t.full, "{{bare}}", t.bare, "{{index}}", t.index).Replace(ddl)
}

// uuidText is the form every version of PostgreSQL and every driver reads as uuid.
func uuidText[T ~[16]byte](id T) string {
	b := [16]byte(id)
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

// nullable is NULL for the zero fingerprint, which compares with nothing.
func nullable(f dedup.Fingerprint) any {
	if f == (dedup.Fingerprint{}) {
		return nil
	}
	return f[:]
}

// idArray is an array literal, since database/sql has no arrays.
func idArray(es []entry) string {
	return arrayOf(es, 37, func(e entry) string { return uuidText(e.id) })
}

func fingerprintArray(es []entry) string {
	return arrayOf(es, 35, func(e entry) string {
		if e.fingerprint == (dedup.Fingerprint{}) {
			return "NULL"
		}
		return hex.EncodeToString(e.fingerprint[:])
	})
}

func arrayOf(es []entry, size int, text func(entry) string) string {
	var b strings.Builder
	b.Grow(2 + size*len(es))
	b.WriteByte('{')
	for i, e := range es {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(text(e))
	}
	b.WriteByte('}')
	return b.String()
}
