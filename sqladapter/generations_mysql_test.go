package sqladapter

import (
	"database/sql/driver"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
)

func newMySQLTurns(t *testing.T, schema, table string) *Ledger {
	t.Helper()
	m, err := New(Config{Dialect: MySQL, Namespace: "payments", Schema: schema, Table: table,
		Window: time.Hour, Retention: Generations})
	require.NoError(t, err)
	return m
}

func TestGoldenMySQLGenerations(t *testing.T) {
	m := newMySQLTurns(t, "Shop", "marks")
	d, g := m.dialect, newNameCycle(m.table)
	two := make([]entry, 2)
	parts := []string{d.kind, m.Migrations().SQL(), d.insert(two[:1], 1).text,
		d.insert(two, 1).text,
		d.earlier(two[:1]).text,
		d.load(two[:1]).text, d.apart(two[:1]).text, d.results(two[:1], true).text,
		d.save(entry{}, nil).text, d.peek(two[:1]).text, m.stepText(g), g.newest(),
		m.rotatorLock()}
	parts = append(parts, g.preparing()...)
	parts = append(parts, g.rename(), g.date(), g.drop(g.gone))
	wantGolden(t, "mysql_generations", parts)
}

// TestTurnNames: the names differ and fit, whatever the length of the table's own name. The open
// table sorts before all others that marks use. So RENAME waits for its lock first, and until then
// holds no lock that a mark could wait for.
func TestTurnNames(t *testing.T) {
	for n := 1; n <= 63; n++ {
		m := newMySQLTurns(t, "", strings.Repeat("t", n))
		g := newNameCycle(m.table)
		used := []string{g.open.marks, g.open.results, g.sealed.marks, g.sealed.results}
		bare := strings.Fields(strings.ReplaceAll(strings.Join(used, " "), "`", ""))
		assert.True(t, slices.IsSorted(bare), "a table of %d bytes: not in order: %q", n, bare)
		seen := map[string]bool{m.table.full: true, m.table.meta: true, m.table.results: true}
		for _, name := range append(used, g.next.marks, g.next.results, g.gone.marks,
			g.gone.results) {
			assert.LessOrEqual(t, len(name), 65, "a table of %d bytes: %s", n, name)
			assert.False(t, seen[name], "a table of %d bytes: %s", n, name)
			seen[name] = true
		}
	}
}

// TestMySQLEarlier: for a batch with known keys the sealed table is asked for all keys, and the
// open one for the rest. A locking read of a key that the open table does not have locks a gap.
func TestMySQLEarlier(t *testing.T) {
	m := newMySQLTurns(t, "", "marks")
	g := newNameCycle(m.table)
	sealed, open := newMySQLTable(t, m, "old"), newMySQLTable(t, m, "a", "b")
	load := func(table *mysqlTable, name string, want int) Step {
		st := table.load()
		st.Like = name
		inner := st.Text
		st.Text = func(text string) [][]driver.Value {
			assert.Equal(t, want, len(mysqlIDs(t, text)), "%s is asked", name)
			return inner(text)
		}
		return st
	}
	insert := Step{Like: `INSERT INTO ` + g.open.marks, Exec: func(string) int64 { return 0 }}
	tx, _ := beginScript(t, append(isOpen(), insert, load(sealed, g.sealed.marks, 3),
		load(open, g.open.marks, 2), open.results(true, "a", "b"))...)
	marks, err := m.MarkBatchTx(t.Context(),
		tx, []dedup.Request{{Key: "a"}, {Key: "old"}, {Key: "b"}})
	require.NoError(t, err)
	for i, mark := range marks {
		assert.Equal(t, dedup.Duplicate, mark.Outcome, "item %d", i)
		assert.Equal(t, mark.Result != nil, i != 1, "item %d", i)
	}
}

// TestRotateMySQL: the steps from each stage in which a rotation can be, also one whose process has
// died.
func TestRotateMySQL(t *testing.T) {
	m := newMySQLTurns(t, "", "marks")
	g := newNameCycle(m.table)
	hour := time.Hour.Milliseconds()
	window := Step{Query: m.dialect.window, Rows: number(hour)}
	at := func(opened, now, litter int64) Step {
		return Step{Query: m.stepText(g), Rows: func([]any) [][]driver.Value {
			return [][]driver.Value{{opened, now, litter}}
		}}
	}
	newest := func(ms int64) Step { return Step{Query: g.newest(), Rows: number(ms)} }
	runs := func(texts ...string) (steps []Step) {
		for _, text := range texts {
			steps = append(steps, Step{Query: text})
		}
		return steps
	}
	locked := func(got int64, steps ...Step) []Step {
		all := append(runs(rotatorSettings), Step{Like: `GET_LOCK`, Rows: number(got)})
		if got == 1 {
			all = append(append(all, steps...), Step{Like: `RELEASE_LOCK`})
		}
		return all
	}
	due := []Step{at(1, hour+1, 0), newest(hour + 1)}
	waited := Step{Query: g.rename(), Err: mysqlError(1205)}
	seal := slices.Concat(due, runs(append(g.preparing(), g.rename(), g.date(), g.drop(g.gone))...))
	for name, tt := range map[string]struct {
		steps  []Step
		sealed bool
		fails  string
		retry  bool
	}{
		"young":                {steps: []Step{at(1, hour, 0)}},
		"no traffic":           {steps: []Step{at(1, hour+1, 0), newest(hour)}},
		"due":                  {steps: slices.Concat(due, locked(1, seal...)), sealed: true},
		"another has the lock": {steps: slices.Concat(due, locked(0))},
		"another was first":    {steps: slices.Concat(due, locked(1, at(hour+1, hour+2, 0)))},
		"not dated": {steps: slices.Concat([]Step{at(0, 9*hour, 0)},
			locked(1, append([]Step{at(0, 9*hour, 0)}, runs(g.date())...)...))},
		"litter": {steps: slices.Concat([]Step{at(1, 2, 1)},
			locked(1, append([]Step{at(1, 2, 1)}, runs(g.drop(g.gone))...)...))},
		"both": {steps: slices.Concat([]Step{at(0, 9*hour, 2)},
			locked(1, append([]Step{at(0, 9*hour, 2)}, runs(g.date(), g.drop(g.gone))...)...))},
		"litter is locked": {steps: slices.Concat([]Step{at(1, 2, 1)},
			locked(1, at(1, 2, 1), Step{Query: g.drop(g.gone), Err: mysqlError(1205)})),
			fails: "1205", retry: true},
		"waits in vain": {steps: slices.Concat(due,
			locked(1, slices.Concat(due, runs(g.preparing()...),
				[]Step{waited, waited, waited, waited})...)),
			fails: "4 times", retry: true},
		"waits once": {steps: slices.Concat(due,
			locked(1, slices.Concat(due, runs(g.preparing()...), []Step{waited},
				runs(g.rename(), g.date(), g.drop(g.gone)))...)),
			sealed: true},
		"not dropped": {steps: slices.Concat(due,
			locked(1, append(slices.Clone(seal[:len(seal)-1]),
				Step{Query: g.drop(g.gone), Err: mysqlError(1205)})...)),
			sealed: true, fails: "1205", retry: true},
		"sealed is missing": {steps: []Step{{Query: m.stepText(g), Err: mysqlError(1146)}},
			fails: "1146"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db, _ := openScript(t, append([]Step{window}, tt.steps...)...)
				sealed, err := m.Rotate(t.Context(), db)
				assert.Equal(t, tt.sealed, sealed)
				require.Equal(t, tt.fails == "", err == nil)
				assert.False(t, err != nil && !strings.Contains(err.Error(), tt.fails), "%v", err)
				assert.Equal(t, tt.retry, Retryable(err))
				n := db.Stats().OpenConnections
				assert.False(t, len(tt.steps) > 2 && n != 0, "%d sessions are left", n)
			})
		})
	}
}

func TestRotateMySQLInput(t *testing.T) {
	m := newMySQLTurns(t, "", "marks")
	var input *dedup.InputError
	_, err := m.Rotate(t.Context(), nil)
	require.ErrorAs(t, err, &input, "no database")
	assert.Equal(t, "db", input.Field, "no database")
	db, _ := openScript(t, Step{Query: m.dialect.window, Rows: number(forever)})
	_, err = m.Rotate(t.Context(), db)
	require.ErrorAs(t, err, &input, "a table that is kept for ever")
	assert.Equal(t, "Window", input.Field, "a table that is kept for ever")
	_, err = m.DeleteExpired(t.Context(), db, 1)
	require.ErrorAs(t, err, &input, "deletes in generations")
	assert.Equal(t, "Retention", input.Field, "deletes in generations")
	_, err = newMarks(t, MySQL).Rotate(t.Context(), db)
	require.ErrorAs(t, err, &input, "a table with deletes")
	assert.Equal(t, "Retention", input.Field, "a table with deletes")
}
