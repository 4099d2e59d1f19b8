package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/sqladapter"
)

// uuid7 is the n-th id that a clock makes at an instant.
func uuid7(at time.Time, n int) string {
	ms := at.UnixMilli() & (1<<48 - 1)
	return fmt.Sprintf("%08x-%04x-7%03x-8%03x-%012x", ms>>16, ms&0xffff, n>>16&0xfff, n>>28&0xfff,
		n&0xffff)
}

func withUUIDv7(c *sqladapter.Config) { c.IDTime = sqladapter.UUIDv7 }

// idEngines are those whose ids may carry their time.
func idEngines() []engine { return []engine{postgres("cache_statement"), mariadb()} }

func forEachIDEngine(t *testing.T, test func(t *testing.T, e engine)) {
	for _, e := range idEngines() {
		runOn(t, e, test)
	}
}

// ledgerOf returns another Ledger for the table of s.
func (s *shop) ledgerOf(t *testing.T, edit func(*sqladapter.Config)) *sqladapter.Ledger {
	t.Helper()
	cfg := sqladapter.Config{Dialect: s.dialect, Namespace: "shop", Table: s.table}
	edit(&cfg)
	marks, err := sqladapter.New(cfg)
	require.NoError(t, err)
	return marks
}

// TestIDTimeRefusesAnotherForm: a table is for one form of ids. A Ledger of another one is refused
// at its first mark, at its start, and by Migrate, and leaves nothing behind.
func TestIDTimeRefusesAnotherForm(t *testing.T) {
	forms := map[string]func(*sqladapter.Config){
		"digests": func(*sqladapter.Config) {},
		"uuidv7":  withUUIDv7,
		"ulid":    func(c *sqladapter.Config) { c.IDTime = sqladapter.ULID },
		"discord": func(c *sqladapter.Config) {
			c.IDTime, c.SnowflakeEpoch = sqladapter.Snowflake, time.UnixMilli(1_420_070_400_000)
		},
		"x": func(c *sqladapter.Config) {
			c.IDTime, c.SnowflakeEpoch = sqladapter.Snowflake, time.UnixMilli(1_288_834_974_657)
		},
	}
	keys := map[string]string{"digests": "k", "uuidv7": uuid7(time.Now(), 1),
		"ulid": "01ARZ3NDEKTSV4RRFFQ69G5FAV", "discord": "175928847299117063",
		"x": "175928847299117063"}
	forEachIDEngine(t, func(t *testing.T, e engine) {
		for owner, form := range forms {
			s := newShop(t, e, form)
			s.wantFirst(t, keys[owner], true)
			for other, edit := range forms {
				fresh := func() *sqladapter.Ledger { return s.ledgerOf(t, edit) }
				_, err := fresh().Do(t.Context(), s.db, keys[other],
					func(context.Context, *sql.Tx) error { return nil })
				_, errOfBatch := fresh().DoBatch(t.Context(), s.db, []string{keys[other]},
					func(context.Context, *sql.Tx, []int) error { return nil })
				_, _, errOfLookup := fresh().Lookup(t.Context(), s.db, keys[other])
				for i, err := range []error{err, errOfBatch, errOfLookup,
					fresh().Check(t.Context(), s.db), fresh().Migrate(t.Context(), s.db)} {
					var input *dedup.InputError
					switch {
					case other == owner:
						assert.NoError(t, err, "%s, %d", owner, i)
					case assert.ErrorAs(t, err, &input, "%s in %s, %d", other, owner, i):
						assert.Equal(t, "IDTime", input.Field)
						assert.False(t, sqladapter.Retryable(err) || dedup.IsPermanent(err))
					}
				}
			}
			assert.Equal(t, 1, s.rowsOf(t), "marks of refused Ledgers are rolled back")
		}
	})
}

// TestIDTimeMigrates: marks from before the form was on record are digests, and an empty table gets
// the form of the Ledger that migrates it. Migrating down and up again keeps the form.
func TestIDTimeMigrates(t *testing.T) {
	forEachIDEngine(t, func(t *testing.T, e engine) {
		for name, tt := range map[string]struct {
			marked bool
			want   string
		}{"with marks": {true, "digest"}, "empty": {false, "uuidv7"}} {
			s := newShop(t, e)
			if tt.marked {
				s.wantFirst(t, "k", true)
			}
			require.NoError(t, s.marks.Migrations().To(t.Context(), s.db, 2))
			s.exec(t, `ALTER TABLE "`+s.table+`_meta" DROP COLUMN id_form`)
			uuids := s.ledgerOf(t, withUUIDv7)
			form := func() (form string) {
				require.NoError(t, s.db.QueryRowContext(t.Context(),
					`SELECT id_form FROM "`+s.table+`_meta"`).Scan(&form))
				return form
			}
			err := uuids.Migrate(t.Context(), s.db)
			assert.Equal(t, tt.marked, err != nil, "%s: %v", name, err)
			assert.Equal(t, tt.want, form(), name)
			other := s.marks
			if tt.marked {
				other = uuids
			}
			require.NoError(t, other.Migrations().To(t.Context(), s.db, 2))
			require.NoError(t, other.Migrations().Up(t.Context(), s.db))
			assert.Equal(t, tt.want, form(), "%s, down and up", name)
		}
	})
}

// TestIDTimeOfWrongClocks: a mark expires a window after it was made. An id that claims to be of
// the past or the future stays for its window, and is deleted after it.
func TestIDTimeOfWrongClocks(t *testing.T) {
	forEachIDEngine(t, func(t *testing.T, e engine) {
		s := newWalkOf(t, e, withUUIDv7)
		now := time.Now()
		keys := map[string]string{"past": uuid7(time.Unix(0, 0), 1),
			"old": uuid7(now.Add(-10*walkWindow), 2), "now": uuid7(now, 3),
			"next year": uuid7(now.Add(365*24*time.Hour), 4),
			"end":       uuid7(time.UnixMilli(1<<48-1), 5)}
		for _, key := range keys {
			s.wantFirst(t, key, true)
		}
		s.pass(t, 1.25)
		for name, key := range keys {
			mark, found, err := s.marks.Lookup(t.Context(), s.db, key)
			require.NoError(t, err)
			assert.True(t, found, name)
			assert.WithinDuration(t, now, mark.At, time.Hour, name)
			s.wantFirst(t, key, false)
		}
		s.exec(t, agedBy(e, s.table, walkWindow+time.Hour))
		s.wantFirst(t, uuid7(now, 6), true) // ages count from the newest mark
		s.pass(t, 1.25)
		for name, key := range keys {
			_, found, err := s.marks.Lookup(t.Context(), s.db, key)
			require.NoError(t, err)
			assert.False(t, found, name)
		}
	})
}

// agedBy makes all marks older.
func agedBy(e engine, table string, age time.Duration) string {
	set := fmt.Sprintf(`stamp = stamp - (%d::bigint << 20)`, age.Milliseconds())
	if e.dialect == sqladapter.MySQL {
		set = fmt.Sprintf(`created_at = created_at - %d`, age.Milliseconds())
	}
	return `UPDATE "` + table + `" SET ` + set
}

func newWalkOf(t *testing.T, e engine, form func(*sqladapter.Config)) *shop {
	t.Helper()
	return newShop(t, e, func(c *sqladapter.Config) { c.Window = walkWindow }, form)
}

// idsAged writes n marks of an age on MariaDB, whose ids carry that time.
func (s *shop) idsAged(t *testing.T, n int, age time.Duration) {
	t.Helper()
	made := time.Now().Add(-age)
	for ; n > 0; n -= 1000 {
		s.exec(t, fmt.Sprintf(`INSERT INTO "%s" (id, owner, created_at)`+
			` WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < %d)`+
			` SELECT unhex(concat(lpad(hex(%d + i MOD 60), 8, '0'),`+
			` left(sha2(concat(i, uuid(), rand()), 256), 24))), 1, %d FROM c`,
			s.table, min(n, 1000), made.Unix(), made.UnixMilli()))
	}
}

// TestIDTimeWalkIsPaced: the key does not tell how much of the table a pass has walked, when all
// ids of a window are close to each other and one is of another century.
func TestIDTimeWalkIsPaced(t *testing.T) {
	t.Parallel()
	s := newWalkOf(t, mariadb(), withUUIDv7)
	s.idsAged(t, 2*walkMarks, walkWindow+2*time.Hour)
	s.idsAged(t, 2*walkMarks, walkWindow+time.Hour)
	s.exec(t, `ANALYZE TABLE "`+s.table+`"`)
	s.wantFirst(t, uuid7(time.Now(), 1), true) // or nothing is old
	s.wantFirst(t, uuid7(time.Now().AddDate(50, 0, 0), 2), true)
	s.deleteDue(t) // begins the pass
	left, _ := s.older(t, walkWindow)
	assert.InDelta(t, 4*walkMarks, left, 11_000, "one slice")
	before := left
	s.pass(t, 0.5)
	left, _ = s.older(t, walkWindow)
	assert.Less(t, left, before-walkMarks, "half a pass")
	assert.Greater(t, left, walkMarks/2, "half a pass")
	s.pass(t, 0.75)
	old, young := s.older(t, walkWindow)
	assert.Zero(t, old)
	assert.Equal(t, 2, young)
}

// TestIDTimeErrorsNameTheKey: a foreign id is refused without a transaction, alone and in a batch,
// whose other keys are marked.
func TestIDTimeErrorsNameTheKey(t *testing.T) {
	forEachIDEngine(t, func(t *testing.T, e engine) {
		s := newShop(t, e, withUUIDv7)
		good := uuid7(time.Now(), 1)
		marks, err := s.doBatch(t.Context(), []string{"evt_1", good})
		require.NoError(t, err)
		var input *dedup.InputError
		require.True(t, errors.As(marks[0].Err, &input))
		assert.Equal(t, "key", input.Field)
		assert.True(t, dedup.IsPermanent(marks[0].Err))
		assert.True(t, marks[1].First())
		s.wantEffects(t, []string{good})
	})
}
