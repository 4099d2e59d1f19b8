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

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/internal/sqlerr"
	"github.com/onceward/onceward/internal/sqlname"
	"github.com/onceward/onceward/sqladapter"
)

// relation is the quoted name of a table or view of the shop.
func (s *shop) relation(suffix string) string { return `"` + sqlname.Derive(s.table, suffix) + `"` }

// open is the table that marks go to; MySQL has one name for all of them.
func (s *shop) open(generation int) string {
	if s.dialect == sqladapter.MySQL {
		return s.turn("_open")
	}
	return s.relation(fmt.Sprintf("_g%d_open", generation))
}

// turn is the name of a table of MySQL, which all are cut alike.
func (s *shop) turn(suffix string) string {
	const longest = "_sealed_results"
	return `"` + strings.TrimSuffix(sqlname.Derive(s.table, longest), longest) + suffix + `"`
}

// wantTables checks that there are those of two generations and no other.
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
	if tables := s.relations(t, "r"); !slices.Equal(tables, want) {
		t.Errorf("there are %q, want %q", tables, want)
	}
}

// dropGenerations removes what Migrate and Rotate have made, whichever generation it is.
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
	if err != nil {
		t.Error(err)
	}
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
	if err != nil {
		t.Error(err)
	}
	return names
}

// windowPassed makes the open generation old enough to be sealed, and what is in it with it;
// the next mark is a window younger.
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
	if sealed, err := s.rotated(t.Context()); sealed != want || err != nil {
		t.Fatalf("Rotate = %v, %v; want %v", sealed, err, want)
	}
}

// rotated calls Rotate again when the server has cut it off: a machine that lets this process wait
// for a second between two statements is not what the test is about.
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

// wantFirst delivers a message, again when a rotation has come in between.
func (s *shop) wantFirst(t *testing.T, message string, want bool) {
	t.Helper()
	if first, err := s.redeliver(t.Context(), message); err != nil || first != want {
		t.Errorf("%s: first %v, %v; want %v", message, first, err, want)
	}
}

// TestRotate: what a generation goes through, with its name at every length.
func TestRotate(t *testing.T) {
	forEachInGenerations(t, func(t *testing.T, e engine) {
		prefix := servertest.Prefix(t)
		for name, table := range map[string]string{"short": prefix + "_marks",
			"long": prefix + strings.Repeat("x", 63-len(prefix))} {
			t.Run(name, func(t *testing.T) {
				s := newShop(t, e, func(c *sqladapter.Config) { c.Table = table })
				if _, err := s.saves(t.Context(), "first week", []byte("receipt")); err != nil {
					t.Fatal(err)
				}
				s.rotate(t, false) // it is young
				s.windowPassed(t, 1)
				s.rotate(t, false) // nobody was there since
				s.wantFirst(t, "second week", true)
				s.rotate(t, true)
				s.rotate(t, false)

				for _, message := range []string{"first week", "second week"} {
					s.wantMark(t, message, true)
					s.wantFirst(t, message, false)
				}
				if mark, err := s.saves(t.Context(), "first week", nil); err != nil ||
					string(mark.Result) != "receipt" {
					t.Errorf("duplicate in the next generation: %q, %v", mark.Result, err)
				}
				if _, err := s.saves(t.Context(), "third week", []byte("another")); err != nil {
					t.Fatal(err)
				}

				s.windowPassed(t, 2)
				s.wantFirst(t, "fourth week", true)
				s.rotate(t, true)
				s.wantMark(t, "second week", false)
				s.wantMark(t, "third week", true)
				s.wantFirst(t, "first week", true)
				s.wantFirst(t, "third week", false)
				if mark, err := s.do(t.Context(), "third week"); err != nil ||
					string(mark.Result) != "another" {
					t.Errorf("duplicate with a result: %q, %v", mark.Result, err)
				}
				s.wantTables(t, 3)
				// Nothing is made anew, or counted back, for a table that is there.
				if err := errors.Join(s.marks.Migrate(t.Context(), s.db),
					s.marks.Check(t.Context(), s.db)); err != nil {
					t.Error(err)
				}
				s.wantFirst(t, "fourth week", false)

				// Whatever the tables are called by now, the way down finds them, and the way up
				// begins anew.
				if err := s.marks.Migrations().To(t.Context(), s.db, 0); err != nil {
					t.Fatal(err)
				}
				if left := append(s.relations(t, "r"), s.relations(t, "v")...); len(left) > 0 {
					t.Errorf("left are %q", left)
				}
				if err := s.marks.Migrate(t.Context(), s.db); err != nil {
					t.Fatal(err)
				}
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
			if err != nil {
				t.Fatal(err)
			}
			for name, call := range map[string]func(context.Context,
				*sql.DB) error{"Migrate": other.Migrate, "Check": other.Check} {
				var input *dedup.InputError
				if err := call(t.Context(), s.db); !errors.As(err, &input) ||
					input.Field != "Retention" {
					t.Errorf("%s = %v, want an InputError on Retention", name, err)
				}
			}
			unchecked := *s
			unchecked.marks = other
			if first, err := unchecked.deliver(t.Context(), "m", nil); err == nil || first ||
				sqladapter.Retryable(err) {
				t.Errorf("a mark without a check: %v, %v", first, err)
			}
			s.wantFirst(t, "m", false)
		})
	}
}

// TestRotationIsLearnt: a process that has not rotated itself finds its table gone, and goes on
// with its next transaction, in every mode of the driver; Do by itself.
func TestRotationIsLearnt(t *testing.T) {
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec",
		"simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			s := newShop(t, inGenerations(postgres(mode)))
			s.db.SetMaxOpenConns(1) // one cache of statements
			rotator := newRotator(t, s)
			for generation := 1; generation < 8; generation++ {
				early, late := fmt.Sprint("early ", generation), fmt.Sprint("late ", generation)
				if first, err := s.deliver(t.Context(), early, nil); err != nil || !first {
					t.Fatalf("%s: %v, %v", early, first, err)
				}
				s.windowPassed(t, generation)
				if _, err := s.doBatch(t.Context(), []string{late, early}); err != nil {
					t.Fatal(err)
				}
				rotator.rotate(t, true)
				if generation%2 == 0 {
					if mark, err := s.do(t.Context(), late); err != nil ||
						mark.Outcome != dedup.Duplicate {
						t.Errorf("Do after a rotation: %v, %v", mark.Outcome, err)
					}
					continue
				}
				if first, err := s.deliver(t.Context(), late, nil); first || err == nil ||
					!sqladapter.Retryable(err) {
					t.Fatalf("transaction after a rotation: %v, %v; want a retryable error",
						first, err)
				}
				if first, err := s.deliver(t.Context(), late, nil); first || err != nil {
					t.Fatalf("the one after it: %v, %v; want a duplicate", first, err)
				}
			}
		})
	}
}

// newRotator is the same shop in another process.
func newRotator(t *testing.T, s *shop, edit ...func(*sqladapter.Config)) *shop {
	t.Helper()
	config := sqladapter.Config{Dialect: s.dialect, Namespace: "shop", Table: s.table,
		Window: time.Hour, Retention: sqladapter.Generations}
	for _, f := range edit {
		f(&config)
	}
	marks, err := sqladapter.New(config)
	if err != nil {
		t.Fatal(err)
	}
	e := postgres("exec")
	if s.dialect == sqladapter.MySQL {
		e = mariadb()
	}
	other := *s
	other.db, other.marks = e.open(t), marks
	return &other
}

// TestSnapshotBeforeRotation: a transaction that reads as of before a rotation does not see
// what was marked since in the generation that is sealed now. Without a condition it is first.
func TestSnapshotBeforeRotation(t *testing.T) {
	for _, level := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelSerializable} {
		t.Run(level.String(), func(t *testing.T) {
			s := newShop(t, inGenerations(postgres("cache_statement")))
			s.wantFirst(t, "old", true)
			s.windowPassed(t, 1)
			var late []*sql.Tx
			for range 3 {
				tx := begin(t, s.db, level)
				if _, err := tx.ExecContext(t.Context(),
					`SELECT count(*) FROM `+s.ledger); err != nil {
					t.Fatal(err) // takes the snapshot
				}
				late = append(late, tx)
			}
			s.wantFirst(t, "m", true)
			s.rotate(t, true)
			s.wantFirst(t, "m", false) // and learns of it

			mark, err := s.marks.MarkTx(t.Context(), late[0], "m")
			if mark.First() || !sqladapter.Retryable(err) {
				t.Errorf("mark: %v, %v; want a retryable error", mark.Outcome, err)
			}
			_ = late[0].Rollback() // or the next would wait for it
			reqs := []dedup.Request{{Key: "m"}, {Key: "new"}}
			if marks, err := s.marks.MarkBatchTx(t.Context(), late[1],
				reqs); !sqladapter.Retryable(err) {
				t.Errorf("batch: %v, %v; want a retryable error", marks, err)
			}
			_ = late[1].Rollback()

			id, err := driver.NewID("shop", "", "m")
			if err != nil {
				t.Fatal(err)
			}
			res, err := late[2].ExecContext(t.Context(),
				fmt.Sprintf(`INSERT INTO %s (id, stamp) SELECT v.id, 0 FROM (VALUES ('%x'::uuid)) AS v(id)`+
					` WHERE NOT EXISTS (SELECT 1 FROM %s AS p WHERE p.id = v.id) ON CONFLICT DO NOTHING`, s.open(2), id[:], s.relation("_g1")))
			if err != nil {
				t.Fatal(err)
			}
			if n, err := res.RowsAffected(); err != nil || n != 1 {
				t.Errorf("without the condition %d rows were inserted, %v; if it is none now, the condition is not needed", n, err)
			}
		})
	}
}

// TestRotateTogether: one of many seals, and nobody fails.
func TestRotateTogether(t *testing.T) {
	forEachInGenerations(t, func(t *testing.T, e engine) {
		s := newShop(t, e)
		for generation := 1; generation <= 3; generation++ {
			s.windowPassed(t, generation)
			s.wantFirst(t, fmt.Sprint("m", generation), true)
			if sealed := s.rotateTogether(t, 6); sealed != 1 {
				t.Errorf("%d of six have sealed generation %d", sealed, generation)
			}
		}
		// Whoever wants to drop does not wait for one that still looks whether there is something
		// to seal.
		s.rotate(t, false)
		s.wantTables(t, 4)
	})
}

// rotateTogether tells how many of n have sealed.
func (s *shop) rotateTogether(t *testing.T, n int) int {
	t.Helper()
	var sealed atomic.Int64
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			did, err := s.rotated(t.Context())
			if err != nil {
				t.Error(err)
			}
			if did {
				sealed.Add(1)
			}
		})
	}
	wg.Wait()
	return int(sealed.Load())
}
