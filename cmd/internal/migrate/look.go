package migrate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/sqlerr"
	"github.com/onceward/onceward/internal/sqlmigrate"
	"github.com/onceward/onceward/internal/sqlname"
	"github.com/onceward/onceward/sqladapter"
)

// State describes the tables as they are, and what is to be done.
type State struct {
	Kind    string `json:"kind"`
	Dialect string `json:"dialect"`
	Schema  string `json:"schema,omitempty"`
	Table   string `json:"table"`
	// Version is the recorded version, or zero if there is none. Newest is the newest version that
	// this program knows.
	Version int `json:"version"`
	Newest  int `json:"newest"`
	// Target is the version to reach.
	Target int `json:"target"`
	// Steps are the steps to take or, with Applied, the steps that were taken.
	Steps []Step `json:"steps"`
	// Drops describes what the steps delete.
	Drops string `json:"drops,omitempty"`
	// Window reports that the recorded window is shorter than the given one, and has to be raised.
	// With Applied, it was raised.
	Window bool `json:"raise_window,omitempty"`
	// Note says what is unusual about the tables.
	Note string `json:"note,omitempty"`
	// Applied reports that the steps were taken.
	Applied bool `json:"applied"`
}

// Step leads from a version to the next one, or to the one before.
type Step struct {
	From int `json:"from"`
	To   int `json:"to"`
	// Name is the name of the version that is applied or undone.
	Name string `json:"name"`
	// Drops are the statements of a downward step that drop something.
	Drops []string `json:"drops,omitempty"`
	// Milliseconds is how long the step took; zero before it is taken.
	Milliseconds float64 `json:"ms,omitempty"`
}

// done reports whether there is nothing to do.
func (s *State) done() bool { return len(s.Steps) == 0 && !s.Window }

// look finds out the state of the tables, and changes nothing. It returns an error if the tables
// are in a state in which they must not be migrated.
func look(ctx context.Context, o *Options, db *sql.DB, c *component) (*State, error) {
	s := &State{Kind: o.Kind, Dialect: o.Dialect.String(), Schema: o.Schema, Table: c.table,
		Newest: c.newest, Target: o.To}
	if o.To == newest {
		s.Target = c.newest
	}
	if s.Target > c.newest {
		return nil, fmt.Errorf("--to is %d; there are 0 to %d", s.Target, c.newest)
	}
	var err error
	if s.Version, err = c.version(ctx); err != nil {
		return nil, fmt.Errorf("--sql: %w", err)
	}
	if s.Version > c.newest {
		return nil, fmt.Errorf(
			"%s has version %d of %s, and this program knows %d: take the onceward of the programs that use it",
			s.name(), s.Version, s.Kind, s.Newest)
	}
	columns, err := columnsOf(ctx, o, db, c.table)
	if err != nil {
		return nil, fmt.Errorf("--sql: %w", err)
	}
	if err := s.compare(ctx, c, columns); err != nil {
		return nil, err
	}
	return s, s.plan(c.files())
}

// compare checks the tables against the recorded version. The columns are nil if there is no table.
func (s *State) compare(ctx context.Context, c *component, columns []string) error {
	switch {
	case s.Version == 0 && s.Target > 0 && columns != nil:
		return s.unrecorded(ctx, c, columns)
	case s.Version > 0 && s.Target > 0 && columns == nil:
		return fmt.Errorf("table %s is gone, while %s has version %d on record: somebody has dropped or not restored it; "+
			"to begin with empty tables undo the rest with --to 0 --apply --drop", s.name(),
			sqlmigrate.Table, s.Version)
	case s.Version == c.newest && s.Target == c.newest:
		err := c.check(ctx)
		input, ok := errors.AsType[*dedup.InputError](err)
		if s.Window = ok && input.Field == "Window"; s.Window {
			return nil
		}
		return err
	}
	return nil
}

// unrecorded checks a table that is not on record. The table may be ours, complete or in part, or
// another program's.
func (s *State) unrecorded(ctx context.Context, c *component, columns []string) error {
	err := c.read(ctx)
	switch {
	case err == nil:
		s.Note = "the tables are there and not on record: made by hand, or by a run that was cut off; --apply puts them on record"
		return nil
	case ctx.Err() != nil || sqlerr.Transient(err):
		return fmt.Errorf("--sql: %w", err)
	case incomplete(err) && known(c.sql(), columns):
		s.Note = "table " + s.name() + " is there, but not all that belongs to it, and it is not on record: " +
			"of a run that was cut off or is under way; --apply continues it"
		return nil
	}
	return fmt.Errorf("--table: %s is there, and is not a table of %s; name another: %w", s.name(),
		s.kind(), err)
}

// incomplete reports whether the error of a read says that a migration has not come to its end: a
// table is missing, or its first row, or the column of a later version. On PostgreSQL another run
// may have committed the first version since this one has read the version.
func incomplete(err error) bool {
	return sqlerr.NoTable(err) || errors.Is(err, sql.ErrNoRows) ||
		sqlerr.OtherForm(err) && strings.Contains(err.Error(), "id_form")
}

// known reports whether all of the columns occur in the statements that make our tables.
func known(text string, columns []string) bool {
	all := words.FindAllString(comments.ReplaceAllString(text, ""), -1)
	return !slices.ContainsFunc(columns, func(column string) bool {
		return !slices.Contains(all, column)
	})
}

// name is the name of the table, with its schema.
func (s *State) name() string { return strings.TrimPrefix(s.Schema+"."+s.Table, ".") }

// kind is how a sentence names the kind of table.
func (s *State) kind() string {
	return map[string]string{"marks": "marks", "fence": "fences", "store": "claims",
		"outbox": "an outbox"}[s.Kind]
}

// columnsOf returns the columns of a table or view, or nil if there is none. It asks within a
// transaction and ends that: with autocommit off, MySQL would otherwise leave a transaction open on
// the connection.
func columnsOf(ctx context.Context, o *Options, db *sql.DB, table string) (columns []string,
	err error) {
	mark := byte('"')
	if o.Dialect == sqladapter.MySQL {
		mark = '`'
	}
	full := sqlname.Quote(table, mark)
	if o.Schema != "" {
		full = sqlname.Quote(o.Schema, mark) + "." + full
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }()
	rows, err := tx.QueryContext(ctx, "SELECT * FROM "+full+" WHERE 1 = 0")
	if sqlerr.NoTable(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	if columns, err = rows.Columns(); err != nil {
		return nil, err
	}
	return append([]string{}, columns...), rows.Err()
}

var (
	comments   = regexp.MustCompile(`(?m)^\s*--.*$`)
	words      = regexp.MustCompile(`\w+`)
	drops      = regexp.MustCompile(`(?m)^(DROP|ALTER) [^;]+;`)
	dropsTable = regexp.MustCompile(`^DROP (TABLE|VIEW)`)
)

// plan lists the steps, with the names of the versions from the migration files.
func (s *State) plan(files fs.FS) error {
	s.Steps = []Step{} // no null in JSON
	names, downs := make([]string, s.Newest+1), make([]string, s.Newest+1)
	found, err := fs.Glob(files, "*.down.sql")
	for _, file := range found {
		number, name, _ := strings.Cut(strings.TrimSuffix(file, ".down.sql"), "_")
		v, errNumber := strconv.Atoi(number)
		down, errRead := fs.ReadFile(files, file)
		if err = errors.Join(err, errNumber, errRead); err != nil {
			return err
		}
		names[v], downs[v] = name, string(down)
	}
	for v := s.Version; v < s.Target; v++ {
		s.Steps = append(s.Steps, Step{From: v, To: v + 1, Name: names[v+1]})
	}
	for v := s.Version; v > s.Target; v-- {
		s.Steps = append(s.Steps,
			Step{From: v, To: v - 1, Name: names[v], Drops: drops.FindAllString(downs[v], -1)})
	}
	return err
}

// dropsTables reports whether a downward step drops a table. Other steps drop only indexes, and
// columns without a user's data.
func (s *State) dropsTables() bool {
	return slices.ContainsFunc(s.Steps, func(step Step) bool {
		return slices.ContainsFunc(step.Drops, dropsTable.MatchString)
	})
}
