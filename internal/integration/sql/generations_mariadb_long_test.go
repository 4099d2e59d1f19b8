//go:build long

package sql_test

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/sqladapter"
)

// TestMariaDBCrashesWhileRotating: a server that is killed while it renames has renamed all of
// the tables or none when it comes back. Marks go on, and the next rotation finishes what is left.
func TestMariaDBCrashesWhileRotating(t *testing.T) {
	const crashes = 25
	server := servertest.Private(t, servertest.KindMariaDB)
	e := inGenerations(engine{name: "mariadb", dialect: sqladapter.MySQL,
		open: func(t *testing.T) *sql.DB {
			return openDB(t, "mysql", mariadbDSN(t, server.Addr, nil))
		}})
	s := newShop(t, e, func(c *sqladapter.Config) { c.Window = time.Millisecond })
	rng := rand.New(rand.NewPCG(11, 0))
	marked, sealed := 0, 0
	for range crashes {
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				message := fmt.Sprint(marked)
				marked++
				first, err := s.deliver(t.Context(), message, nil)
				if err != nil {
					return // whether it was committed is open
				}
				assert.True(t, first, "message %s is a duplicate", message)
			}
		})
		wg.Go(func() {
			for err := error(nil); err == nil || sqladapter.Retryable(err) && s.db.Ping() == nil; {
				var did bool
				if did, err = s.marks.Rotate(t.Context(), s.db); did {
					sealed++
				}
			}
		})
		<-time.After(time.Duration(300+rng.IntN(700)) * time.Millisecond)
		server.Kill(1)
		wg.Wait()
		server.Start(1)
		for _, suffix := range []string{"_open", "_open_results", "_sealed", "_sealed_results"} {
			_, err := texts(s.db.QueryContext(t.Context(),
				`SELECT 1 FROM `+s.turn(suffix)+` LIMIT 1`))
			require.NoError(t, err)
		}
		marked++
		s.wantFirst(t, fmt.Sprint(marked-1), true)
		poll(t, "a rotation to be finished", func() bool {
			_, err := s.marks.Rotate(t.Context(), s.db)
			return err == nil && len(s.relations(t, "r")) == 4
		})
	}
	t.Logf("%d crashes, %d rotations, %d marks", crashes, sealed, marked)
	assert.GreaterOrEqual(t, sealed, crashes, "rotations: too few to be hit")
}

// TestMariaDBBytesPerKey: the bytes on disk of a mark, of a million marks made in batches of 256,
// and the time to delete them.
func TestMariaDBBytesPerKey(t *testing.T) {
	for _, e := range []engine{mariadb(), inGenerations(mariadb())} {
		t.Run(e.name, func(t *testing.T) {
			s := newShop(t, e)
			n, took := s.million(t, "message")
			table := s.table
			if e.retention == sqladapter.Generations {
				table += "_open"
			}
			s.exec(t, `ANALYZE TABLE `+table)
			var size int64
			err := s.db.QueryRowContext(t.Context(),
				`SELECT data_length + index_length FROM information_schema.tables WHERE table_name = ?`, table).Scan(&size)
			require.NoError(t, err)
			var file int64
			if err := s.db.QueryRowContext(t.Context(),
				`SELECT file_size FROM information_schema.innodb_sys_tablespaces WHERE name LIKE CONCAT('%/', ?)`, table).Scan(&file); err != nil {
				t.Log(err)
			}
			t.Logf("%.1f bytes per key, %.1f in the file; %.1f us for a mark",
				float64(size)/float64(n), float64(file)/float64(n), micros(took, n))
			if e.retention == sqladapter.Generations {
				s.costOfRotations(t, n)
			}
		})
	}
}

func (s *shop) costOfRotations(t *testing.T, n int) {
	t.Helper()
	for generation := 1; generation <= 2; generation++ {
		s.exec(t, `UPDATE `+s.turn("_open")+
			` SET created_at = created_at - 86400000 WHERE owner = 0`)
		s.wantFirst(t, fmt.Sprint("due ", generation), true)
		if generation == 2 { // with a sealed table of a million
			_, took := s.million(t, "another")
			t.Logf("%.1f us for a mark, with the look", micros(took, n))
		}
		began := time.Now()
		s.rotate(t, true)
		took := time.Since(began)
		t.Logf("rotation %d takes %v", generation, took)
		per := micros(took, n)
		assert.False(t, generation == 2 && per > 1, "to drop a mark takes %.3f us", per)
	}
}
