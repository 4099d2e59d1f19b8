package sqladapter

import (
	"slices"
	"time"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/sqladapter/internal/dialect"
)

// newSQLite takes many rows at once, as one blob of ids and one of fingerprints. Inside the process
// a parameter is expensive, and so is a text whose length depends on the batch, because SQLite must
// parse it each time. With one writer at a time there is no deadlock.
func newSQLite(t tableName, window time.Duration) *statements {
	const (
		now  = `CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)`
		list = `WITH RECURSIVE b(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM b WHERE (i + 1) * 16 < length(?1)) `
		id   = `substr(?1, i * 16 + 1, 16)`
	)
	into := `INSERT INTO ` + t.full + ` (id, stamp, fingerprint) `
	tail := ` ON CONFLICT (id) DO NOTHING RETURNING id, stamp`
	one := into + `VALUES (?1, ` + now + ` << 20 | ?2, ?3)` + tail
	// WHERE true keeps ON CONFLICT from being read as a part of a join.
	many := into + list + `SELECT ` + id + `, (SELECT ` + now +
		`) << 20 | ?2, nullif(substr(?3, i * 17 + 1, 17), zeroblob(17)) FROM b WHERE true` + tail
	load := list + `SELECT m.id, m.stamp, m.fingerprint, m.stamp >> 20, ` + now +
		`, r.result FROM ` + t.full + ` AS m` +
		` LEFT JOIN ` + t.results + ` AS r ON r.id = m.id WHERE m.id IN (SELECT ` + id + ` FROM b)`
	save := `INSERT INTO ` + t.results + ` (id, result) SELECT id, ?2 FROM ` +
		t.full + ` WHERE id = ?1` +
		` ON CONFLICT (id) DO NOTHING RETURNING id`
	loaded := func(es []entry) statement { return statement{load, []any{idBlob(es)}} }
	return &statements{
		guard: guardSQLite,
		form:  `SELECT id, stamp, fingerprint FROM ` + t.full + ` WHERE 1 = 0`,
		raise: `INSERT INTO ` + t.meta + ` AS m (one, window_ms) VALUES (1, ` +
			windowText(window) + `)` +
			` ON CONFLICT (one) DO UPDATE SET window_ms = max(m.window_ms, excluded.window_ms)`,
		chunk: 10_000,
		insert: func(es []entry, salt int64) statement {
			if len(es) == 1 {
				return statement{one, []any{es[0].id[:], salt, dialect.Nullable(es[0].fingerprint)}}
			}
			return statement{many, []any{idBlob(es), salt, fingerprintBlob(es)}}
		},
		salt:   saltBits,
		load:   loaded,
		peek:   loaded,
		window: `SELECT window_ms FROM ` + t.meta,
		setWindow: `INSERT INTO ` + t.meta + ` (one, window_ms) VALUES (1, ?1)` +
			` ON CONFLICT (one) DO UPDATE SET window_ms = excluded.window_ms`,
		tick:  stampTick,
		clock: `SELECT ` + now,
		expire: `DELETE FROM ` + t.full + ` WHERE id IN (SELECT id FROM ` + t.full +
			` WHERE stamp >> ` + stampShift + ` < min(` + now + ` >> 10, (SELECT max(stamp >> ` +
			stampShift + `) FROM ` + t.full +
			`)) - ?1 ORDER BY stamp >> ` + stampShift + ` LIMIT ?2) RETURNING id`,
		forget: func(es []entry) []string {
			return []string{`DELETE FROM ` + t.results + ` WHERE id IN (` + idLiterals(es) + `)`}
		},
		save: func(e entry, result []byte) statement {
			return statement{save, []any{e.id[:], result}}
		},
	}
}

// idBlob returns all ids, one after the other.
func idBlob(es []entry) []byte {
	ids := make([]byte, 0, len(es)*len(driver.ID{}))
	for i := range es {
		ids = append(ids, es[i].id[:]...)
	}
	return ids
}

// fingerprintBlob returns all fingerprints, one after the other, or nil when no entry has one.
// Zeros stand for an entry without one.
func fingerprintBlob(es []entry) any {
	if !slices.ContainsFunc(es, func(e entry) bool {
		return e.fingerprint != driver.Fingerprint{}
	}) {
		return nil
	}
	all := make([]byte, 0, len(es)*len(driver.Fingerprint{}))
	for i := range es {
		all = append(all, es[i].fingerprint[:]...)
	}
	return all
}
