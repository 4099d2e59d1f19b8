//go:build long

package sql_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestBytesPerKey: the bytes on disk of a mark, heap and all indexes, of a million marks made in
// batches of 256.
func TestBytesPerKey(t *testing.T) {
	for _, tt := range []struct {
		engine
		table string
		limit float64
	}{
		{postgres("cache_statement"), "", 101},
		{inGenerations(postgres("cache_statement")), "_g1_open", 95},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newShop(t, tt.engine)
			n, took := s.million(t, "message")
			var heap, total, pk int64
			table := s.table + tt.table
			sizes := `SELECT pg_relation_size('` + table + `'), pg_total_relation_size('` +
				table + `'), pg_relation_size('` + table + `_pkey')`
			err := s.db.QueryRowContext(t.Context(), sizes).Scan(&heap, &total,
				&pk)
			require.NoError(t, err)
			per := float64(total) / float64(n)
			t.Logf("%.1f bytes per key: heap %.1f, primary key %.1f; %.1f us for a mark",
				per, float64(heap)/float64(n), float64(pk)/float64(n), micros(took, n))
			assert.LessOrEqual(t, per, tt.limit)
		})
	}
}

// million marks keys of this kind, in batches of 256.
func (s *shop) million(t *testing.T, kind string) (n int, took time.Duration) {
	t.Helper()
	began := time.Now()
	for n < 1_000_000 {
		keys := make([]string, 256)
		for i := range keys {
			keys[i] = fmt.Sprintf("%s %08d", kind, n+i)
		}
		n += 256
		_, err := s.marks.DoBatch(t.Context(), s.db,
			keys, func(context.Context, *sql.Tx, []int) error { return nil })
		require.NoError(t, err)
	}
	return n, time.Since(began)
}

func micros(took time.Duration, n int) float64 { return float64(took.Microseconds()) / float64(n) }

// TestCostOfRotation: a rotation that drops marks takes almost no time for each of them.
func TestCostOfRotation(t *testing.T) {
	const n = 2_000_000
	s := newShop(t, inGenerations(postgres("cache_statement")))
	for generation := 1; generation <= 2; generation++ {
		if generation == 1 {
			s.exec(t, `INSERT INTO `+s.open(1)+
				fmt.Sprintf(` (id, stamp) SELECT md5(i::text)::uuid, 0 FROM generate_series(1, %d) AS i`, n))
		}
		s.wantFirst(t, fmt.Sprint("due ", generation), true)
		s.exec(t, `UPDATE `+s.relation("_generation")+` SET opened_ms = opened_ms - 86400000`)
		began := time.Now()
		s.rotate(t, true)
		took := time.Since(began)
		t.Logf("rotation %d takes %v", generation, took)
		per := micros(took, n)
		assert.False(t, generation == 2 && per > 1, "to drop a mark takes %.3f us", per)
	}
}
