package sqladapter

import (
	"database/sql"
	"encoding/hex"
	"slices"
	"time"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/sqladapter/internal/dialect"
)

// These are subqueries because a subquery is evaluated once, not for each row.
const (
	postgresNow   = `(SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint)`
	postgresStamp = `(SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint << 20 | $2::bigint)`
)

// arrays is the form in which the ids and fingerprints of many rows are sent.
type arrays struct {
	ids, fingerprints string // as parameters, $1 and $3
	fingerprint       string // of a row b
	idArray           func([]entry) any
	fingerprintArray  func([]entry) any
}

// asText is for database/sql: every driver and every query mode can send text that the statement
// casts. A []byte would be taken for bytea where the driver does not ask the server for parameter
// types (the simple protocol).
var asText = arrays{
	ids: `$1::text::uuid[]`, fingerprints: `$3::text::text[]`,
	fingerprint: `decode(b.fingerprint, 'hex')`,
	idArray:     idArray, fingerprintArray: fingerprintArray,
}

// asBinary is for a [native.Arrays].
var asBinary = arrays{
	ids: `$1::uuid[]`, fingerprints: `$3::bytea[]`, fingerprint: `b.fingerprint`,
	idArray: func(es []entry) any {
		ids := make([][16]byte, len(es))
		for i := range es {
			ids[i] = es[i].id
		}
		return ids
	},
	fingerprintArray: func(es []entry) any {
		all := make([][]byte, len(es))
		for i := range es {
			if hasFingerprint(es[i]) {
				all[i] = es[i].fingerprint[:]
			}
		}
		return all
	},
}

func newPostgres(t tableName, window time.Duration) *statements {
	return newPostgresWith(t, window, asText)
}

func newPostgresWith(t tableName, window time.Duration, a arrays) *statements {
	const now, stamp = postgresNow, postgresStamp
	into := `INSERT INTO ` + t.full + ` (id, stamp`
	tail := ` ON CONFLICT (id) DO NOTHING RETURNING uuid_send(id), stamp`
	insert := postgresInsert{
		one: into + `, fingerprint) VALUES ($1::uuid, ` + stamp + `, $3::bytea)` + tail,
		many: into + `, fingerprint) SELECT b.id, ` + stamp + `, ` + a.fingerprint +
			` FROM unnest(` + a.ids + `, ` + a.fingerprints + `) AS b(id, fingerprint)` + tail,
		plain: into + `) SELECT b.id, ` + stamp + ` FROM unnest(` + a.ids + `) AS b(id)` + tail,
	}
	columns := `SELECT uuid_send(m.id), m.stamp, m.fingerprint, m.stamp >> 20, ` +
		now + `, r.result FROM ` + t.full + ` AS m`
	results := ` LEFT JOIN ` + t.results + ` AS r ON r.id = m.id`
	load := columns + results + ` WHERE m.id = $1::uuid`
	// OFFSET 0 makes the planner look into the index once for each id. Otherwise a plan that was
	// made when the table was small would read the whole table, for as long as a connection keeps
	// the plan.
	loadMany := `SELECT uuid_send(b.id), f.stamp, f.fingerprint, f.stamp >> 20, ` + now +
		`, f.result` +
		` FROM unnest(` + a.ids + `) AS b(id) CROSS JOIN LATERAL (SELECT m.stamp, m.fingerprint, r.result FROM ` + t.full + ` AS m` +
		results + ` WHERE m.id = b.id OFFSET 0) AS f`
	save := `INSERT INTO ` + t.results + ` (id, result) SELECT id, $2::bytea FROM ` + t.full +
		` WHERE id = $1::uuid` +
		` ON CONFLICT (id) DO NOTHING RETURNING uuid_send(id)`
	loaded := func(es []entry) statement {
		if len(es) == 1 {
			return statement{load, []any{dialect.UUID(es[0].id)}}
		}
		return statement{loadMany, []any{a.idArray(es)}}
	}
	return &statements{
		form: `SELECT id, stamp, fingerprint FROM ` + t.full + ` WHERE 1 = 0`,
		raise: `INSERT INTO ` + t.meta + ` AS m (one, window_ms) VALUES (1, ` +
			windowText(window) + `)` +
			` ON CONFLICT (one) DO UPDATE SET window_ms = greatest(m.window_ms, excluded.window_ms)`,
		// This bounds the parameter text to about 750 KB.
		chunk:   10_000,
		insert:  insert.with(a),
		salt:    saltBits,
		weakest: sql.LevelReadCommitted,
		bound:   postgresBound,
		load:    loaded,
		peek:    loaded,
		ids:     `SELECT id_form FROM ` + t.meta,
		window:  `SELECT window_ms FROM ` + t.meta,
		setWindow: `INSERT INTO ` + t.meta + ` (one, window_ms) VALUES (1, $1::bigint)` +
			` ON CONFLICT (one) DO UPDATE SET window_ms = excluded.window_ms`,
		tick:    stampTick,
		clock:   `SELECT ` + now,
		expire:  postgresExpire(t),
		guard:   guardPostgres,
		written: postgresWritten(t.full),
		kind:    postgresKind(t, "r"),
		forget:  func([]entry) []string { return nil },
		walker:  newPostgresWalk(t),
		takeBack: func(es []entry) statement {
			return statement{`DELETE FROM ` + t.full + ` WHERE id = ANY (ARRAY(SELECT unnest(` +
				asText.ids + `)))`, []any{idArray(es)}}
		},
		save: func(e entry, result []byte) statement {
			return statement{save, []any{dialect.UUID(e.id), result}}
		},
	}
}

// postgresExpire is for servers before 14, which keep the index by age. It can use ctid because
// rows are never updated, and a row that reuses a slot meanwhile is not visible to this statement's
// snapshot. SKIP LOCKED keeps sweepers from waiting for each other.
func postgresExpire(t tableName) string {
	return `WITH gone AS (DELETE FROM ` + t.full +
		` WHERE ctid = ANY (ARRAY(SELECT ctid FROM ` + t.full +
		` WHERE stamp >> ` + stampShift + ` < least(` + postgresNow + ` >> 10, (SELECT max(stamp >> ` +
		stampShift + `) FROM ` + t.full +
		`)) - $1::bigint ORDER BY stamp >> ` + stampShift +
		` LIMIT $2::bigint FOR UPDATE SKIP LOCKED)) RETURNING id),` +
		` unused AS (DELETE FROM ` + t.results + ` AS r USING gone WHERE r.id = gone.id)` +
		` SELECT uuid_send(id) FROM gone`
}

func postgresWritten(table string) func(entry) statement {
	text := `SELECT count(*) FROM ` + table + ` WHERE id = $1::uuid AND ` + writtenHere
	return func(e entry) statement { return statement{text, []any{dialect.UUID(e.id)}} }
}

// postgresInsert has the texts of INSERT: for one row, for many, and for many without fingerprints,
// which costs client and server less than an array of NULL.
type postgresInsert struct{ one, many, plain string }

func (p postgresInsert) with(a arrays) func([]entry, int64) statement {
	return func(es []entry, salt int64) statement {
		switch {
		case len(es) == 1:
			return statement{p.one,
				[]any{dialect.UUID(es[0].id), salt, dialect.Nullable(es[0].fingerprint)}}
		case slices.ContainsFunc(es, hasFingerprint):
			return statement{p.many, []any{a.idArray(es), salt, a.fingerprintArray(es)}}
		default:
			return statement{p.plain, []any{a.idArray(es), salt}}
		}
	}
}

func hasFingerprint(e entry) bool { return e.fingerprint != (driver.Fingerprint{}) }

// idArray returns the ids as an array literal, because database/sql has no arrays.
func idArray(es []entry) any {
	return arrayOf(es, 37, func(b []byte, e *entry) []byte { return dialect.AppendUUID(b, e.id) })
}

func fingerprintArray(es []entry) any {
	return arrayOf(es, 35, func(b []byte, e *entry) []byte {
		if e.fingerprint == (driver.Fingerprint{}) {
			return append(b, "NULL"...)
		}
		return hex.AppendEncode(b, e.fingerprint[:])
	})
}

func arrayOf(es []entry, size int, text func([]byte, *entry) []byte) string {
	b := append(make([]byte, 0, 2+size*len(es)), '{')
	for i := range es {
		if i > 0 {
			b = append(b, ',')
		}
		b = text(b, &es[i])
	}
	return string(append(b, '}'))
}
