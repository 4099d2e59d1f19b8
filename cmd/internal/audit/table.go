package audit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/onceward/onceward/sqladapter"
)

// readTable reads a table in any order, with one statement in a read-only transaction.
func (o *Options) readTable(ctx context.Context, yield func(*message) bool) (done bool, err error) {
	db, err := o.Server.OpenSQL(true)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	opening, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	if err := db.PingContext(opening); err != nil {
		return false, fmt.Errorf("--sql: %w", o.Server.Unanswered(err))
	}
	tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return false, err
	}
	defer tx.Rollback() //nolint:errcheck // nothing was written
	rows, err := tx.QueryContext(ctx, o.query())
	if err != nil {
		return false, fmt.Errorf("--table %s: %w", o.Table, err)
	}
	defer rows.Close() //nolint:errcheck // Err tells
	for n := 1; rows.Next(); n++ {
		m := &message{place: fmt.Sprintf("row %d", n)}
		if err := o.scan(rows, m); err != nil {
			return false, fmt.Errorf("--table %s: row %d: %w", o.Table, n, err)
		}
		if !yield(m) {
			return false, nil
		}
	}
	return true, rows.Err()
}

// query selects the id, and the time and the payload, or NULL for these.
func (o *Options) query() string {
	columns := []string{o.ID, o.Time, o.Payload}
	for i, column := range columns {
		if column == "" || column == none {
			columns[i] = "NULL"
		} else {
			columns[i] = o.quote(column)
		}
	}
	return "SELECT " + strings.Join(columns, ", ") + " FROM " + o.quote(o.Table)
}

// quote quotes a name that check has validated.
func (o *Options) quote(name string) string {
	q := "`" // SQLite reads the name of a missing column in double quotes as a text
	if o.Server.Dialect() == sqladapter.Postgres {
		q = `"`
	}
	return q + strings.ReplaceAll(name, ".", q+"."+q) + q
}

func (o *Options) scan(rows *sql.Rows, m *message) (err error) {
	var id sql.NullString
	var at any
	if err = rows.Scan(&id, &at, &m.payload); err != nil {
		return err
	}
	m.id = id.String
	switch at := at.(type) {
	case nil:
	case time.Time:
		m.time = at
	case []byte:
		m.time, err = parseTime(string(at))
	default:
		m.time, err = parseTime(fmt.Sprint(at))
	}
	return err
}
