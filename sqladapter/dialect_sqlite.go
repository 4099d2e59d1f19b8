package sqladapter

import "time"

// newSQLite has no statement for many rows: inside the process single statements are
// faster than multi-row ones, and one writer at a time cannot deadlock.
func newSQLite(t tableName, window time.Duration) *dialect {
	const now = `CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)`
	insert := `INSERT INTO ` + t.full + ` (id, stamp, fingerprint) VALUES (?1, ` + now + ` << 20 | ?2, ?3)` +
		` ON CONFLICT (id) DO NOTHING RETURNING id, stamp`
	load := `SELECT m.id, m.stamp, m.fingerprint, m.stamp >> 20, ` + now + `, r.result FROM ` + t.full + ` AS m` +
		` LEFT JOIN ` + t.results + ` AS r ON r.id = m.id WHERE m.id = ?1`
	save := `INSERT INTO ` + t.results + ` (id, result) SELECT id, ?2 FROM ` + t.full + ` WHERE id = ?1` +
		` ON CONFLICT (id) DO NOTHING RETURNING id`
	loaded := func(es []entry) statement { return statement{load, []any{es[0].id[:]}} }
	return &dialect{
		form: `SELECT id, stamp, fingerprint FROM ` + t.full + ` WHERE 1 = 0`,
		raise: `INSERT INTO ` + t.meta + ` AS m (one, window_ms) VALUES (1, ` + windowText(window) + `)` +
			` ON CONFLICT (one) DO UPDATE SET window_ms = max(m.window_ms, excluded.window_ms)`,
		chunk: 1,
		insert: func(es []entry, salt int64) statement {
			return statement{insert, []any{es[0].id[:], salt, nullable(es[0].fingerprint)}}
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
