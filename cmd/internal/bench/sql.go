package bench

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/onceward/onceward/sqladapter"
)

// onSQL is a database. Its tables are made by hand, without the record of migrations, which other
// tables share.
type onSQL struct {
	o      *Options
	db     *sql.DB
	table  string
	result []byte
	marks  *sqladapter.Ledger
	insert string
}

func newSQL(o *Options, name string) (*onSQL, error) {
	db, err := o.Server.OpenSQL(true)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(o.Workers + 1)
	db.SetMaxIdleConns(o.Workers + 1)
	s := &onSQL{o: o, db: db, table: name, result: noise(o.Result)}
	s.marks, err = sqladapter.New(sqladapter.Config{
		Dialect: o.Server.Dialect(), Namespace: "bench", Schema: o.Schema, Table: s.table,
		ResultLimit: max(o.Result, 1),
	})
	if err != nil {
		_ = db.Close()
		return nil, err
	}
	s.insert = s.bareInsert(o.Batch)
	return s, nil
}

func (s *onSQL) title() string { return s.o.Server.Dialect().String() + " marks" }

func (s *onSQL) close() { _ = s.db.Close() }

// traffic of a driver is not known.
func (s *onSQL) traffic(int) traffic { return traffic{} }

func (s *onSQL) kind(err error) string {
	name := commonKind(err)
	switch {
	case name != "":
		return name
	case sqladapter.Retryable(err):
		return "retryable"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return "context"
	}
	return "other"
}

func (s *onSQL) look(ctx context.Context) error {
	if err := s.db.PingContext(ctx); err != nil {
		return fmt.Errorf("--sql: %w", err)
	}
	return nil
}

// tables are all that are made, with suffixes behind the name.
var tables = []string{"", "_results", "_meta", "_bare"}

// name is quoted, with its schema.
func (s *onSQL) name(suffix string) string {
	quote := `"`
	if s.o.Server.Dialect() == sqladapter.MySQL {
		quote = "`"
	}
	name := quote + s.table + suffix + quote
	if s.o.Schema != "" {
		name = quote + s.o.Schema + quote + "." + name
	}
	return name
}

// bareTables have an id of 16 bytes and what the effect has returned, and no more.
var bareTables = map[sqladapter.Dialect]string{
	sqladapter.Postgres: `CREATE TABLE %s (id uuid NOT NULL PRIMARY KEY, result bytea)`,
	sqladapter.MySQL:    `CREATE TABLE %s (id BINARY(16) NOT NULL PRIMARY KEY, result LONGBLOB) ENGINE=InnoDB`,
	sqladapter.SQLite:   `CREATE TABLE %s (id BLOB NOT NULL PRIMARY KEY, result BLOB) WITHOUT ROWID`,
}

// open makes the tables the first time.
func (s *onSQL) open(ctx context.Context, warm bool, _ int) (ours, bare work, err error) {
	if warm {
		for statement := range strings.SplitSeq(s.marks.Migrations().SQL(), ";\n") {
			if strings.TrimSpace(statement) == "" ||
				strings.Contains(statement, "onceward_migrations") {
				continue
			}
			if _, err := s.db.ExecContext(ctx, statement); err != nil {
				return nil, nil, fmt.Errorf("--sql: %w", err)
			}
		}
		if _, err := s.db.ExecContext(ctx,
			fmt.Sprintf(bareTables[s.o.Server.Dialect()], s.name("_bare"))); err != nil {
			return nil, nil, fmt.Errorf("--sql: %w", err)
		}
	}
	if s.o.Batch > 1 {
		return s.batch, s.bare, nil
	}
	return s.one, s.bare, nil
}

// one is Do, whose effect is nothing, or what it returns.
func (s *onSQL) one(ctx context.Context, batch []message) []error {
	m := batch[0]
	mark, err := s.marks.Do(ctx, s.db, m.key, func(ctx context.Context, tx *sql.Tx) error {
		if s.result == nil {
			return nil
		}
		return s.marks.SaveResultTx(ctx, tx, m.key, s.result)
	})
	if err == nil {
		err = judge(m, mark.Outcome)
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// batch is DoBatch.
func (s *onSQL) batch(ctx context.Context, batch []message) []error {
	errs, keys := make([]error, len(batch)), make([]string, len(batch))
	for i := range batch {
		keys[i] = batch[i].key
	}
	marks, err := s.marks.DoBatch(ctx, s.db,
		keys, func(ctx context.Context, tx *sql.Tx, first []int) error {
			if s.result == nil {
				return nil
			}
			for _, i := range first {
				if err := s.marks.SaveResultTx(ctx, tx, keys[i], s.result); err != nil {
					return err
				}
			}
			return nil
		})
	if err != nil {
		return all(errs, err)
	}
	failed := false
	for i, mark := range marks {
		if errs[i] = mark.Err; errs[i] == nil {
			errs[i] = judge(batch[i], mark.Outcome)
		}
		failed = failed || errs[i] != nil
	}
	if !failed {
		return nil
	}
	return errs
}

// bareInsert is one statement for a batch, which leaves alone what is there.
func (s *onSQL) bareInsert(rows int) string {
	dialect := s.o.Server.Dialect()
	var b strings.Builder
	fmt.Fprintf(&b, "INSERT INTO %s (id, result) VALUES ", s.name("_bare"))
	for i := range rows {
		if i > 0 {
			b.WriteString(", ")
		}
		if dialect == sqladapter.Postgres {
			fmt.Fprintf(&b, "($%d, $%d)", 2*i+1, 2*i+2)
		} else {
			b.WriteString("(?, ?)")
		}
	}
	if dialect == sqladapter.MySQL {
		b.WriteString(" ON DUPLICATE KEY UPDATE id = id")
	} else {
		b.WriteString(" ON CONFLICT (id) DO NOTHING")
	}
	return b.String()
}

// bare is a transaction with one INSERT, the limit of what has to be on disk. Like Do it is run
// again after a deadlock.
func (s *onSQL) bare(ctx context.Context, batch []message) []error {
	ids := make([][]byte, len(batch))
	var fresh int64
	for i, m := range batch {
		sum := sha256.Sum256([]byte(m.key))
		ids[i] = sum[:16]
		if !m.dup {
			fresh++
		}
	}
	slices.SortFunc(ids, bytes.Compare) // or two batches would wait for each other
	args := make([]any, 0, 2*len(ids))
	for _, id := range ids {
		args = append(args, s.id(id), s.result)
	}
	const tries = 5
	var err error
	for range tries {
		if err = s.bareTx(ctx, args, fresh); err == nil {
			return nil
		} else if !sqladapter.Retryable(err) {
			break
		}
	}
	return all(make([]error, len(batch)), err)
}

// id is 16 bytes in the form of a driver.
func (s *onSQL) id(id []byte) any {
	if s.o.Server.Dialect() == sqladapter.Postgres {
		return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
	}
	return id
}

func (s *onSQL) bareTx(ctx context.Context, args []any, fresh int64) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	done, err := tx.ExecContext(ctx, s.insert, args...)
	if err != nil {
		return err
	}
	if n, err := done.RowsAffected(); err != nil {
		return err
	} else if n < fresh {
		return errSkipped
	} else if n > fresh {
		return errRanAgain
	}
	return tx.Commit()
}

// sample is the size of the tables, where a database tells it exactly. Nobody else writes to them.
func (s *onSQL) sample(ctx context.Context) (sample, error) {
	if s.o.Server.Dialect() != sqladapter.Postgres {
		return sample{}, nil
	}
	out := sample{bytes: known{ok: true}}
	for _, suffix := range []string{"", "_results", "_bare"} {
		var size float64
		if err := s.db.QueryRowContext(ctx, `SELECT pg_total_relation_size($1::regclass)`,
			s.name(suffix)).Scan(&size); err != nil {
			return sample{}, err
		}
		out.bytes.value += size
	}
	return out, nil
}

func (s *onSQL) remains() string {
	names := make([]string, len(tables))
	for i, suffix := range tables {
		names[i] = s.name(suffix)
	}
	return "tables; DROP TABLE IF EXISTS " + strings.Join(names, ", ")
}

// clean drops the tables. What is under way holds them until it has ended.
func (s *onSQL) clean(ctx context.Context, _ bool) error {
	var errs []error
	for _, suffix := range tables {
		_, err := s.db.ExecContext(ctx, "DROP TABLE IF EXISTS "+s.name(suffix))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
