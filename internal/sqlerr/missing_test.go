package sqlerr

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

// pgSaid, liteSaid and serverSaid are errors with the codes for a missing table, and a text.
type pgSaid struct {
	pgError
	text string
}

func (e pgSaid) Error() string { return e.text }

type liteSaid struct {
	liteError
	text string
}

func (e liteSaid) Error() string { return e.text }

type serverSaid struct {
	serverError
	text string
}

func (e serverSaid) Error() string { return e.text }

func pgMissing(text string) error   { return pgSaid{"42P01", text} }
func liteMissing(text string) error { return liteSaid{1, text} }
func myMissing(text string) error   { return &MySQLError{Number: 1146, Message: text} }

func TestNotMigrated(t *testing.T) {
	tables := []string{`"app"."onceward_marks"`, "`onceward_marks_meta`"}
	for _, row := range []struct {
		err  error
		want string // the table; "" for an error that stays as it is
	}{
		{pgMissing(`ERROR: relation "app.onceward_marks" does not exist (SQLSTATE 42P01)`),
			"app.onceward_marks"},
		{pgMissing(`FEHLER: Relation »onceward_marks_meta« existiert nicht`),
			"onceward_marks_meta"},
		{myMissing("Table 'test.onceward_marks_meta' doesn't exist"), "onceward_marks_meta"},
		{myMissing("Table 'app.ONCEWARD_marks' doesn't exist"), "app.onceward_marks"},
		{liteMissing("SQL logic error: no such table: app.onceward_marks (1)"),
			"app.onceward_marks"},
		{serverSaid{serverError{number: 208}, "Invalid object name 'app.onceward_marks'."},
			"app.onceward_marks"},

		// Tables of others, some of whose names have ours inside.
		{err: pgMissing(`relation "ledger" does not exist`)},
		{err: pgMissing(`relation "other.onceward_marks" does not exist`)},
		{err: pgMissing(`relation "app.onceward_marks2" does not exist`)},
		{err: pgMissing(`relation "app.onceward_marks_old" does not exist`)},
		{err: pgMissing(`relation "app.onceward_marks$" does not exist`)},
		{err: pgMissing(`relation "my_app.onceward_marks" does not exist`)},
		{err: pgMissing(`relation "app.onceward_marksé" does not exist`)},
		{err: myMissing("Table 'test.ledger' doesn't exist")},
		{err: liteMissing("no such table: main.ledger")},
		// Other errors that name a table of ours.
		{err: pgSaid{"42501", `permission denied for table onceward_marks_meta`}},
		{err: &MySQLError{Number: 1142, Message: "denied for table 'onceward_marks_meta'"}},
		{err: liteMissing("no such column: onceward_marks_meta.x")},
		{err: errors.New(`relation "onceward_marks_meta" does not exist`)},
		{err: nil},
	} {
		for how, err := range map[string]error{"": row.err, "wrapped": wrap(row.err),
			"joined": join(row.err)} {
			if row.err == nil {
				err = nil
			}
			got := NotMigrated(err, tables...)
			if row.want == "" {
				assert.Equal(t, err, got, "%s %v", how, row.err)
				continue
			}
			assert.ErrorContains(t, got, "table "+row.want+" does not exist: its migrations", how)
			assert.ErrorContains(t, got, "Migrate, or run `onceward migrate`", how)
			assert.ErrorIs(t, got, row.err, how)
			wantSameAdvice(t, err, got)
		}
	}
}

// wantSameAdvice requires that everything that reads err reads the same in got.
func wantSameAdvice(t *testing.T, err, got error) {
	t.Helper()
	for name, read := range map[string]func(error) any{
		"State": func(e error) any { return State(e) }, "MySQL": func(e error) any { return MySQL(e) },
		"SQLite":    func(e error) any { return SQLite(e) },
		"NoTable":   func(e error) any { return NoTable(e) },
		"Transient": func(e error) any { return Transient(e) },
		"Undone":    func(e error) any { return Undone(e) },
		"Waited":    func(e error) any { return Waited(e) },
		"Doomed":    func(e error) any { return Doomed(e) },
		"Lost":      func(e error) any { return Lost(e) },
		"Denied":    func(e error) any { return Denied(e) },
		"OtherForm": func(e error) any { return OtherForm(e) },
		"Coded":     func(e error) any { return Coded(e) },
	} {
		assert.Equal(t, read(err), read(got), name)
	}
}

// The text around a server's error may have the statement, which names tables that are there.
func TestNotMigratedReadsTheServersTextAlone(t *testing.T) {
	for _, err := range []error{pgMissing(`relation "ledger" does not exist`),
		myMissing("Table 'test.ledger' doesn't exist"), liteMissing("no such table: ledger"),
		serverSaid{serverError{number: 208}, "Invalid object name 'ledger'."}} {
		traced := fmt.Errorf("INSERT INTO onceward_marks: %w", err)
		assert.Equal(t, traced, NotMigrated(traced, "onceward_marks"))
	}
}
