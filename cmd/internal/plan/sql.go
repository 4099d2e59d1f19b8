package plan

import "math"

// engine holds how many bytes a mark takes in a database, in the table and the indexes together.
// The bytes of a mark were measured (TestTables). The bytes of a fingerprint and of a result follow
// from the columns.
type engine struct {
	name string
	// deletes and generations are the bytes of each mark with that sqladapter.Retention, or 0 if
	// the engine does not have it.
	deletes, generations float64
	// lives is the longest life of a mark with deletes, in windows.
	lives float64
	// fingerprint is what a fingerprint adds to a mark.
	fingerprint float64
	// result returns the bytes of a row with a result of this size.
	result func(bytes float64) float64
}

// walked is the life of a mark, in windows, if DeleteExpired walks over the whole table, because a
// pass takes a quarter of the window. In SQLite, DeleteExpired reads the oldest marks from an index
// instead.
const walked = 1.25

// filled is how full the pages of a tree are when entries are inserted in random order: ln 2.
const filled = math.Ln2

// paged returns the bytes of a row if pages hold only whole rows.
func paged(row, usable, page float64) float64 { return page / math.Max(1, math.Floor(usable/row)) }

var engines = []engine{
	// PostgreSQL: a tuple has a header of 24 bytes, an id of 16, the result with its length,
	// aligned to 8, and a line pointer, in pages of 8 KiB. The index on ids has 28 bytes a row.
	// From 2 kB on, a result is cut into pieces, four to a page, in a separate table with an index.
	{"PostgreSQL", 93, 94, walked, 24, func(n float64) float64 {
		const index, piece = 28 / filled, 1996
		if n+20 > 2000 {
			return 72 + index + math.Ceil(n/piece)*(2048+index)
		}
		return paged(math.Ceil((24+16+4+n)/8)*8+4, 8168, 8192) + index
	}},
	// InnoDB: a row has 18 bytes of header and internal columns, and an id of 16, in pages ordered
	// by id. A result of half a page or more has pages of its own, of 16 KiB. Results are inserted
	// one by one; measurements showed pages that they fill by half or less. InnoDB also reserves
	// extents ahead, which are added to that.
	{"MariaDB", 92, 0, walked, 18 / filled, func(n float64) float64 {
		const half = 0.5
		if n > 8000 {
			return (18+16+20)/half + math.Ceil(n/16e3)*16384
		}
		return (18 + 16 + 2 + n) / half
	}},
	// SQLite: rows are stored in order of time, in pages of 4 KiB, and the id is stored again in an
	// index. The part of a row that does not fit into a page has whole pages of its own.
	{"SQLite", 63.5, 0, 1, 18 / filled, func(n float64) float64 {
		const index, usable, apart, least = 24 / filled, 4088, 4092, 489
		row, pages := n+24, 0.0
		if n > 4030 {
			local := least + math.Mod(row-least, apart)
			row, pages = local, math.Round((row-local)/apart)
		}
		return paged(row, usable, 4096) + pages*4096 + index
	}},
}

// sql returns the plan for each database and retention.
func (o *Options) sql() (plans []SQL) {
	rows := math.Ceil(o.keys())
	for _, e := range engines {
		plans = append(plans, o.table(e, "deletes", 1, math.Ceil(e.lives*rows), e.deletes))
		if e.generations > 0 {
			plans = append(plans, o.table(e, "generations", 2, 2*rows, e.generations))
		}
	}
	return plans
}

// table returns the plan for one retention. mark is the bytes of a mark alone, to which its
// fingerprint and result are added.
func (o *Options) table(e engine, retention string, tables int, rows, mark float64) SQL {
	if o.Fingerprint {
		mark += e.fingerprint
	}
	if o.Result > 0 {
		mark += e.result(float64(o.Result))
	}
	return SQL{Engine: e.name, Retention: retention, Tables: tables, Rows: uint64(rows),
		BytesPerKey: round(mark), Bytes: uint64(rows * mark)}
}
