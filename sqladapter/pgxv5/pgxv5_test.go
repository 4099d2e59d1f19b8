package pgxv5

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/sqlstore"
)

func TestOptions(t *testing.T) {
	for level, want := range map[sql.IsolationLevel]pgx.TxIsoLevel{
		// if the zero value meant the strictest level, every race would be an error
		sql.LevelDefault:         "",
		sql.LevelReadUncommitted: pgx.ReadUncommitted,
		sql.LevelReadCommitted:   pgx.ReadCommitted,
		sql.LevelRepeatableRead:  pgx.RepeatableRead,
		sql.LevelSnapshot:        pgx.RepeatableRead,
		sql.LevelSerializable:    pgx.Serializable,
	} {
		got, err := options(level)
		require.NoError(t, err, "%v", level)
		assert.Equal(t, want, got.IsoLevel, "%v", level)
		assert.Contains(t, got.BeginQuery, string(want), "%v", level)
		assert.Equal(t, want != "", strings.Contains(got.BeginQuery, "level"), "%v", level)
	}
	var input *dedup.InputError
	_, err := options(sql.LevelLinearizable)
	require.ErrorAs(t, err, &input, "linearizable")
	assert.Equal(t, "Isolation", input.Field, "linearizable")
}

func TestBadInput(t *testing.T) {
	marks, err := sqladapter.New(sqladapter.Config{Dialect: sqladapter.Postgres, Namespace: "shop"})
	require.NoError(t, err)
	ctx, pool := t.Context(), (*pgxpool.Pool)(nil)
	effect := func(context.Context, pgx.Tx) error { return nil }
	effects := func(context.Context, pgx.Tx, []int) error { return nil }
	for name, tt := range map[string]struct {
		field string
		call  func() error
	}{
		"nil pool": {"db", func() error {
			_, err := Do(ctx, marks, pool, "k", effect)
			return err
		}},
		"nil db": {"db", func() error {
			_, err := Do(ctx, marks, nil, "k", effect)
			return err
		}},
		"nil marks": {"Ledger", func() error {
			_, err := Do(ctx, nil, &refuser{}, "k", effect)
			return err
		}},
		"nil effect": {"effect", func() error {
			_, err := Do(ctx, marks, &refuser{}, "k", nil)
			return err
		}},
		"ledger, nil pool": {"db", func() error {
			_, err := Ledger{marks}.Do(ctx, pool, "k",
				func(context.Context, *Tx) error { return nil })
			return err
		}},
		"ledger, nil effect": {"effect", func() error {
			_, err := Ledger{marks}.Do(ctx, pool, "k", nil)
			return err
		}},
		"batch, nil pool": {"db", func() error {
			_, err := DoBatch(ctx, marks, pool, []string{"k"}, effects)
			return err
		}},
		"batch, nil effect": {"effect", func() error {
			_, err := DoBatch(ctx, marks, &refuser{}, []string{"k"}, nil)
			return err
		}},
		"confirm, nil pool": {"db", func() error {
			_, err := Confirm(ctx, marks, pool, "k", sqladapter.Mark{})
			return err
		}},
		"confirm, no mark": {"mark", func() error {
			_, err := Confirm(ctx, marks, &refuser{}, "k", sqladapter.Mark{})
			return err
		}},
		"store, nil pool": {"pool", func() error {
			_, err := NewStore(nil, sqlstore.Options{})
			return err
		}},
		"nil transaction": {"tx", func() error {
			_, err := marks.MarkTx(ctx, Wrap(nil), "k")
			return err
		}},
		"nil pointer": {"tx", func() error {
			_, err := marks.MarkTx(ctx, Wrap((*pgxpool.Tx)(nil)), "k")
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var input *dedup.InputError
			require.ErrorAs(t, tt.call(), &input)
			assert.Equal(t, tt.field, input.Field)
		})
	}
}

var errRefused = errors.New("begun in spite of bad input")

type refuser struct{}

func (*refuser) BeginTx(context.Context, pgx.TxOptions) (pgx.Tx, error) { return nil, errRefused }
