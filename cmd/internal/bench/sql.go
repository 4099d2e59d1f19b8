package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/sqlname"
	"github.com/onceward/onceward/sqladapter"
)

// onSQL is a database. Its tables are created without the record of migrations, which it would
// share with other tables.
type onSQL struct {
	o     *Options
	db    *sql.DB
	table string
	marks *sqladapter.Ledger
}

func newSQL(o *Options, name string) (*onSQL, error) {
	db, err := o.Server.OpenSQL(true)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(o.Workers + 1)
	db.SetMaxIdleConns(o.Workers + 1)
	s := &onSQL{o: o, db: db, table: name}
	s.marks, err = sqladapter.New(sqladapter.Config{Dialect: o.Server.Dialect(),
		Namespace: "bench", Schema: o.Schema, Table: s.table})
	if err != nil {
		_ = db.Close()
	}
	return s, err
}

func (s *onSQL) title() string { return s.o.Server.Dialect().String() + " marks" }

func (s *onSQL) close() { _ = s.db.Close() }

func (s *onSQL) look(ctx context.Context) error {
	if err := s.db.PingContext(ctx); err != nil {
		return fmt.Errorf("--sql: %w", err)
	}
	return nil
}

func (s *onSQL) full(context.Context) (bool, error) { return false, nil }

func (s *onSQL) open(ctx context.Context) error {
	for statement := range strings.SplitSeq(s.marks.Migrations().SQL(), ";\n") {
		if strings.TrimSpace(statement) == "" || strings.Contains(statement, "onceward_migrations") {
			continue
		}
		if _, err := s.db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("--sql: %w", err)
		}
	}
	return nil
}

// send calls Do with an effect that does nothing.
func (s *onSQL) send(ctx context.Context, key string) (duplicate bool, err error) {
	mark, err := s.marks.Do(ctx, s.db, key, func(context.Context, *sql.Tx) error { return nil })
	return mark.Outcome == dedup.Duplicate, err
}

// tables are the suffixes of all tables that the run creates.
var tables = []string{"", "_results", "_meta"}

// name is the quoted name of a table, with its schema.
func (s *onSQL) name(suffix string) string {
	mark := byte('"')
	if s.o.Server.Dialect() == sqladapter.MySQL {
		mark = '`'
	}
	name := sqlname.Quote(s.table+suffix, mark)
	if s.o.Schema != "" {
		name = sqlname.Quote(s.o.Schema, mark) + "." + name
	}
	return name
}

func (s *onSQL) remains() string {
	names := make([]string, len(tables))
	for i, suffix := range tables {
		names[i] = s.name(suffix)
	}
	return "tables; DROP TABLE IF EXISTS " + strings.Join(names, ", ")
}

// clean drops the tables. It waits for the end of a running transaction, which holds locks on them.
func (s *onSQL) clean(ctx context.Context) error {
	var errs []error
	for _, suffix := range tables {
		_, err := s.db.ExecContext(ctx, "DROP TABLE IF EXISTS "+s.name(suffix))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
