package sqladapter

import (
	"strings"
	"time"
)

// newSQLite takes many rows at once: inside the process a query is dear, even when its statement
// is prepared, and the rows of it are not. One writer at a time cannot deadlock.
func newSQLite(t tableName, window time.Duration) *dialect {
	const now = `CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)`
	into := `INSERT INTO ` + t.full + ` (id, stamp, fingerprint) VALUES `
	from := `SELECT m.id, m.stamp, m.fingerprint, m.stamp >> 20, ` + now + `, r.result FROM ` + t.full + ` AS m` +
		` LEFT JOIN ` + t.results + ` AS r ON r.id = m.id WHERE m.id IN (`
	save := `INSERT INTO ` + t.results + ` (id, result) SELECT id, ?2 FROM ` + t.full + ` WHERE id = ?1` +
		` ON CONFLICT (id) DO NOTHING RETURNING id`
	loaded := func(es []entry) statement {
		args := make([]any, len(es))
		for i := range es {
			args[i] = es[i].id[:]
		}
		return statement{from + strings.TrimSuffix(strings.Repeat(`?, `, len(es)), `, `) + `)`, args}
	}
	return &dialect{
		form: `SELECT id, stamp, fingerprint FROM ` + t.full + ` WHERE 1 = 0`,
		raise: `INSERT INTO ` + t.meta + ` AS m (one, window_ms) VALUES (1, ` + windowText(window) + `)` +
			` ON CONFLICT (one) DO UPDATE SET window_ms = max(m.window_ms, excluded.window_ms)`,
		// Bounds the parameters to some hundred: SQLite may be built to take no more than 999.
		chunk: 250,
		insert: func(es []entry, salt int64) statement {
			const first, more = `(?1, ` + now + ` << 20 | ?2, ?3)`, `, (?, ` + now + ` << 20 | ?2, ?)`
			args := append(make([]any, 0, 1+2*len(es)), es[0].id[:], salt, nullable(es[0].fingerprint))
			for i := range es[1:] {
				args = append(args, es[1+i].id[:], nullable(es[1+i].fingerprint))
			}
			return statement{into + first + strings.Repeat(more, len(es)-1) + ` ON CONFLICT (id) DO NOTHING RETURNING id, stamp`, args}
		},
		salt:   saltBits,
		load:   loaded,
		peek:   loaded,
		window: `SELECT window_ms FROM ` + t.meta,
		setWindow: `INSERT INTO ` + t.meta + ` (one, window_ms) VALUES (1, ?1)` +
			` ON CONFLICT (one) DO UPDATE SET window_ms = excluded.window_ms`,
		tick: stampTick,
		expire: `DELETE FROM ` + t.full + ` WHERE id IN (SELECT id FROM ` + t.full +
			` WHERE stamp >> ` + stampShift + ` < min(` + now + ` >> 10, (SELECT max(stamp >> ` + stampShift + `) FROM ` + t.full +
			`)) - ?1 ORDER BY stamp >> ` + stampShift + ` LIMIT ?2) RETURNING id`,
		forget: func(es []entry) []string {
			return []string{`DELETE FROM ` + t.results + ` WHERE id IN (` + idLiterals(es) + `)`}
		},
		save: func(e entry, result []byte) statement { return statement{save, []any{e.id[:], result}} },
	}
}
