package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	gormtests "gorm.io/gorm/utils/tests"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/sqladapter"
)

// TestMigrateAnothersTable: a table of another component is refused, and left alone. Otherwise the
// component that only uses its name would drop it when it migrates down.
func TestMigrateAnothersTable(t *testing.T) {
	forEachDeleting(t, func(t *testing.T, e engine) {
		s := newShop(t, e)
		s.wantFirst(t, "m", true)
		fence, err := sqladapter.NewFence(sqladapter.FenceConfig{Dialect: e.dialect, Group: "g",
			Table: s.table})
		require.NoError(t, err)
		store := newStore(t, s.db, e.dialect, s.table)
		for name, component := range map[string]struct {
			up   func(ctx context.Context, db *sql.DB) error
			down func(ctx context.Context) error
		}{
			"fence": {fence.Migrate, func(ctx context.Context) error {
				return fence.Migrations().To(ctx, s.db, 0)
			}},
			"store": {func(ctx context.Context, _ *sql.DB) error {
				return store.Migrate(ctx)
			}, store.Drop},
		} {
			err := component.up(t.Context(), s.db)
			assert.ErrorContains(t, err, s.table, "%s in a table of marks", name)
			assert.NoError(t, component.down(t.Context()))
		}
		s.wantFirst(t, "m", false)
		err = errors.Join(s.marks.Migrate(t.Context(), s.db),
			s.marks.Check(t.Context(), s.db))
		assert.NoError(t, err)
		s.exec(t, `DROP TABLE IF EXISTS "`+s.table+`_forgets"`) // MySQL has committed it
	})
}

// TestGormPoolIsRefused: outside of a transaction gorm's ConnPool is a pool, also when it prepares
// statements. A mark would be committed there before its effect.
func TestGormPoolIsRefused(t *testing.T) {
	s := newShop(t, sqlite())
	for _, prepare := range []bool{false, true} {
		g, err := gorm.Open(gormtests.DummyDialector{},
			&gorm.Config{ConnPool: s.db, PrepareStmt: prepare})
		require.NoError(t, err)
		var input *dedup.InputError
		_, err = s.marks.MarkTx(t.Context(), g.Statement.ConnPool, "m")
		require.ErrorAs(t, err, &input, "prepares %v: MarkTx in %T", prepare, g.Statement.ConnPool)
		assert.Equal(t, "tx", input.Field, "prepares %v: MarkTx in %T", prepare,
			g.Statement.ConnPool)
		err = g.Transaction(func(tx *gorm.DB) error {
			_, err := s.marks.MarkTx(t.Context(), tx.Statement.ConnPool, "m")
			return err
		})
		assert.NoError(t, err, "prepares %v: in a transaction", prepare)
	}
}
