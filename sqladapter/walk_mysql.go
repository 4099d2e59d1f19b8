package sqladapter

import (
	"context"
	"database/sql"
	"encoding/binary"
	"math"
	"strconv"

	"github.com/onceward/onceward/dedup/driver"
)

// sliceRows is how many marks a slice has. Ids are digests, so marks of every age are among them,
// and the newest of a slice is about as new as the newest of all.
const sliceRows = 2000

// mysqlWalk reads the primary key in order. Its transactions are READ COMMITTED, because at the
// default level the locking read of a slice keeps the gaps between the marks locked until COMMIT,
// and every new mark waits that falls into one of them. At READ COMMITTED it keeps the locks of old
// marks alone, and it leaves out what others have locked, such as marks that are not committed.
type mysqlWalk struct {
	table, meta string
	state       string
	forget      func([]entry) []string
}

func newMySQLWalk(t tableName, forget func([]entry) []string) *mysqlWalk {
	return &mysqlWalk{table: t.full, meta: t.meta, forget: forget,
		state: `SELECT window_ms, walk_begun_ms, newest_ms, ` + mysqlNow + `, walk_id FROM ` +
			t.meta + ` FOR UPDATE SKIP LOCKED`}
}

func (w *mysqlWalk) lock(ctx context.Context, tx *sql.Tx) (*pass, error) {
	var p pass
	err := scanOne(ctx, tx, w.state, &p.window, &p.begun, &p.newest, &p.now, &p.after)
	p.walked = keyFraction(p.after)
	return &p, err
}

// slice looks for the end of the slice without locks, and then locks what is old in it. Numbers and
// ids are in the text, so a driver does not prepare.
func (w *mysqlWalk) slice(ctx context.Context, tx *sql.Tx, p *pass, limit int64) (deleted int64,
	err error) {
	var rows, newest int64
	var last []byte
	from := ` FROM ` + w.table + ` FORCE INDEX (PRIMARY) WHERE id > ` + hexLiteral(p.after)
	err = scanOne(ctx, tx, `SELECT COUNT(*), MAX(id), COALESCE(MAX(created_at), 0)`+
		` FROM (SELECT id, created_at`+from+` ORDER BY id LIMIT `+strconv.Itoa(sliceRows)+
		`) AS s`, &rows, &last, &newest)
	if err != nil {
		return 0, err
	}
	p.newest = min(p.now, max(p.newest, newest))
	if rows > 0 {
		old, err := queryRows(ctx, tx, statement{text: `SELECT id` + from + ` AND id <= ` +
			hexLiteral(last) + ` AND created_at < ` + strconv.FormatInt(p.cut(), 10) +
			` ORDER BY id LIMIT ` + strconv.FormatInt(limit, 10) + ` FOR UPDATE SKIP LOCKED`},
			sliceRows/passes, (*columns).idAlone)
		if err != nil {
			return 0, err
		}
		if err := forgetRows(ctx, tx, old, w.forget); err != nil {
			return 0, err
		}
		if deleted = int64(len(old)); deleted == limit {
			return deleted, nil // there may be more
		}
		p.after = last
	}
	p.walked = 1
	if rows == sliceRows {
		p.walked = keyFraction(p.after)
	}
	return deleted, nil
}

// keyFraction is how much of the key space is up to an id: ids are digests.
func keyFraction(id []byte) float64 {
	if len(id) < len(driver.ID{}) {
		return 0
	}
	return float64(binary.BigEndian.Uint64(id)>>1) / (math.MaxInt64 + 1.0)
}

func (w *mysqlWalk) save(ctx context.Context, tx *sql.Tx, p *pass) error {
	_, err := tx.ExecContext(ctx, `UPDATE `+w.meta+` SET walk_id = `+hexLiteral(p.after)+
		`, walk_begun_ms = `+strconv.FormatInt(p.begun, 10)+
		`, newest_ms = `+strconv.FormatInt(p.newest, 10))
	return err
}
