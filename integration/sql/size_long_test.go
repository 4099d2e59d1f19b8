//go:build long

package sql_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
)

// TestBytesPerKey: what a mark costs on disk, heap and all indexes, of a million marks made in
// batches of 256.
func TestBytesPerKey(t *testing.T) {
	const limit = 101
	s := newShop(t, postgres("cache_statement"))
	n := 0
	for n < 1_000_000 {
		keys := make([]string, 256)
		for i := range keys {
			keys[i] = fmt.Sprintf("message %08d", n+i)
		}
		n += 256
		if _, err := s.marks.DoBatch(t.Context(), s.db, keys, func(context.Context, *sql.Tx, []int) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	var heap, total, pk int64
	sizes := `SELECT pg_relation_size('` + s.table + `'), pg_total_relation_size('` + s.table + `'), pg_relation_size('` + s.table + `_pkey')`
	if err := s.db.QueryRowContext(t.Context(), sizes).Scan(&heap, &total, &pk); err != nil {
		t.Fatal(err)
	}
	per := float64(total) / float64(n)
	t.Logf("%.1f bytes per key: heap %.1f, primary key %.1f", per, float64(heap)/float64(n), float64(pk)/float64(n))
	if per > limit {
		t.Errorf("%.1f bytes per key, want at most %d", per, limit)
	}
}
