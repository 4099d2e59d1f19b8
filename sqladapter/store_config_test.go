package sqladapter

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/onceward/onceward/dedup"
)

// wantField insists on an InputError about a field, or on none.
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
		cfg   StoreConfig
		field string
	}{
		"postgres":   {cfg: StoreConfig{Dialect: Postgres, Schema: "Mine", Table: "Order"}},
		"mysql":      {cfg: StoreConfig{Dialect: MySQL}},
		"sqlite":     {cfg: StoreConfig{Dialect: SQLite}},
		"no dialect": {StoreConfig{}, "Dialect"},
		"hostile table": {StoreConfig{Dialect: Postgres, Table: `x"; drop table y; --`},
			"Table"},
		"hostile schema": {StoreConfig{Dialect: MySQL, Schema: "a`b"}, "Schema"},
		"long table": {StoreConfig{Dialect: MySQL, Table: string(make([]byte, 64))},
			"Table"},
		"table of SQLite":   {StoreConfig{Dialect: SQLite, Table: "SQLite_x"}, "Table"},
		"table of versions": {StoreConfig{Dialect: SQLite, Table: "onceward_migrations"}, "Table"},
		"negative result":   {StoreConfig{Dialect: SQLite, MaxResult: -1}, "MaxResult"},
		"results too large": {StoreConfig{Dialect: SQLite, MaxResult: mostResult + 1},
			"MaxResult"},
		"results just right": {cfg: StoreConfig{Dialect: SQLite, MaxResult: mostResult}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := NewStore(db, tt.cfg)
			wantField(t, err, tt.field)
		})
	}
	_, err := NewStore(nil, StoreConfig{Dialect: SQLite})
	wantField(t, err, "db")
}
