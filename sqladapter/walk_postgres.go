package sqladapter

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"strconv"
)

const (
	// slicePages is how many pages a slice has. They hold some 10,000 marks without fingerprints.
	slicePages = 64
	// looks is how many pages are read for new marks, besides those of the slice: the last page,
	// and others at random. In a full table, the marks of the last hundredth of a window are in 4
	// of 100 pages: those where a vacuum has left room.
	looks = 16
)

// walksSince is the first version that can read only a range of pages: it has TID range scans.
const walksSince = 140000

// postgresWalk reads ranges of ctid. It never keeps an address: one statement finds an old mark and
// deletes it, and checks the mark's age in both steps. While a statement runs, its snapshot keeps a
// row at its address; afterwards a vacuum may free the address for another mark.
type postgresWalk struct {
	state string // locks and reads
	text  string // deletes
	write string // saves
}

func newPostgresWalk(t tableName) *postgresWalk {
	between := `ctid >= format('(%s,0)', $1::bigint)::tid AND ctid < format('(%s,0)', $2::bigint)::tid`
	old := `stamp < greatest((SELECT ms FROM young) - $5::bigint, 0) << ` + strconv.Itoa(saltBits)
	return &postgresWalk{
		state: `SELECT window_ms, walk_begun_ms, newest_ms, ` + postgresNow + `,` +
			` walk_page, walk_file, coalesce(pg_relation_filenode('` + t.full + `'), 0)::bigint,` +
			` pg_relation_size('` + t.full + `') / current_setting('block_size')::bigint,` +
			` current_setting('server_version_num')::bigint` +
			` FROM ` + t.meta + ` FOR UPDATE SKIP LOCKED`,
		// OFFSET 0 makes each sampled page a range scan of its own. A mark from the future counts
		// as one made now.
		text: `WITH young AS MATERIALIZED (SELECT least($4::bigint, greatest($3::bigint,` +
			` (SELECT max(stamp >> 20) FROM ` + t.full + ` WHERE ` + between + `),` +
			` (SELECT max(f.stamp >> 20) FROM unnest($7::text::bigint[]) AS b(page) CROSS JOIN LATERAL` +
			` (SELECT stamp FROM ` + t.full + ` WHERE ctid >= format('(%s,0)', b.page)::tid` +
			` AND ctid < format('(%s,0)', b.page + 1)::tid OFFSET 0) AS f))) AS ms),` +
			` gone AS (DELETE FROM ` + t.full + ` WHERE ctid = ANY (ARRAY(SELECT ctid FROM ` + t.full +
			` WHERE ` + between + ` AND ` + old + ` LIMIT $6::bigint)) AND ` + old + ` RETURNING id),` +
			` unused AS (DELETE FROM ` + t.results + ` WHERE id = ANY (ARRAY(SELECT id FROM gone)))` +
			` SELECT count(*), (SELECT ms FROM young) FROM gone`,
		write: `UPDATE ` + t.meta + ` SET walk_page = $1::bigint, walk_file = $2::bigint,` +
			` walk_begun_ms = $3::bigint, newest_ms = $4::bigint`,
	}
}

// lock begins again at the first page when the table was rewritten (VACUUM FULL, CLUSTER,
// TRUNCATE): marks may have moved to pages that were already read. The pass still ends at its old
// time, so it goes faster.
func (w *postgresWalk) lock(ctx context.Context, tx *sql.Tx) (*pass, error) {
	var p pass
	var file, version int64
	if err := scanOne(ctx, tx, w.state, &p.window, &p.begun, &p.newest, &p.now, &p.page, &file,
		&p.file, &p.pages, &version); err != nil {
		return nil, err
	}
	switch {
	case version < walksSince:
		return nil, errByIndex
	case p.file == 0:
		return nil, errors.New("the table of marks has no pages of its own, because it is partitioned")
	}
	if file != p.file {
		p.page = 0
	}
	p.walked = p.through()
	return &p, nil
}

// slice uses the present number of pages: pages that were added since the pass began are walked,
// too.
func (w *postgresWalk) slice(ctx context.Context, tx *sql.Tx, p *pass, limit int64) (deleted int64,
	err error) {
	end := p.page + slicePages
	var newest int64
	err = scanRow(ctx, tx, statement{w.text, []any{p.page, end, p.newest, p.now, p.window, limit,
		somePages(p.pages)}}, &deleted, &newest)
	if err != nil {
		return 0, err
	}
	p.newest = newest
	if deleted < limit {
		p.page = end
	}
	p.walked = p.through()
	return deleted, nil
}

// through returns the part of the present pages that the pass has walked.
func (p *pass) through() float64 {
	if p.page < p.pages {
		return float64(p.page) / float64(p.pages)
	}
	return float64(min(p.page, 1)) // an empty table has no first page
}

func (w *postgresWalk) save(ctx context.Context, tx *sql.Tx, p *pass) error {
	_, err := tx.ExecContext(ctx, w.write, p.page, p.file, p.begun, p.newest)
	return err
}

// somePages returns the last page and others at random, as an array literal.
func somePages(pages int64) string {
	if pages == 0 {
		return "{}"
	}
	b := strconv.AppendInt([]byte{'{'}, pages-1, 10)
	for range looks - 1 {
		b = strconv.AppendInt(append(b, ','), rand.Int64N(pages), 10) //nolint:gosec // a sample
	}
	return string(append(b, '}'))
}
