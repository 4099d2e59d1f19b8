package sqlstore

import (
	"database/sql"
	"encoding/hex"
	"math"
	"strconv"
	"strings"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/sqladapter/internal/dialect"
)

// postgresStore sends the values of many rows as one array for each column, in the text form that
// every driver and every query mode can send.
type postgresStore struct {
	names   storeNames
	columns string
}

const postgresClock = `(extract(epoch FROM clock_timestamp()) * 1000000)::bigint`

// postgresReads are claimColumns in the form of a SELECT.
func postgresReads(of string) string {
	columns := make([]string, len(claimColumns))
	for i, c := range claimColumns {
		columns[i] = of + c
	}
	columns[0], columns[1] = "uuid_send("+of+"id)", "uuid_send("+of+"token)"
	return strings.Join(columns, ", ")
}

// postgresLean returns what postgresReads returns, with NULL instead of the result.
func postgresLean(of string) string {
	return strings.TrimSuffix(postgresReads(of), of+"result") + "NULL::bytea"
}

func newPostgresStore(names storeNames) *postgresStore {
	return &postgresStore{names, strings.Join(claimColumns, ", ")}
}

func (d *postgresStore) isolation() sql.IsolationLevel { return sql.LevelReadCommitted }
func (d *postgresStore) readsInTx() bool               { return false }
func (d *postgresStore) chunk() int                    { return 4000 }
func (d *postgresStore) begin() string                 { return "" }

func (d *postgresStore) insert(ids []driver.ID) statement {
	return statement{`INSERT INTO ` + d.names.table +
		` (id) SELECT * FROM unnest($1::text::uuid[]) ON CONFLICT (id) DO NOTHING`,
		[]any{uuids(ids)}}
}

// load reads the clock outside of the subquery that locks, so each row is locked before its clock
// is read.
func (d *postgresStore) load(ids []driver.ID, lock bool) statement {
	inner := `SELECT s.* FROM ` + d.names.table +
		` AS s JOIN unnest($1::text::uuid[]) AS b(id) USING (id)`
	if lock {
		inner += ` ORDER BY s.id FOR UPDATE OF s`
	}
	return statement{d.outer(postgresReads("r."), inner), []any{uuids(ids)}}
}

func (d *postgresStore) outer(columns, inner string) string {
	return `SELECT ` + columns + `, ` + postgresClock + ` FROM (` + inner + `) AS r`
}

func (d *postgresStore) save(rows []*claimRow) statement {
	var set []string
	for _, c := range claimColumns[1:] {
		set = append(set, c+` = v.`+c)
	}
	return statement{`UPDATE ` + d.names.table + ` AS s SET ` + strings.Join(set, `, `) +
		` FROM unnest($1::text::uuid[], $2::text::uuid[], $3::text::smallint[], $4::text::smallint[], $5::text::smallint[],` +
		` $6::text::integer[], $7::text::bigint[], $8::text::bigint[], $9::text::bigint[], $10::text::bigint[], $11::text::bigint[],` +
		` $12::text::bytea[], $13::text::bytea[], $14::text::bytea[], $15::text::bytea[], $16::text::bytea[])` +
		` AS v(` + d.columns + `) WHERE s.id = v.id`,
		rowArrays(rows)}
}

func (d *postgresStore) remove(ids []driver.ID) statement {
	return statement{`DELETE FROM ` + d.names.table + ` WHERE id = ANY ($1::text::uuid[])`,
		[]any{uuids(ids)}}
}

// due reads the clock once, in a subquery: with clock_timestamp() in a condition the server could
// not use the index.
func (d *postgresStore) due(expired bool, limit int) statement {
	return statement{d.outer(postgresLean("r."),
		`SELECT * FROM `+d.names.table+dueWhere(expired, `(SELECT `+postgresClock+`)`)+
			` LIMIT $1::bigint FOR UPDATE SKIP LOCKED`), []any{int64(limit)}}
}

func (d *postgresStore) page(after driver.ID, states string, limit int) statement {
	return statement{`SELECT ` + postgresLean("") + `, ` + postgresClock + ` FROM ` +
		d.names.table +
		` WHERE state IN (` + states + `) AND id > $1::text::uuid ORDER BY id LIMIT $2::bigint`,
		[]any{dialect.UUID(after), int64(limit)}}
}

func (d *postgresStore) clock() string { return `SELECT ` + postgresClock }

func (d *postgresStore) scan(from int64, limit int) statement {
	return statement{`SELECT uuid_send(id), state, since, expires, ` + postgresClock + ` FROM ` +
		d.names.table + scanWhere +
		`$1::bigint ORDER BY expires LIMIT $2::bigint`, []any{from, int64(limit)}}
}

func (d *postgresStore) forgot() string {
	return `UPDATE ` + d.names.forgets + ` SET n = n + 1`
}
func (d *postgresStore) countForgets() string { return `SELECT n FROM ` + d.names.forgets }

// insertClaims does what decideClaim does for keys that have no row. It waits for another statement
// that is inserting the same key.
func (d *postgresStore) insertClaims(reqs []*driver.ClaimRequest) statement {
	return statement{`WITH clock AS MATERIALIZED (SELECT ` + postgresClock + ` AS now)` +
		` INSERT INTO ` + d.names.table +
		` AS s (id, token, state, attempt, fence, lease_end, expires, fingerprint, origin, label)` +
		` SELECT v.id, v.token, 1, 1, now / 1000 * 1024, now + v.lease, now + v.lease + v.hold, v.fingerprint, v.origin, v.label` +
		` FROM unnest($1::text::uuid[], $2::text::uuid[], $3::text::bigint[], $4::text::bigint[], $5::text::bytea[],` +
		` $6::text::bytea[], $7::text::bytea[]) AS v(id, token, lease, hold, fingerprint, origin, label), clock` +
		` ON CONFLICT (id) DO NOTHING RETURNING ` + postgresReads("s.") +
		`, (SELECT now FROM clock)`,
		[]any{
			pgArray(reqs, func(b []byte, r *driver.ClaimRequest) []byte {
				return append(b, dialect.UUID(r.ID)...)
			}),
			pgArray(reqs, func(b []byte, r *driver.ClaimRequest) []byte {
				return append(b, dialect.UUID(driver.ID(r.Token))...)
			}),
			pgArray(reqs, func(b []byte, r *driver.ClaimRequest) []byte {
				return pgInt(b, bounded(micros(r.Lease)))
			}),
			pgArray(reqs, func(b []byte, r *driver.ClaimRequest) []byte {
				return pgInt(b, bounded(micros(r.Hold)))
			}),
			pgArray(reqs, func(b []byte, r *driver.ClaimRequest) []byte {
				return pgFingerprint(b, r.Fingerprint)
			}),
			pgArray(reqs, func(b []byte, r *driver.ClaimRequest) []byte {
				return pgBytes(b, packOrigin(r.Origin))
			}),
			pgArray(reqs, func(b []byte, r *driver.ClaimRequest) []byte {
				return pgText(b, r.Label)
			}),
		}}
}

// finishClaims does what decideFinish does for keys that their callers hold. It locks the rows
// first, in the order of their ids, as everywhere. It joins them with the parameters once, by id
// only. The CASE keeps PostgreSQL from using the other conditions for the plan: by its old
// statistics few rows may be in progress, and it would compare each of those with each parameter.
// The statement does not return the results that it was given.
func (d *postgresStore) finishClaims(changes []*driver.Finish) statement {
	return statement{`WITH held AS MATERIALIZED (SELECT s.id, ` + postgresClock +
		` AS now, v.state, v.flags, v.keep,` +
		` v.fingerprint, v.origin, v.label, v.result FROM ` + d.names.table + ` AS s` +
		` JOIN unnest($1::text::uuid[], $2::text::uuid[], $3::text::smallint[], $4::text::smallint[],` +
		` $5::text::bigint[], $6::text::bytea[], $7::text::bytea[], $8::text::bytea[], $9::text::bytea[], $10::text::bigint[])` +
		` AS v(id, token, state, flags, keep, fingerprint, origin, label, result, fence) USING (id)` +
		` WHERE CASE WHEN s.token = v.token AND v.fence IN (0, s.fence) AND s.state = 1 AND s.flags BETWEEN 0 AND ` + strconv.Itoa(flagsKnown) +
		` AND s.expires > (SELECT ` + postgresClock +
		`) THEN true ELSE false END ORDER BY s.id FOR UPDATE OF s)` +
		` UPDATE ` + d.names.table +
		` AS s SET state = v.state, flags = v.flags, asked = 0, since = v.now, expires = v.now + v.keep,` +
		` lease_end = least(s.lease_end, v.now), fingerprint = coalesce(v.fingerprint, s.fingerprint),` +
		` origin = coalesce(v.origin, s.origin), label = coalesce(v.label, s.label), steps = NULL, result = v.result` +
		` FROM held AS v WHERE s.id = v.id` +
		` RETURNING ` + postgresLean("s.") + `, v.now`,
		[]any{
			pgArray(changes, func(b []byte, c *driver.Finish) []byte {
				return append(b, dialect.UUID(c.ID)...)
			}),
			pgArray(changes, func(b []byte, c *driver.Finish) []byte {
				return append(b, dialect.UUID(driver.ID(c.Token))...)
			}),
			pgArray(changes, func(b []byte, c *driver.Finish) []byte {
				return pgInt(b, int64(c.State))
			}),
			pgArray(changes, func(b []byte, c *driver.Finish) []byte {
				return pgInt(b, endFlags(c))
			}),
			pgArray(changes, func(b []byte, c *driver.Finish) []byte {
				return pgInt(b, bounded(micros(c.Window)))
			}),
			pgArray(changes, func(b []byte, c *driver.Finish) []byte {
				return pgFingerprint(b, c.Fingerprint)
			}),
			pgArray(changes, func(b []byte, c *driver.Finish) []byte {
				return pgBytes(b, packOrigin(c.Origin))
			}),
			pgArray(changes, func(b []byte, c *driver.Finish) []byte { return pgText(b, c.Label) }),
			pgArray(changes, func(b []byte, c *driver.Finish) []byte {
				return pgBytes(b, c.Result)
			}),
			pgArray(changes, func(b []byte, c *driver.Finish) []byte {
				return pgInt(b, int64(c.Fence)) // checkFinish has refused what does not fit
			}),
		}}
}

func endFlags(c *driver.Finish) int64 {
	var r claimRow
	r.end(c)
	return int64(r.flags)
}

// bounded keeps the sum of an instant and two such spans within 63 bits.
func bounded(us int64) int64 { return min(us, math.MaxInt64/4) }

func uuids(ids []driver.ID) string {
	return pgArray(ids, dialect.AppendUUID)
}

// rowArrays returns the columns of rows, in the order of claimColumns.
func rowArrays(rows []*claimRow) []any {
	ints := func(of func(*claimRow) int64) string {
		return pgArray(rows, func(b []byte, r *claimRow) []byte { return pgInt(b, of(r)) })
	}
	blobs := func(of func(*claimRow) []byte) string {
		return pgArray(rows, func(b []byte, r *claimRow) []byte { return pgBytes(b, of(r)) })
	}
	return []any{
		pgArray(rows, func(b []byte, r *claimRow) []byte {
			return append(b, dialect.UUID(r.id)...)
		}),
		pgArray(rows, func(b []byte, r *claimRow) []byte {
			return append(b, dialect.UUID(driver.ID(r.token))...)
		}),
		ints(func(r *claimRow) int64 {
			return int64(r.state)
		}), ints(func(r *claimRow) int64 { return int64(r.flags) }),
		ints(func(r *claimRow) int64 {
			return int64(r.asked)
		}), ints(func(r *claimRow) int64 { return int64(r.attempt) }),
		ints(func(r *claimRow) int64 {
			return r.fence
		}), ints(func(r *claimRow) int64 { return r.floor }),
		ints(func(r *claimRow) int64 {
			return r.leaseEnd
		}), ints(func(r *claimRow) int64 { return r.since }),
		ints(func(r *claimRow) int64 { return r.expires }),
		pgArray(rows, func(b []byte, r *claimRow) []byte {
			return pgFingerprint(b, r.fingerprint)
		}),
		blobs(func(r *claimRow) []byte { return packOrigin(r.origin) }),
		pgArray(rows, func(b []byte, r *claimRow) []byte { return pgText(b, r.label) }),
		blobs(func(r *claimRow) []byte {
			return r.steps
		}), blobs(func(r *claimRow) []byte { return r.result }),
	}
}

// pgArray returns an array literal, because database/sql has no arrays.
func pgArray[T any](items []T, element func(b []byte, item T) []byte) string {
	b := make([]byte, 1, 2+40*len(items))
	b[0] = '{'
	for i, item := range items {
		if i > 0 {
			b = append(b, ',')
		}
		b = element(b, item)
	}
	return string(append(b, '}'))
}

func pgInt(b []byte, n int64) []byte { return strconv.AppendInt(b, n, 10) }

// pgBytes appends NULL for nil. The backslash of the hex form is doubled in an array.
func pgBytes(b, value []byte) []byte {
	if value == nil {
		return append(b, "NULL"...)
	}
	return append(hex.AppendEncode(append(b, `"\\x`...), value), '"')
}

// pgText returns the bytes of a text, or NULL for an empty one.
func pgText(b []byte, text string) []byte {
	if text == "" {
		return append(b, "NULL"...)
	}
	return pgBytes(b, []byte(text))
}

func pgFingerprint(b []byte, f driver.Fingerprint) []byte {
	if f == (driver.Fingerprint{}) {
		return append(b, "NULL"...)
	}
	return pgBytes(b, f[:])
}
