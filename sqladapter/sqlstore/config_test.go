package sqlstore

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/sqladapter/internal/dialect"
)

// wantField insists on an InputError about field, or on no error if it is empty.
func wantField(t *testing.T, err error, field string) {
	t.Helper()
	var input *dedup.InputError
	switch {
	case field == "" && err != nil:
		t.Errorf("refused: %v", err)
	case field != "" && (!errors.As(err, &input) || input.Field != field):
		t.Errorf("%v, want an error about %s", err, field)
	}
}

func TestStoreConfig(t *testing.T) {
	db := &sql.DB{}
	tests := map[string]struct {
		cfg   Options
		field string
	}{
		"postgres":   {cfg: Options{Dialect: Postgres, Schema: "Mine", Table: "Order"}},
		"mysql":      {cfg: Options{Dialect: MySQL}},
		"sqlite":     {cfg: Options{Dialect: SQLite}},
		"no dialect": {Options{}, "Dialect"},
		"SQL Server": {Options{Dialect: dialect.SQLServer}, "Dialect"},
		"hostile table": {Options{Dialect: Postgres, Table: `x"; drop table y; --`},
			"Table"},
		"hostile schema": {Options{Dialect: MySQL, Schema: "a`b"}, "Schema"},
		"long table": {Options{Dialect: MySQL, Table: string(make([]byte, 64))},
			"Table"},
		"table of SQLite":   {Options{Dialect: SQLite, Table: "SQLite_x"}, "Table"},
		"table of versions": {Options{Dialect: SQLite, Table: "onceward_migrations"}, "Table"},
		"negative result":   {Options{Dialect: SQLite, MaxResult: -1}, "MaxResult"},
		"results too large": {Options{Dialect: SQLite, MaxResult: mostResult + 1},
			"MaxResult"},
		"results just right": {cfg: Options{Dialect: SQLite, MaxResult: mostResult}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := New(db, tt.cfg)
			wantField(t, err, tt.field)
		})
	}
	_, err := New(nil, Options{Dialect: SQLite})
	wantField(t, err, "db")
}
