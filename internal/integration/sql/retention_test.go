package sql_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/sqladapter"
)

// age makes the marks of these messages older by whole days.
func (s *shop) age(t *testing.T, namespace string, days int, messages ...string) {
	t.Helper()
	for _, message := range messages {
		id, err := driver.NewID(namespace, "", message)
		require.NoError(t, err)
		ms := int64(days) * 86_400_000
		where, change := fmt.Sprintf(`id = x'%x'`, id[:]), fmt.Sprintf(`stamp = stamp - %d`, ms<<20)
		switch s.dialect {
		case sqladapter.Postgres:
			where = fmt.Sprintf(`id = '%x'`, id[:])
		case sqladapter.MySQL:
			change = fmt.Sprintf(`created_at = created_at - %d`, ms)
		}
		s.exec(t, `UPDATE "`+s.table+`" SET `+change+` WHERE `+where)
	}
}

func (s *shop) deleteExpired(t *testing.T, limit int, want int64) {
	t.Helper()
	n, err := s.marks.DeleteExpired(t.Context(), s.db, limit)
	require.NoError(t, err)
	assert.Equal(t, want, n)
}

func TestDeleteExpired(t *testing.T) {
	forEachDeleting(t, func(t *testing.T, e engine) {
		s := newShop(t, e, func(c *sqladapter.Config) { c.Window = 72 * time.Hour })
		old, recent := messages(7), "recent"
		for _, message := range old {
			_, err := s.deliver(t.Context(), message, nil)
			require.NoError(t, err)
		}
		// Ten days of downtime: by the wall clock all is expired, but the redeliveries
		// that end the downtime still need the marks.
		s.age(t, "shop", 10, old...)
		s.deleteExpired(t, 100, 0)

		// Then traffic continues, and the old marks are ten days behind it.
		_, err := s.deliver(t.Context(), recent, nil)
		require.NoError(t, err)
		s.deleteExpired(t, 5, 5)
		s.deleteExpired(t, 5, 2)
		s.deleteExpired(t, 5, 0)
		s.wantMark(t, recent, true)
		for _, message := range old {
			s.wantMark(t, message, false)
		}
		first, err := s.deliver(t.Context(), old[0], nil)
		require.NoError(t, err)
		assert.True(t, first, "a duplicate after the window: first")
	})
}

// TestSharedWindow: the longer window of two namespaces in one table holds for both, until it is
// lowered on purpose.
func TestSharedWindow(t *testing.T) {
	forEachDeleting(t, func(t *testing.T, e engine) {
		s := newShop(t, e, func(c *sqladapter.Config) { c.Window = 24 * time.Hour })
		neighbour := *s
		config := sqladapter.Config{Dialect: e.dialect, Namespace: "other", Table: s.table,
			Window: 30 * 24 * time.Hour}
		var err error
		neighbour.marks, err = sqladapter.New(config)
		require.NoError(t, err)
		migrate := func(m *sqladapter.Ledger) {
			t.Helper()
			require.NoError(t, m.Migrate(t.Context(), s.db))
		}
		for _, shop := range []*shop{s, &neighbour} {
			for _, message := range []string{"old", "new"} {
				first, err := shop.deliver(t.Context(), message, nil)
				require.NoError(t, err, message)
				require.True(t, first, message)
			}
		}
		s.age(t, "shop", 10, "old")
		s.age(t, "other", 10, "old")

		migrate(neighbour.marks) // raises it
		migrate(s.marks)         // does not lower it
		s.deleteExpired(t, 100, 0)
		require.NoError(t, s.marks.SetWindow(t.Context(), s.db))
		neighbour.deleteExpired(t, 100, 0) // by its own window, which is longer
		s.deleteExpired(t, 100, 2)
		s.wantMark(t, "new", true)
		neighbour.wantMark(t, "new", true)

		config.Window = 0
		forever, err := sqladapter.New(config)
		require.NoError(t, err)
		migrate(forever)
		_, err = s.marks.DeleteExpired(t.Context(), s.db, 1)
		assert.ErrorContains(t, err, "SetWindow", "a table that is kept for ever")
	})
}

// TestDeleteExpiredFutureMark: a mark from the future, left by a clock that was wrong,
// does not make the present ones expire.
func TestDeleteExpiredFutureMark(t *testing.T) {
	forEachDeleting(t, func(t *testing.T, e engine) {
		s := newShop(t, e, func(c *sqladapter.Config) { c.Window = 72 * time.Hour })
		_, err := s.deliver(t.Context(), "future", nil)
		require.NoError(t, err)
		s.age(t, "shop", -365, "future")
		_, err = s.deliver(t.Context(), "present", nil)
		require.NoError(t, err)
		s.deleteExpired(t, 100, 0)
		s.wantMark(t, "present", true)
	})
}
