package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/internal/sqlerr"
	"github.com/onceward/onceward/internal/sqlname"
	"github.com/onceward/onceward/sqladapter"
)

// relation is the quoted name of a table or view of the shop.
func (s *shop) relation(suffix string) string { return `"` + sqlname.Derive(s.table, suffix) + `"` }

// open is the name of the open generation's table. In MySQL it is always the same.
func (s *shop) open(generation int) string {
	if s.dialect == sqladapter.MySQL {
		return s.turn("_open")
	}
	return s.relation(fmt.Sprintf("_g%d_open", generation))
}

// turn is the name of another table of a rotation in MySQL. All names are cut in the same way.
func (s *shop) turn(suffix string) string {
	const longest = "_sealed_results"
	return `"` + strings.TrimSuffix(sqlname.Derive(s.table, longest), longest) + suffix + `"`
}

// wantTables requires the tables of two generations, and no others.
func (s *shop) wantTables(t *testing.T, open int) {
	t.Helper()
	want := []string{"_open", "_open_results", "_sealed", "_sealed_results"}
	name := s.turn
	if s.dialect == sqladapter.Postgres {
		want = []string{"_generation", fmt.Sprintf("_g%d", open-1),
			fmt.Sprintf("_g%d_results", open-1), fmt.Sprintf("_g%d_open", open),
			fmt.Sprintf("_g%d_results", open)}
		name = s.relation
	}
	for i := range want {
		want[i] = strings.Trim(name(want[i]), `"`)
	}
	slices.Sort(want)
	assert.Equal(t, want, s.relations(t, "r"))
}

// dropGenerations removes all tables that Migrate and Rotate have made.
func (s *shop) dropGenerations(t *testing.T) {
	t.Helper()
	for _, kind := range []struct{ letter, drop string }{{"v", "DROP VIEW "},
		{"r", "DROP TABLE "}} {
		for _, name := range s.relations(t, kind.letter) {
			s.exec(t, kind.drop+`"`+name+`"`)
		}
	}
}

// relations lists the views ("v") or the tables of generations ("r") of the shop.
func (s *shop) relations(t *testing.T, kind string) []string {
	t.Helper()
	if s.dialect == sqladapter.MySQL {
		return s.mariadbRelations(t, kind)
	}
	like := s.table + "_g%"
	if len(s.table) > 50 {
		stem := sqlname.Derive(s.table, "_g")
		like = "%" + stem[len(stem)-len("_01234567_g"):] + "%" // how much is in front of it varies
	}
	names, err := texts(s.db.QueryContext(context.WithoutCancel(t.Context()),
		`SELECT relname::text FROM pg_class`+
			` WHERE relnamespace = current_schema()::regnamespace AND relkind::text = $1`+
			` AND (relkind = 'v' AND relname IN ($2, $3) OR relname LIKE $4) ORDER BY 1`,
		kind, s.table, sqlname.Derive(s.table, "_results"), strings.ReplaceAll(like, "_", `\_`)))
	assert.NoError(t, err)
	return names
}

func (s *shop) mariadbRelations(t *testing.T, kind string) []string {
	t.Helper()
	stem := strings.Trim(s.turn(""), `"`)
	of := ` AND table_type = 'BASE TABLE' AND LEFT(table_name, ?) = ? AND SUBSTR(table_name, ? + 1) REGEXP '^_(next|open|sealed|gone)(_results)?$' ORDER BY 1`
	args := []any{len(stem), stem, len(stem)}
	if kind == "v" {
		of, args = ` AND table_type = 'VIEW' AND table_name IN (?, ?) ORDER BY 1`,
			[]any{s.table, sqlname.Derive(s.table, "_results")}
	}
	names, err := texts(s.db.QueryContext(context.WithoutCancel(t.Context()),
		`SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()`+of,
		args...))
	assert.NoError(t, err)
	return names
}

// windowPassed makes the open generation and its marks old enough to be sealed. The next mark is a
// window younger.
func (s *shop) windowPassed(t *testing.T, generation int) {
	t.Helper()
	const day = 86_400_000
	if s.dialect == sqladapter.MySQL {
		s.exec(t, fmt.Sprintf(`UPDATE %s SET created_at = created_at - %d`,
			s.open(generation), day))
		return
	}
	s.exec(t, fmt.Sprintf(`UPDATE %s SET opened_ms = opened_ms - %d`,
		s.relation("_generation"), day))
	s.exec(t, fmt.Sprintf(`UPDATE %s SET stamp = stamp - %d`, s.open(generation), day<<20))
}

func (s *shop) rotate(t *testing.T, want bool) {
	t.Helper()
	sealed, err := s.rotated(t.Context())
	require.NoError(t, err)
	require.Equal(t, want, sealed)
}

// rotated calls Rotate again when the server has ended its session. That happens when a loaded
// machine stops this process for a second between two statements, and the test is not about that.
func (s *shop) rotated(ctx context.Context) (sealed bool, err error) {
	for range maxDeliveries {
		var did bool
		did, err = s.marks.Rotate(ctx, s.db)
		if sealed = sealed || did; sqlerr.State(err) != "25P03" {
			break
		}
	}
	return sealed, err
}

// wantFirst delivers a message, and delivers it again if a rotation has come in between.
func (s *shop) wantFirst(t *testing.T, message string, want bool) {
	t.Helper()
	first, err := s.redeliver(t.Context(), message)
	require.NoError(t, err)
	assert.Equal(t, want, first, "%s: first", message)
}

// TestRotate: the life of a generation, with names of every length.
func TestRotate(t *testing.T) {
	forEachInGenerations(t, func(t *testing.T, e engine) {
		prefix := servertest.Prefix(t)
		for name, table := range map[string]string{"short": prefix + "_marks",
			"long": prefix + strings.Repeat("x", 63-len(prefix))} {
			t.Run(name, func(t *testing.T) {
				s := newShop(t, e, func(c *sqladapter.Config) { c.Table = table })
				_, err := s.saves(t.Context(), "first week", []byte("receipt"))
				require.NoError(t, err)
				s.rotate(t, false) // it is young
				s.windowPassed(t, 1)
				s.rotate(t, false) // it has no new mark
				s.wantFirst(t, "second week", true)
				s.rotate(t, true)
				s.rotate(t, false)

				for _, message := range []string{"first week", "second week"} {
					s.wantMark(t, message, true)
					s.wantFirst(t, message, false)
				}
				mark, err := s.saves(t.Context(), "first week", nil)
				require.NoError(t, err)
				assert.Equal(t, "receipt", string(mark.Result), "duplicate in the next generation")
				_, err = s.saves(t.Context(), "third week", []byte("another"))
				require.NoError(t, err)

				s.windowPassed(t, 2)
				s.wantFirst(t, "fourth week", true)
				s.rotate(t, true)
				s.wantMark(t, "second week", false)
				s.wantMark(t, "third week", true)
				s.wantFirst(t, "first week", true)
				s.wantFirst(t, "third week", false)
				mark, err = s.do(t.Context(), "third week")
				require.NoError(t, err)
				assert.Equal(t, "another", string(mark.Result), "duplicate with a result")
				s.wantTables(t, 3)
				// A table that exists is not made anew, and its number does not go back.
				err = errors.Join(s.marks.Migrate(t.Context(), s.db),
					s.marks.Check(t.Context(), s.db))
				assert.NoError(t, err)
				s.wantFirst(t, "fourth week", false)

				// The way down finds the tables under their new names, and the way up begins anew.
				require.NoError(t, s.marks.Migrations().To(t.Context(), s.db, 0))
				assert.Empty(t, append(s.relations(t, "r"), s.relations(t, "v")...))
				require.NoError(t, s.marks.Migrate(t.Context(), s.db))
				s.wantFirst(t, "fourth week", true)
				s.wantFirst(t, "fourth week", false)
			})
		}
	})
}

// TestRetentionStays: a table made for one kind of retention is refused with the other.
func TestRetentionStays(t *testing.T) {
	pg, my := postgres("cache_statement"), mariadb()
	for _, made := range []engine{pg, inGenerations(pg), my, inGenerations(my)} {
		t.Run(made.name, func(t *testing.T) {
			s := newShop(t, made)
			s.wantFirst(t, "m", true)
			config := sqladapter.Config{Dialect: s.dialect, Namespace: "shop", Table: s.table,
				Window: time.Hour, Retention: sqladapter.Generations - made.retention}
			other, err := sqladapter.New(config)
			require.NoError(t, err)
			for name, call := range map[string]func(context.Context,
				*sql.DB) error{"Migrate": other.Migrate, "Check": other.Check} {
				var input *dedup.InputError
				require.ErrorAs(t, call(t.Context(), s.db), &input, name)
				assert.Equal(t, "Retention", input.Field, name)
			}
			unchecked := *s
			unchecked.marks = other
			first, err := unchecked.deliver(t.Context(), "m", nil)
			assert.Error(t, err, "a mark without a check")
			assert.False(t, first, "a mark without a check")
			assert.False(t, sqladapter.Retryable(err), "a mark without a check")
			s.wantFirst(t, "m", false)
		})
	}
}

// TestRotationIsLearnt: a process that has not rotated itself finds its table gone, and continues
// with its next transaction, in every mode of the driver. Do repeats by itself.
func TestRotationIsLearnt(t *testing.T) {
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec",
		"simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			s := newShop(t, inGenerations(postgres(mode)))
			s.db.SetMaxOpenConns(1) // one cache of statements
			rotator := newRotator(t, s)
			for generation := 1; generation < 8; generation++ {
				early, late := fmt.Sprint("early ", generation), fmt.Sprint("late ", generation)
				first, err := s.deliver(t.Context(), early, nil)
				require.NoError(t, err, early)
				require.True(t, first, early)
				s.windowPassed(t, generation)
				_, err = s.doBatch(t.Context(), []string{late, early})
				require.NoError(t, err)
				rotator.rotate(t, true)
				if generation%2 == 0 {
					mark, err := s.do(t.Context(), late)
					require.NoError(t, err, "Do after a rotation")
					assert.Equal(t, dedup.Duplicate, mark.Outcome, "Do after a rotation")
					continue
				}
				first, err = s.deliver(t.Context(), late, nil)
				require.False(t, first, "transaction after a rotation")
				require.Error(t, err, "transaction after a rotation")
				require.True(t, sqladapter.Retryable(err), "transaction after a rotation")
				first, err = s.deliver(t.Context(), late, nil)
				require.NoError(t, err, "the one after it")
				require.False(t, first, "the one after it")
			}
		})
	}
}

// newRotator returns the same shop, as another process opens it.
func newRotator(t *testing.T, s *shop, edit ...func(*sqladapter.Config)) *shop {
	t.Helper()
	config := sqladapter.Config{Dialect: s.dialect, Namespace: "shop", Table: s.table,
		Window: time.Hour, Retention: sqladapter.Generations}
	for _, f := range edit {
		f(&config)
	}
	marks, err := sqladapter.New(config)
	require.NoError(t, err)
	e := postgres("exec")
	if s.dialect == sqladapter.MySQL {
		e = mariadb()
	}
	other := *s
	other.db, other.marks = e.open(t), marks
	return &other
}

// TestSnapshotBeforeRotation: the snapshot of a transaction is older than a rotation. It does not
// see later marks in the generation that is sealed now. A plain
// INSERT would take the key for new.
func TestSnapshotBeforeRotation(t *testing.T) {
	for _, level := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelSerializable} {
		t.Run(level.String(), func(t *testing.T) {
			s := newShop(t, inGenerations(postgres("cache_statement")))
			s.wantFirst(t, "old", true)
			s.windowPassed(t, 1)
			var late []*sql.Tx
			for range 3 {
				tx := begin(t, s.db, level)
				_, err := tx.ExecContext(t.Context(), // takes the snapshot
					`SELECT count(*) FROM `+s.ledger)
				require.NoError(t, err)
				late = append(late, tx)
			}
			s.wantFirst(t, "m", true)
			s.rotate(t, true)
			s.wantFirst(t, "m", false) // this process learns of the rotation

			mark, err := s.marks.MarkTx(t.Context(), late[0], "m")
			assert.False(t, mark.First(), "mark: %v", mark.Outcome)
			assert.True(t, sqladapter.Retryable(err), "mark: %v", mark.Outcome)
			_ = late[0].Rollback() // otherwise the next one would wait for it
			reqs := []dedup.Request{{Key: "m"}, {Key: "new"}}
			marks, err := s.marks.MarkBatchTx(t.Context(), late[1],
				reqs)
			assert.True(t, sqladapter.Retryable(err), "batch: %v, %v; want a retryable error",
				marks, err)
			_ = late[1].Rollback()

			id, err := driver.NewID("shop", "", "m")
			require.NoError(t, err)
			res, err := late[2].ExecContext(t.Context(),
				fmt.Sprintf(`INSERT INTO %s (id, stamp) SELECT v.id, 0 FROM (VALUES ('%x'::uuid)) AS v(id)`+
					` WHERE NOT EXISTS (SELECT 1 FROM %s AS p WHERE p.id = v.id) ON CONFLICT DO NOTHING`, s.open(2), id[:], s.relation("_g1")))
			require.NoError(t, err)
			n, err := res.RowsAffected()
			require.NoError(t, err)
			assert.EqualValues(t, 1, n, "without the condition")
		})
	}
}

// TestRotateTogether: several rotate at once. One seals, and none fails.
func TestRotateTogether(t *testing.T) {
	forEachInGenerations(t, func(t *testing.T, e engine) {
		s := newShop(t, e)
		for generation := 1; generation <= 3; generation++ {
			s.windowPassed(t, generation)
			s.wantFirst(t, fmt.Sprint("m", generation), true)
			sealed := s.rotateTogether(t, 6)
			assert.Equal(t, 1, sealed, "%d of six have sealed generation %d", sealed, generation)
		}
		// A rotator that drops does not wait for one that still checks whether there is something
		// to seal.
		s.rotate(t, false)
		s.wantTables(t, 4)
	})
}

// rotateTogether returns how many of n rotations have sealed a generation.
func (s *shop) rotateTogether(t *testing.T, n int) int {
	t.Helper()
	var sealed atomic.Int64
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			did, err := s.rotated(t.Context())
			assert.NoError(t, err)
			if did {
				sealed.Add(1)
			}
		})
	}
	wg.Wait()
	return int(sealed.Load())
}
