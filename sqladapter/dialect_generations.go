package sqladapter

import (
	"fmt"
	"strings"
	"time"

	"github.com/onceward/onceward/sqladapter/internal/dialect"
)

// generation holds the names of a generation: of its table while open and when sealed, and of the
// table of its results.
type generation struct {
	number                int64
	open, sealed, results string
}

func (t tableName) generation(number int64) generation {
	base := fmt.Sprintf("_g%d", number)
	return generation{number: number, open: t.derive(base + "_open"), sealed: t.derive(base),
		results: t.derive(base + "_results")}
}

// sealedBare returns the name that a sealed table is given.
func (t tableName) sealedBare(number int64) string {
	return t.quote(fmt.Sprintf("_g%d", number))
}

// newPostgresGenerations has the statements that are the same for all generations. peek reads marks
// through views of both tables.
func newPostgresGenerations(t tableName, window time.Duration) *statements {
	d := newPostgres(t, window)
	zero, one := t.generation(0), t.generation(1)
	d.texts = map[string]string{
		"state": t.state, "sealed": zero.sealed, "sealed_results": zero.results,
		"open": one.open, "open_results": one.results,
		"marks_view":   postgresMarksView(t, one.open, zero.sealed),
		"results_view": postgresResultsView(t, one, zero),
	}
	d.kind = postgresKind(t, "v")
	d.expire, d.ids, d.takeBack = "", "", nil
	return d
}

// postgresKind counts the tables of t's name that are not of the wanted kind.
func postgresKind(t tableName, want string) string {
	return `SELECT count(*) FROM pg_class WHERE oid = to_regclass('` + t.full +
		`') AND relkind <> '` + want + `'`
}

func postgresMarksView(t tableName, tables ...string) string {
	return postgresView(t.full, `id, stamp, fingerprint`, tables)
}

func postgresResultsView(t tableName, gs ...generation) string {
	tables := make([]string, len(gs))
	for i, g := range gs {
		tables[i] = g.results
	}
	return postgresView(t.results, `id, result`, tables)
}

func postgresView(name, columns string, tables []string) string {
	parts := make([]string, len(tables))
	for i, table := range tables {
		parts[i] = `SELECT ` + columns + ` FROM ` + table
	}
	return `CREATE OR REPLACE VIEW ` + name + ` AS ` + strings.Join(parts, ` UNION ALL `)
}

// inGeneration has the statements for marks while this generation is open.
//
// OFFSET 0 makes the planner look into the index once for each id. Otherwise a plan that was made
// when the open table was small would read the whole table for as long as the plan is kept: nothing
// analyzes these tables, so nothing renews the plans.
func (d *statements) inGeneration(t tableName, number int64) *statements {
	open, sealed := t.generation(number), t.generation(number-1)
	into := `INSERT INTO ` + open.open + ` (id, stamp`
	// The subquery reads which generation is open in the transaction's snapshot, and the snapshot
	// may be old. The names of tables are always the present ones.
	current := fmt.Sprintf(` WHERE (SELECT generation FROM %s) = %d`, t.state, number)
	before := func(id string) string {
		return ` AND NOT EXISTS (SELECT 1 FROM ` + sealed.sealed + ` AS p WHERE p.id = ` +
			id + ` OFFSET 0)`
	}
	tail := ` ON CONFLICT (id) DO NOTHING RETURNING uuid_send(id), stamp`
	insert := postgresInsert{
		one: into + `, fingerprint) SELECT $1::uuid, ` + postgresStamp + `, $3::bytea` +
			current + before(`$1::uuid`) + tail,
		many: into + `, fingerprint) SELECT b.id, ` + postgresStamp + `, ` + asText.fingerprint +
			` FROM unnest(` + asText.ids + `, ` + asText.fingerprints + `) AS b(id, fingerprint)` +
			current + before(`b.id`) + tail,
		plain: into + `) SELECT b.id, ` + postgresStamp + ` FROM unnest(` + asText.ids +
			`) AS b(id)` + current + before(`b.id`) + tail,
	}
	found := func(table string, g generation) string {
		return `SELECT m.stamp, m.fingerprint, r.result FROM ` + table + ` AS m LEFT JOIN ` +
			g.results + ` AS r ON r.id = m.id WHERE m.id = b.id`
	}
	load := `SELECT uuid_send(b.id), f.stamp, f.fingerprint, f.stamp >> 20, ` + postgresNow +
		`, f.result` +
		` FROM unnest($1::text::uuid[]) AS b(id) CROSS JOIN LATERAL (` +
		found(open.open, open) + ` UNION ALL ` + found(sealed.sealed, sealed) + ` OFFSET 0) AS f`
	save := `INSERT INTO ` + open.results + ` (id, result) SELECT id, $2::bytea FROM ` + open.open +
		` WHERE id = $1::uuid` +
		` ON CONFLICT (id) DO NOTHING RETURNING uuid_send(id)`

	in := *d
	in.generation = number
	in.insert = insert.with(asText)
	in.written = postgresWritten(open.open)
	in.load = func(es []entry) statement { return statement{load, []any{idArray(es)}} }
	in.save = func(e entry, result []byte) statement {
		return statement{save, []any{dialect.UUID(e.id), result}}
	}
	return &in
}
