package sqladapter

import (
	"context"
	"database/sql"
	"encoding/binary"
	"math"
	"strconv"

	"github.com/onceward/onceward/dedup/driver"
)

// sliceRows is how many marks a slice has. Where ids are digests, a slice has marks of every age,
// and its newest is about as new as the newest of all.
const sliceRows = 2000

// mysqlWalk reads the primary key in order. Its transactions are READ COMMITTED. At the default
// level the locking read of a slice keeps the gaps between the marks locked until COMMIT, and every
// new mark that falls into one of them waits. At READ COMMITTED the read keeps only the locks of
// old marks, and it skips what others have locked, such as marks that are not committed.
type mysqlWalk struct {
	table, meta string
	state       string
	forget      func([]entry) []string
	// extent is set for ids that carry their time. It reads how many marks the pass has walked,
	// about how many the table has, and when the newest of the last ones was made.
	extent string
}

func newMySQLWalk(t tableName, forget func([]entry) []string) *mysqlWalk {
	return &mysqlWalk{table: t.full, meta: t.meta, forget: forget,
		state: `SELECT window_ms, walk_begun_ms, newest_ms, ` + mysqlNow + `, walk_id FROM ` +
			t.meta + ` FOR UPDATE SKIP LOCKED`}
}

// lock looks for the end of the next slice, without locks, and for the newest mark in it. It counts
// one slice less than the pass has walked. So when a call stops inside a slice, because of its
// limit, the next call is due at once and takes the rest.
func (w *mysqlWalk) lock(ctx context.Context, tx *sql.Tx) (*pass, error) {
	var p pass
	if err := scanOne(ctx, tx, w.state, &p.window, &p.begun, &p.newest, &p.now,
		&p.after); err != nil {
		return nil, err
	}
	var newest int64
	err := scanOne(ctx, tx, `SELECT COUNT(*), MAX(id), COALESCE(MAX(created_at), 0)`+
		` FROM (SELECT id, created_at`+w.from(p.after)+` ORDER BY id LIMIT `+
		strconv.Itoa(sliceRows)+`) AS s`, &p.rows, &p.last, &newest)
	if err != nil {
		return nil, err
	}
	p.newest = max(p.newest, newest)
	if w.extent != "" {
		if err := scanOne(ctx, tx, w.extent, &p.counted, &p.total, &newest); err != nil {
			return nil, err
		}
		p.newest = max(p.newest, newest)
	}
	if p.rows == sliceRows {
		p.walked = w.before(&p)
	}
	return &p, nil
}

// before returns the part of the table that the pass has walked, without its last slice.
func (w *mysqlWalk) before(p *pass) float64 {
	if w.extent != "" {
		return p.countedOf(p.counted - sliceRows)
	}
	at := keyFraction(p.after)
	return max(0, at-(keyFraction(p.last)-at))
}

// upTo returns the part of the table that the pass has walked.
func (w *mysqlWalk) upTo(p *pass) float64 {
	if w.extent != "" {
		return p.countedOf(p.counted)
	}
	return keyFraction(p.after)
}

// countedOf divides by the server's estimate of how many marks there are. It stays below 1, because
// a pass ends at the last mark, not where the estimate says.
func (p *pass) countedOf(marks int64) float64 {
	const nearly = 0.999
	return min(nearly, float64(max(0, marks))/float64(max(1, p.total)))
}

// lastMarks is how many marks are read at the end of a table whose ids carry their time: new marks
// are there, and those with an id from the future.
const lastMarks = 100

// inTime is for ids that carry their time. Such an id does not show how much of the table is before
// it: all ids of a window have nearly the same first bytes, and an id that claims to be of the next
// century is far from them. So the pass counts marks. New marks are at the end of the table, not in
// every slice.
func (w *mysqlWalk) inTime(t tableName) *mysqlWalk {
	in := *w
	in.extent = `SELECT walk_rows, (SELECT COALESCE(MAX(table_rows), 0) FROM` +
		` information_schema.tables WHERE ` + mysqlNamed(t, t.name) + `),` +
		` (SELECT COALESCE(MAX(created_at), 0) FROM (SELECT created_at FROM ` + w.table +
		` FORCE INDEX (PRIMARY) ORDER BY id DESC LIMIT ` + strconv.Itoa(lastMarks) + `) AS l) FROM ` +
		w.meta
	return &in
}

func (w *mysqlWalk) from(after []byte) string {
	return ` FROM ` + w.table + ` FORCE INDEX (PRIMARY) WHERE id > ` + hexLiteral(after)
}

// slice locks the old marks of the slice, and deletes them. Numbers and ids are in the text, so a
// driver does not prepare it.
func (w *mysqlWalk) slice(ctx context.Context, tx *sql.Tx, p *pass, limit int64) (deleted int64,
	err error) {
	if p.rows > 0 {
		old, err := queryRows(ctx, tx, statement{text: `SELECT id` + w.from(p.after) +
			` AND id <= ` + hexLiteral(p.last) +
			` AND created_at < ` + strconv.FormatInt(p.cut(), 10) +
			` ORDER BY id LIMIT ` + strconv.FormatInt(limit, 10) + ` FOR UPDATE SKIP LOCKED`},
			sliceRows/passes, (*columns).idAlone)
		if err != nil {
			return 0, err
		}
		if err := forgetRows(ctx, tx, old, w.forget); err != nil {
			return 0, err
		}
		if deleted = int64(len(old)); deleted == limit {
			p.after = old[deleted-1].id[:]
			p.counted += deleted
			p.walked = w.upTo(p)
			return deleted, nil // there may be more
		}
		p.after = p.last
	}
	p.counted += p.rows
	p.walked = 1
	if p.rows == sliceRows {
		p.walked = w.upTo(p)
	}
	return deleted, nil
}

// keyFraction returns the part of the key space up to an id. It holds where ids are digests.
func keyFraction(id []byte) float64 {
	if len(id) < len(driver.ID{}) {
		return 0
	}
	return float64(binary.BigEndian.Uint64(id)>>1) / (math.MaxInt64 + 1.0)
}

func (w *mysqlWalk) save(ctx context.Context, tx *sql.Tx, p *pass) error {
	text := `UPDATE ` + w.meta + ` SET walk_id = ` + hexLiteral(p.after) +
		`, walk_begun_ms = ` + strconv.FormatInt(p.begun, 10) +
		`, newest_ms = ` + strconv.FormatInt(p.newest, 10)
	if w.extent != "" {
		text += `, walk_rows = ` + strconv.FormatInt(p.counted, 10)
	}
	_, err := tx.ExecContext(ctx, text)
	return err
}
