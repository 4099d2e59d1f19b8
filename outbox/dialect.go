package outbox

import (
	"embed"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Dialect is the SQL a database speaks.
type Dialect uint8

const (
	// Postgres is PostgreSQL 12 or newer.
	Postgres Dialect = iota + 1
	// MySQL is MySQL 8.0.13 or newer, and MariaDB 10.6 or newer, with InnoDB.
	MySQL
	// SQLite is SQLite 3.35 or newer.
	SQLite
)

// String returns the lower-case name.
func (d Dialect) String() string {
	switch d {
	case Postgres:
		return "postgres"
	case MySQL:
		return "mysql"
	case SQLite:
		return "sqlite"
	default:
		return "unknown"
	}
}

// files holds the statements of each dialect, each after a line "-- name: ".
//
//go:embed statement/*.sql
var files embed.FS

// shards is the number of shards in engines where several relays work at the same time. The number
// is in the statements and the tables as well, and must never change.
const shards = 16

// dialect holds the statements for one outbox.
type dialect struct {
	kind   Dialect
	shards int
	// insert is the INSERT of messages, and schedule that of messages with a NotBefore.
	insert, schedule insertion

	statements
}

// insertion is an INSERT of any number of rows.
type insertion struct {
	into    string
	columns int
	tuple   func(b *strings.Builder, first int) // writes the parameters of one row
}

// statements are the statements of a dialect's file.
type statements struct {
	busy, busyBehind, top, writers, lock, unlock, read, readFree string
	lagBehind, holder, holderBytes                               string
	remove, fail, park, lag, parked, requeue, unpark             string
	nextDue, lockDue, due, release, unschedule                   string
	keep, expired, forget, published                             string
	form, formParked, formScheduled, formPublished               string
}

// of returns the statements for one relay. They ignore a message's delay if it is longer than any
// delay of this relay: then the clock has jumped, or the configuration has changed.
func (d *dialect) of(cfg *RelayConfig) *statements {
	s := d.statements
	longest := strings.NewReplacer("{{longest}}",
		strconv.FormatInt((2*cfg.RetryMax+grace).Microseconds(), 10),
		"{{idle}}", strconv.FormatInt((cfg.PublishTimeout+grace).Milliseconds(), 10))
	for _, one := range []*string{&s.lock, &s.read, &s.readFree} {
		*one = longest.Replace(*one)
	}
	return &s
}

func newDialect(kind Dialect, n names) (*dialect, error) {
	if kind < Postgres || kind > SQLite {
		return nil, inputError("Dialect", "must be Postgres, MySQL or SQLite")
	}
	d := &dialect{kind: kind, shards: shards}
	if kind == SQLite {
		d.shards = 1
	}
	d.insert = newInsertion(kind, n.table, "shard, topic, dedup_id, key, headers, payload")
	d.schedule = newInsertion(kind, n.scheduled,
		"shard, topic, dedup_id, key, headers, payload, not_before")
	return d, d.load(strings.NewReplacer("{{table}}", n.table, "{{parked}}", n.parked,
		"{{shards}}", n.shards, "{{scheduled}}", n.scheduled, "{{published}}", n.published,
		"{{now}}", clocks[kind], "{{run}}", run, "{{longest lease}}",
		strconv.FormatInt((maxPublishTimeout+grace).Milliseconds(), 10)).Replace)
}

// clocks are expressions for the present time: in SQLite milliseconds since 1970, the same for a
// whole statement, and in MySQL microseconds. MySQL's own times are those of a time zone, in which
// a time may occur twice, or not at all.
var clocks = map[Dialect]string{
	SQLite: `(SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER))`,
	MySQL:  `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`,
}

// run is when PostgreSQL was started, in microseconds since 1970. It differs after a restart, and
// on a server that takes over.
const run = `(extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint`

// load reads the statements from their file.
func (d *dialect) load(render func(string) string) error {
	text, err := files.ReadFile("statement/" + d.kind.String() + ".sql")
	if err != nil {
		return fmt.Errorf("outbox: %w", err)
	}
	into := map[string]*string{
		"busy": &d.busy, "busy_behind": &d.busyBehind, "top": &d.top,
		"writers": &d.writers, "lock": &d.lock, "unlock": &d.unlock,
		"read": &d.read, "read_free": &d.readFree,
		"delete": &d.remove, "fail": &d.fail, "park": &d.park,
		"lag": &d.lag, "parked": &d.parked, "requeue": &d.requeue, "unpark": &d.unpark,
		"lag_behind": &d.lagBehind, "holder": &d.holder, "holder_bytes": &d.holderBytes,
		"next_due": &d.nextDue, "lock_due": &d.lockDue, "due": &d.due, "release": &d.release,
		"unschedule": &d.unschedule, "keep": &d.keep, "expired": &d.expired,
		"forget": &d.forget, "published": &d.published,
		"form": &d.form, "form_parked": &d.formParked, "form_scheduled": &d.formScheduled,
		"form_published": &d.formPublished,
	}
	for _, part := range strings.Split(string(text), "-- name: ")[1:] {
		name, body, _ := strings.Cut(part, "\n")
		if into[name] == nil {
			return fmt.Errorf("outbox: statement/%v.sql has %q, which nothing runs", d.kind, name)
		}
		*into[name] = render(withoutComments(body))
	}
	return nil
}

// withoutComments removes comments, which the server does not need.
func withoutComments(sql string) string {
	var lines []string
	for line := range strings.Lines(sql) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "--") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, " ")
}

// columnTypes casts each parameter, so that the types are the same in every mode of every driver.
// Times are microseconds since 1970.
var columnTypes = map[string]string{
	"shard": "$::smallint", "topic": "$::text", "dedup_id": "$::text", "key": "$::bytea",
	"headers": "$::bytea", "payload": "$::bytea",
	"not_before": "'epoch'::timestamptz + $::bigint * interval '1 microsecond'",
}

func newInsertion(kind Dialect, table, columns string) insertion {
	names := strings.Split(columns, ", ")
	if kind == MySQL {
		columns = strings.Replace(columns, " key,", " `key`,", 1)
	}
	marks := "(?" + strings.Repeat(", ?", len(names)-1) + ")"
	i := insertion{
		into: `INSERT INTO ` + table + ` (` + columns + `) VALUES `, columns: len(names),
		tuple: func(b *strings.Builder, _ int) { b.WriteString(marks) },
	}
	if kind == Postgres {
		i.tuple = func(b *strings.Builder, first int) { writeNumbered(b, names, first) }
	}
	return i
}

// writeNumbered writes the parameters of a row of PostgreSQL.
func writeNumbered(b *strings.Builder, names []string, first int) {
	for i, name := range names {
		b.WriteString(map[bool]string{true: "(", false: ", "}[i == 0])
		before, after, _ := strings.Cut(columnTypes[name], "$")
		b.WriteString(before)
		b.WriteByte('$')
		b.WriteString(strconv.Itoa(first + i))
		b.WriteString(after)
	}
	b.WriteByte(')')
}

// timeOf is a time as a number for the tables, rounded up: milliseconds since 1970 in SQLite, and
// otherwise microseconds, which PostgreSQL converts to a time.
func (d *dialect) timeOf(t time.Time) int64 {
	unit := time.Microsecond
	if d.kind == SQLite {
		unit = time.Millisecond
	}
	if below := t.Truncate(unit); below.Before(t) {
		t = below.Add(unit)
	}
	if d.kind == SQLite {
		return t.UnixMilli()
	}
	return t.UnixMicro()
}

// inShard writes the number of a shard into the text of a statement, at each place that is not its
// parameter.
func inShard(statement string, no int) string {
	return strings.ReplaceAll(statement, "{{shard}}", strconv.Itoa(no))
}

// withIDs puts a list of ids into a statement. With PostgreSQL the list is an array after the other
// arguments. With other databases it is in the statement's text, which is safe for integers.
func (d *dialect) withIDs(statement string, ids []int64, args ...any) (string, []any) {
	var b strings.Builder
	for i, id := range ids {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatInt(id, 10))
	}
	if d.kind == Postgres {
		return statement, append(args, "{"+b.String()+"}")
	}
	return strings.Replace(statement, "{{ids}}", b.String(), 1), args
}

// selecting puts a selection into a statement that reads messages. It pads the list of topics, so
// that a statement has only a few different texts, which drivers and servers keep prepared.
func (d *dialect) selecting(statement string, where selection) (string, []any) {
	names, operator := where.topics, " AND topic NOT IN ("
	if where.only != "" {
		names, operator = []string{where.only}, " AND topic IN ("
	}
	args := []any{where.shard, where.low}
	if d.kind == Postgres {
		args = []any{where.shard, where.limit, where.low}
	}
	var b strings.Builder
	if len(names) > 0 {
		b.WriteString(operator)
		for i := range padded(len(names)) {
			if i > 0 {
				b.WriteString(", ")
			}
			args = append(args, names[min(i, len(names)-1)])
			b.WriteString(d.placeholder(len(args)))
		}
		b.WriteByte(')')
	}
	if d.kind != Postgres {
		args = append(args, where.limit)
	}
	return strings.Replace(inShard(statement, where.shard), "{{topics}}", b.String(), 1), args
}

// placeholder is the placeholder of a text parameter.
func (d *dialect) placeholder(no int) string {
	if d.kind == Postgres {
		return "$" + strconv.Itoa(no) + "::text"
	}
	return "?"
}

// padded rounds up to a power of two.
func padded(n int) int {
	p := 1
	for p < n {
		p *= 2
	}
	return p
}

// arrayOf makes a PostgreSQL array with one number for each shard.
func arrayOf(all []shard, of func(*shard) int64) string {
	var b strings.Builder
	for i := range all {
		b.WriteString(map[bool]string{true: "{", false: ","}[i == 0])
		b.WriteString(strconv.FormatInt(of(&all[i]), 10))
	}
	return b.String() + "}"
}

// probing returns the statement that asks which shards have messages behind their bounds.
func (d *dialect) probing(st *statements, all []shard) (string, []any) {
	bounded := false
	for i := range all {
		bounded = bounded || all[i].low > 0
	}
	if !bounded {
		return st.busy, nil
	}
	var b strings.Builder
	switch d.kind {
	case Postgres:
		return st.busyBehind, []any{arrayOf(all, func(s *shard) int64 { return s.low })}
	default: // a probe of the primary key for each
		var args []any
		for i := range all {
			if i > 0 {
				b.WriteString(" UNION ALL ")
			}
			b.WriteString(strings.ReplaceAll(st.busyBehind, "{{shard}}", strconv.Itoa(i)))
			args = append(args, all[i].low)
		}
		return b.String(), args
	}
}
