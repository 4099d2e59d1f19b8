package sqladapter

import (
	"strconv"
	"strings"
)

// fenceStatements are the statements for one table. The rows that they return have topic, topic id,
// partition, and an offset.
type fenceStatements struct {
	// chunk is how many spans advance takes at once.
	chunk int
	// advance moves the fences of spans in their order, and returns what was stored before, or
	// nothingStored. It may leave out a span that is already done.
	advance func(group string, spans []Span) []statement
	lookup  string
	forget  string
	written string // counts the row that this transaction has written; for PostgreSQL only
	// guard detects transactions that end without their owner's knowledge.
	guard txGuard
}

var fenceDialects = map[Dialect]func(table string) *fenceStatements{
	Postgres: postgresFence, MySQL: mysqlFence, SQLite: sqliteFence,
}

const (
	fenceColumns = `(consumer_group, topic, topic_id, part, previous_offset, next_offset)`
	fenceKey     = `(consumer_group, topic, topic_id, part)`
	fenceFound   = `topic, topic_id, part, `
)

// moveFence keeps the old offset in the row for RETURNING, which sees only the new row. A fence
// that is already at the offset or beyond is not written: its row is locked anyway, and nothing is
// returned.
const moveFence = ` ON CONFLICT ` + fenceKey +
	` DO UPDATE SET previous_offset = f.next_offset, next_offset = excluded.next_offset` +
	` WHERE f.next_offset < excluded.next_offset RETURNING ` + fenceFound + `previous_offset`

// postgresFence takes names as array literals, since database/sql has no arrays. It casts every
// parameter, because a driver that does not ask the server for types sends the type that it
// guesses.
func postgresFence(table string) *fenceStatements {
	insert := `INSERT INTO ` + table + ` AS f ` + fenceColumns +
		` SELECT $1::text, s.topic, s.topic_id, s.part, -1, s.next_offset` +
		` FROM unnest($2::text::text[], $3::text::text[], $4::text::integer[], $5::text::bigint[])` +
		` AS s(topic, topic_id, part, next_offset)` + moveFence
	const where = ` WHERE consumer_group = $1::text AND topic = $2::text AND topic_id = $3::text AND part = $4::integer`
	return &fenceStatements{
		chunk: 1000,
		advance: func(group string, spans []Span) []statement {
			return []statement{{insert, append([]any{group}, spanArrays(spans)...)}}
		},
		lookup:  `SELECT ` + fenceFound + `next_offset FROM ` + table + where,
		forget:  `DELETE FROM ` + table + where,
		written: `SELECT count(*) FROM ` + table + where + ` AND ` + writtenHere,
		guard:   guardPostgres,
	}
}

// spanArrays returns the columns of spans. Nothing in them needs an escape, see kafkaName. The
// quotes keep a topic named NULL from being read as NULL.
func spanArrays(spans []Span) []any {
	column := func(value func(Span) string) string {
		values := make([]string, len(spans))
		for i, s := range spans {
			values[i] = value(s)
		}
		return "{" + strings.Join(values, ",") + "}"
	}
	return []any{
		column(func(s Span) string { return `"` + s.Topic + `"` }),
		column(func(s Span) string { return `"` + s.TopicID + `"` }),
		column(func(s Span) string { return strconv.Itoa(int(s.Partition)) }),
		column(func(s Span) string { return strconv.FormatInt(s.To, 10) }),
	}
}

const fenceWhere = ` WHERE consumer_group = ? AND topic = ? AND topic_id = ? AND part = ?`

func sqliteFence(table string) *fenceStatements {
	insert := `INSERT INTO ` + table + ` AS f ` + fenceColumns + ` VALUES (?, ?, ?, ?, -1, ?)` +
		moveFence
	return &fenceStatements{
		chunk: 1,
		advance: func(group string, spans []Span) []statement {
			s := spans[0]
			return []statement{{insert, []any{group, s.Topic, s.TopicID, s.Partition, s.To}}}
		},
		lookup: `SELECT ` + fenceFound + `next_offset FROM ` + table + fenceWhere,
		forget: `DELETE FROM ` + table + fenceWhere,
		guard:  guardSQLite,
	}
}

// mysqlFence reads the previous offset with a second statement. The second statement locks, because
// an upsert that changes nothing does not make the row visible to the transaction's older snapshot.
// MySQL runs the assignments of the upsert from left to right.
func mysqlFence(table string) *fenceStatements {
	insert := `INSERT INTO ` + table + ` ` + fenceColumns + ` VALUES (?, ?, ?, ?, -1, ?)` +
		` ON DUPLICATE KEY UPDATE previous_offset = next_offset, next_offset = GREATEST(next_offset, ?)`
	read := `SELECT ` + fenceFound + `previous_offset FROM ` + table + fenceWhere + ` FOR UPDATE`
	return &fenceStatements{
		chunk: 1,
		advance: func(group string, spans []Span) []statement {
			s := spans[0]
			key := []any{group, s.Topic, s.TopicID, s.Partition}
			return []statement{{insert, append(key[:4:4], s.To, s.To)}, {read, key}}
		},
		lookup: `SELECT ` + fenceFound + `next_offset FROM ` + table + fenceWhere,
		forget: `DELETE FROM ` + table + fenceWhere,
		guard:  guardMySQL,
	}
}
