package sqladapter

import (
	sqldriver "database/sql/driver"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// meta is the row that the walk of PostgreSQL locks.
type meta struct{ window, begun, newest, now, page, was, file, pages, version int64 }

func (r meta) step(w *postgresWalk) Step {
	return Step{Query: w.state, Rows: func([]any) [][]sqldriver.Value {
		return [][]sqldriver.Value{{r.window, r.begun, r.newest, r.now, r.page, r.was, r.file,
			r.pages, r.version}}
	}}
}

// stateOf is the answer of a server with this version about an empty table.
func stateOf(w *postgresWalk, version int64) Step {
	return meta{window: 1, now: time.Now().UnixMilli(), file: 7, was: 7, version: version}.step(w)
}

// slice answers that deleted marks were deleted, and that the newest mark is of now.
func (r meta) slice(w *postgresWalk, deleted int64) Step {
	return Step{Query: w.text, Rows: func([]any) [][]sqldriver.Value {
		return [][]sqldriver.Value{{deleted, r.now}}
	}}
}

const hour = int64(time.Hour / time.Millisecond)

// TestWalkPostgres: how far each call walks, and what it records.
func TestWalkPostgres(t *testing.T) {
	m := newMarks(t, Postgres) // with a window of an hour
	w := m.dialect.walker.(*postgresWalk)
	now := time.Now().Add(-time.Minute).UnixMilli() // before the process's time
	at := func(edit func(*meta)) meta {
		r := meta{window: hour, begun: now, now: now, was: 7, file: 7, pages: 10 * slicePages,
			version: walksSince}
		edit(&r)
		return r
	}
	const some, more = 10*slicePages + 1, 11*slicePages + 1 // pages
	type saved struct{ page, file, begun int64 }
	for name, tt := range map[string]struct {
		rows    []meta
		deleted []int64
		want    int64
		saved   saved
	}{
		"the first slice is due at once": {[]meta{at(func(*meta) {})}, []int64{3}, 3,
			saved{slicePages, 7, now}},
		"until it is where it should be": {[]meta{
			at(func(r *meta) { r.begun -= hour / passes / 4 }), // a quarter of the pass
			at(func(r *meta) { r.begun -= hour / passes / 4; r.page = slicePages }),
			at(func(r *meta) { r.begun -= hour / passes / 4; r.page = 2 * slicePages }),
		}, []int64{1, 0, 2}, 3, saved{3 * slicePages, 7, now - hour/passes/4}},
		"stays at a slice that has more": {[]meta{at(func(r *meta) { r.begun -= hour })},
			[]int64{1000}, 1000, saved{0, 7, now - hour}},
		"the last slice ends the pass": {[]meta{at(func(r *meta) {
			r.begun -= hour
			r.page = 9*slicePages + 1
		})}, []int64{0}, 0, saved{0, 7, now}},
		"pages were added": {[]meta{
			at(func(r *meta) { r.begun, r.page, r.pages = now-hour, 9*slicePages, some }),
			at(func(r *meta) { r.begun, r.page, r.pages = now-hour, 10*slicePages, more }),
			at(func(r *meta) { r.begun, r.page, r.pages = now-hour, 11*slicePages, more }),
		}, []int64{0, 0, 0}, 0, saved{0, 7, now}},
		"the table has shrunk": {[]meta{at(func(r *meta) { r.page = 20 * slicePages })},
			[]int64{0}, 0, saved{slicePages, 7, now}},
		"the table was written anew": {[]meta{at(func(r *meta) {
			r.page, r.was = 5*slicePages, 6
		})}, []int64{0}, 0, saved{slicePages, 7, now}},
		"the first pass begins now": {[]meta{at(func(r *meta) { r.begun = 0 })}, []int64{0}, 0,
			saved{slicePages, 7, now}},
		"a pass of a clock that was ahead begins now": {[]meta{at(func(r *meta) {
			r.begun += hour
		})}, []int64{0}, 0, saved{slicePages, 7, now}},
	} {
		t.Run(name, func(t *testing.T) {
			steps := []Step{recorded(m, hour)}
			for i, r := range tt.rows {
				steps = append(steps, r.step(w), r.slice(w, tt.deleted[i]), Step{Query: w.write})
			}
			db, s := openScript(t, steps...)
			deleted, err := m.DeleteExpired(t.Context(), db, 1000)
			require.NoError(t, err)
			assert.Equal(t, tt.want, deleted)
			assert.Equal(t, len(tt.rows), s.Committed)
			last := s.Args[len(s.Args)-1]
			assert.Equal(t, []any{tt.saved.page, tt.saved.file, tt.saved.begun, now}, last)
			first := tt.rows[0]
			if first.was != first.file || first.page > first.pages {
				first.page = 0
			}
			args := s.Args[2]
			assert.Equal(t, []any{first.page, first.page + slicePages, int64(0), now, hour,
				int64(1000)}, args[:6])
			assert.Len(t, strings.Split(args[6].(string), ","), looks)
		})
	}
}

// TestWalkAges: a database clock that is ahead, a mark from the future, and a shorter recorded
// window do not make marks older.
func TestWalkAges(t *testing.T) {
	m := newMarks(t, Postgres)
	w := m.dialect.walker.(*postgresWalk)
	ahead := time.Now().Add(48 * time.Hour).UnixMilli()
	r := meta{window: 1, begun: ahead, newest: ahead, now: ahead, file: 7, version: walksSince}
	db, s := openScript(t, recorded(m, 1), r.step(w), Step{Query: w.text,
		Rows: func(args []any) [][]sqldriver.Value {
			return [][]sqldriver.Value{{int64(0), args[3]}}
		}}, Step{Query: w.write})
	_, err := m.DeleteExpired(t.Context(), db, 1)
	require.NoError(t, err)
	process := time.Now().UnixMilli()
	for i := 2; i <= 3; i++ { // newest and now
		assert.InDelta(t, process, s.Args[2][i], 60_000)
	}
	assert.Equal(t, hour, s.Args[2][4])
	assert.Equal(t, "{}", s.Args[2][6], "of a table without pages")
}

// TestWalkErrors: an error undoes its own slice. The deletes of earlier slices still count.
func TestWalkErrors(t *testing.T) {
	m := newMarks(t, Postgres)
	w := m.dialect.walker.(*postgresWalk)
	now := time.Now().UnixMilli()
	r := meta{window: hour, begun: now - hour/passes/2, now: now, file: 7, was: 7,
		pages: 10 * slicePages, version: walksSince}
	lost := codeError("57P01")
	good := []Step{r.step(w), r.slice(w, 5), {Query: w.write}}
	for name, tt := range map[string]struct {
		steps []Step
		want  int64
	}{
		"lock":  {[]Step{{Query: w.state, Err: lost}}, 0},
		"slice": {[]Step{r.step(w), {Query: w.text, Err: lost}}, 0},
		"save":  {[]Step{r.step(w), r.slice(w, 5), {Query: w.write, Err: lost}}, 0},
		"later": {slices.Concat(good, []Step{{Query: w.state, Err: lost}}), 5},
	} {
		t.Run(name, func(t *testing.T) {
			db, _ := openScript(t, append([]Step{recorded(m, hour)}, tt.steps...)...)
			deleted, err := m.DeleteExpired(t.Context(), db, 1000)
			require.ErrorIs(t, err, lost)
			assert.Equal(t, tt.want, deleted)
		})
	}
	t.Run("commit", func(t *testing.T) {
		db, s := openScript(t, append([]Step{recorded(m, hour)}, good...)...)
		s.Commits = []error{lost}
		deleted, err := m.DeleteExpired(t.Context(), db, 1000)
		require.ErrorIs(t, err, lost)
		assert.Zero(t, deleted)
	})
	t.Run("not due", func(t *testing.T) {
		r := r
		r.begun, r.page = now-1, 2*slicePages
		db, _ := openScript(t, recorded(m, hour), r.step(w))
		deleted, err := m.DeleteExpired(t.Context(), db, 1000)
		require.NoError(t, err)
		assert.Zero(t, deleted)
	})
	t.Run("another process", func(t *testing.T) {
		db, _ := openScript(t, recorded(m, hour), Step{Query: w.state})
		deleted, err := m.DeleteExpired(t.Context(), db, 1000)
		require.NoError(t, err)
		assert.Zero(t, deleted)
	})
	t.Run("partitioned", func(t *testing.T) {
		r := r
		r.file = 0
		db, _ := openScript(t, recorded(m, hour), r.step(w))
		_, err := m.DeleteExpired(t.Context(), db, 1000)
		require.ErrorContains(t, err, "partitioned")
	})
}

// TestWalkMySQL: two slices of which the first is full, and the ids that are deleted.
func TestWalkMySQL(t *testing.T) {
	m := newMarks(t, MySQL)
	w := m.dialect.walker.(*mysqlWalk)
	now := time.Now().UnixMilli()
	state := func(after []byte) Step {
		return Step{Query: w.state, Rows: func([]any) [][]sqldriver.Value {
			return [][]sqldriver.Value{{hour, now - hour, int64(0), now, after}}
		}}
	}
	count := func(rows int64, last []byte) Step {
		return Step{Like: "SELECT COUNT(*), MAX(id)", Rows: func([]any) [][]sqldriver.Value {
			return [][]sqldriver.Value{{rows, last, now}}
		}}
	}
	start, half := make([]byte, 16), append([]byte{0x80}, make([]byte, 15)...)
	end := append([]byte{0xf0}, make([]byte, 15)...)
	es := []entry{{}, {}}
	es[0].id[0], es[1].id[0] = 1, 2
	old := Step{Like: "created_at < ", Text: func(text string) [][]sqldriver.Value {
		assert.Contains(t, text, "id > x'00000000000000000000000000000000' AND id <= x'8000")
		assert.True(t, strings.HasSuffix(text, "FOR UPDATE SKIP LOCKED"), text)
		return [][]sqldriver.Value{{es[0].id[:]}, {es[1].id[:]}}
	}}
	steps := []Step{recorded(m, hour), state(start), count(sliceRows, half), old}
	for _, text := range w.forget(es) {
		steps = append(steps, Step{Query: text})
	}
	steps = append(steps, Step{Like: "SET walk_id = x'8000"}, state(half), count(3, end),
		Step{Like: "created_at < "}, Step{Like: "SET walk_id = x'', walk_begun_ms"})
	db, s := openScript(t, steps...)
	deleted, err := m.DeleteExpired(t.Context(), db, 1000)
	require.NoError(t, err)
	assert.EqualValues(t, 2, deleted)
	assert.Equal(t, 2, s.Committed)
	assert.InDelta(t, 0.5, keyFraction(half), 1e-9)
	assert.InDelta(t, 0, keyFraction(nil), 0)
}
