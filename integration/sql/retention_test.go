package sql_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/onceward/onceward/sqladapter"
)

// age makes the marks of a namespace older by whole days.
func (s *shop) age(t *testing.T, namespace string, days int) {
	t.Helper()
	change := fmt.Sprintf(`created_at - %d`, days*86_400_000)
	if s.dialect == sqladapter.Postgres {
		change = fmt.Sprintf(`created_at - interval '%d days'`, days)
	}
	s.exec(t, `UPDATE "`+s.table+`" SET created_at = `+change+` WHERE namespace = '`+namespace+`'`)
}

func (s *shop) deleteExpired(t *testing.T, limit int, want int64) {
	t.Helper()
	if n, err := s.marks.DeleteExpired(t.Context(), s.db, limit); err != nil || n != want {
		t.Errorf("DeleteExpired(%d) = %d, %v; want %d", limit, n, err, want)
	}
}

func TestDeleteExpired(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		s := newShop(t, e, func(c *sqladapter.Config) { c.Window = 72 * time.Hour })
		other, err := sqladapter.New(sqladapter.Config{Dialect: e.dialect, Namespace: "other", Table: s.table, Window: 24 * 365 * time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		neighbour := *s
		neighbour.marks = other
		old, recent := messages(7), "recent"
		for _, message := range old {
			for _, shop := range []*shop{s, &neighbour} {
				if _, err := shop.deliver(t.Context(), message, nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		s.age(t, "other", 10)

		// Ten days of downtime: by the wall clock all is expired, but the redeliveries
		// that end the downtime still need the marks.
		s.age(t, "shop", 10)
		s.deleteExpired(t, 100, 0)

		// Then traffic goes on, and the old marks are ten days behind it.
		if _, err := s.deliver(t.Context(), recent, nil); err != nil {
			t.Fatal(err)
		}
		s.deleteExpired(t, 5, 5)
		s.deleteExpired(t, 5, 2)
		s.deleteExpired(t, 5, 0)
		s.wantMark(t, recent, true)
		for _, message := range old {
			s.wantMark(t, message, false)
			neighbour.wantMark(t, message, true)
		}
		if first, err := s.deliver(t.Context(), old[0], nil); err != nil || !first {
			t.Errorf("a duplicate after the window: first = %v, %v; it runs again", first, err)
		}
	})
}

// TestDeleteExpiredFutureMark: a mark from the future, left by a clock that was wrong,
// does not take the present ones with it.
func TestDeleteExpiredFutureMark(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		s := newShop(t, e, func(c *sqladapter.Config) { c.Window = 72 * time.Hour })
		if _, err := s.deliver(t.Context(), "future", nil); err != nil {
			t.Fatal(err)
		}
		s.age(t, "shop", -365)
		if _, err := s.deliver(t.Context(), "present", nil); err != nil {
			t.Fatal(err)
		}
		s.deleteExpired(t, 100, 0)
		s.wantMark(t, "present", true)
	})
}
