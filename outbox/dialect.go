package outbox

import (
	"embed"
	"fmt"
	"strconv"
	"strings"
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

// shards of the engines in which several relays work side by side. It is in the statements
// and the tables as well, and must never change.
const shards = 16

// dialect holds the statements for one outbox.
type dialect struct {
	kind   Dialect
	shards int
	// insert is the beginning of an INSERT, and tuple one row of it.
	insert string
	tuple  func(b *strings.Builder, first int)

	statements
}

// statements are those of a dialect's file.
type statements struct {
	busy, busyBehind, top, writers, lock, unlock, read, readFree string
	remove, fail, park, lag, parked, requeue, unpark             string
	form, formParked                                             string
}

// of are the statements for one relay: what is put off for longer than it would put anything off
// is taken for a jump of the clock, or an older configuration, and does not wait.
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

// columns that an INSERT fills.
const columns = 6

func newDialect(kind Dialect, n names) (*dialect, error) {
	if kind < Postgres || kind > SQLite {
		return nil, inputError("Dialect", "must be Postgres, MySQL or SQLite")
	}
	d := &dialect{kind: kind, shards: shards, tuple: questionMarks}
	into := `INSERT INTO ` + n.table + ` (shard, topic, dedup_id, key, headers, payload) VALUES `
	d.insert = into
	switch kind {
	case Postgres:
		d.tuple = numbered
	case MySQL:
		d.insert = strings.Replace(into, " key,", " `key`,", 1)
	case SQLite:
		d.shards = 1
	}
	return d, d.load(strings.NewReplacer("{{table}}", n.table, "{{parked}}", n.parked,
		"{{shards}}", n.shards,
		"{{now}}", clocks[kind], "{{run}}", run, "{{longest lease}}",
		strconv.FormatInt((maxPublishTimeout+grace).Milliseconds(), 10)).Replace)
}

// clocks are what the time is where there is an expression for it: in SQLite milliseconds since
// 1970, once for a whole statement, and in MySQL microseconds. Its own times are those of a zone,
// which may have one twice, or not at all.
var clocks = map[Dialect]string{
	SQLite: `(SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER))`,
	MySQL:  `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`,
}

// run is when PostgreSQL was started, in microseconds since 1970: another after a restart, and on a
// server that takes over from another.
const run = `(extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint`

// load takes the statements from their file.
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
		"form": &d.form, "form_parked": &d.formParked,
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

// withoutComments spares the server what is for the reader.
func withoutComments(sql string) string {
	var lines []string
	for line := range strings.Lines(sql) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "--") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, " ")
}

func questionMarks(b *strings.Builder, _ int) { b.WriteString("(?, ?, ?, ?, ?, ?)") }

// numbered casts each parameter, so that every mode of every driver agrees on the types.
func numbered(b *strings.Builder, first int) {
	for i, kind := range [columns]string{"smallint", "text", "text", "bytea", "bytea", "bytea"} {
		b.WriteString(map[bool]string{true: "($", false: ", $"}[i == 0])
		b.WriteString(strconv.Itoa(first + i))
		b.WriteString("::")
		b.WriteString(kind)
	}
	b.WriteByte(')')
}

// inShard writes a shard into a statement that needs it where its parameter is not.
func inShard(statement string, no int) string {
	return strings.ReplaceAll(statement, "{{shard}}", strconv.Itoa(no))
}

// withIDs puts a list of ids into a statement, behind its other arguments: as an array where
// there are arrays, and elsewhere as text of the statement, which integers may be.
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

// selecting puts a selection into a statement that reads messages. The list of topics is padded, so
// that there are not many texts of a statement, which drivers and servers keep prepared.
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

// placeholder is that of a text.
func (d *dialect) placeholder(no int) string {
	if d.kind == Postgres {
		return "$" + strconv.Itoa(no) + "::text"
	}
	return "?"
}

// padded is the next power of two.
func padded(n int) int {
	p := 1
	for p < n {
		p *= 2
	}
	return p
}

// probing asks which shards have messages behind their bounds.
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
		for i := range all {
			b.WriteString(map[bool]string{true: "{", false: ","}[i == 0])
			b.WriteString(strconv.FormatInt(all[i].low, 10))
		}
		return st.busyBehind, []any{b.String() + "}"}
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
