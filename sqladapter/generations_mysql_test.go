package sqladapter

import (
	"database/sql/driver"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

// TestTurnNames: they differ and fit, and the open table comes before all others that marks
// touch, whatever the length of the table's own name. Before RENAME has its lock it has none
// that a mark could wait for.
func TestTurnNames(t *testing.T) {
	for n := 1; n <= 63; n++ {
		m := newMySQLTurns(t, "", strings.Repeat("t", n))
		g := newNameCycle(m.table)
		used := []string{g.open.marks, g.open.results, g.sealed.marks, g.sealed.results}
		bare := strings.Fields(strings.ReplaceAll(strings.Join(used, " "), "`", ""))
		if !slices.IsSorted(bare) {
			t.Errorf("a table of %d bytes: not in order: %q", n, bare)
		}
		seen := map[string]bool{m.table.full: true, m.table.meta: true, m.table.results: true}
		for _, name := range append(used, g.next.marks, g.next.results, g.gone.marks,
			g.gone.results) {
			if len(name) > 65 || seen[name] {
				t.Errorf("a table of %d bytes: %s", n, name)
			}
			seen[name] = true
		}
	}
}

// TestMySQLEarlier: of a batch that is not all new, the sealed table is asked for all, and the
// open one for the rest only: what it lacks must not be read there with a lock.
func TestMySQLEarlier(t *testing.T) {
	m := newMySQLTurns(t, "", "marks")
	g := newNameCycle(m.table)
	sealed, open := newMySQLTable(t, m, "old"), newMySQLTable(t, m, "a", "b")
	load := func(table *mysqlTable, name string, want int) Step {
		st := table.load()
		st.Like = name
		inner := st.Text
		st.Text = func(text string) [][]driver.Value {
			if n := len(mysqlIDs(t, text)); n != want {
				t.Errorf("%s is asked for %d ids, want %d", name, n, want)
			}
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
		if mark.Outcome != dedup.Duplicate || (i != 1) != (mark.Result != nil) {
			t.Errorf("item %d: %v, %q", i, mark.Outcome, mark.Result)
		}
	}
}

// TestRotateMySQL: the steps from each stage that a generation, or a rotator that has died, can
// have left.
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
				if sealed != tt.sealed || (err == nil) != (tt.fails == "") ||
					err != nil && !strings.Contains(err.Error(), tt.fails) ||
					Retryable(err) != tt.retry {
					t.Errorf("Rotate = %v, %v; want %v, %q", sealed, err, tt.sealed, tt.fails)
				}
				if n := db.Stats().OpenConnections; len(tt.steps) > 2 && n != 0 {
					t.Errorf("%d sessions are left", n)
				}
			})
		})
	}
}

func TestRotateMySQLInput(t *testing.T) {
	m := newMySQLTurns(t, "", "marks")
	var input *dedup.InputError
	if _, err := m.Rotate(t.Context(), nil); !errors.As(err, &input) || input.Field != "db" {
		t.Errorf("no database: %v", err)
	}
	db, _ := openScript(t, Step{Query: m.dialect.window, Rows: number(forever)})
	if _, err := m.Rotate(t.Context(), db); !errors.As(err, &input) || input.Field != "Window" {
		t.Errorf("a table that is kept for ever: %v", err)
	}
	if _, err := m.DeleteExpired(t.Context(), db, 1); !errors.As(err, &input) ||
		input.Field != "Retention" {
		t.Errorf("deletes in generations: %v", err)
	}
	if _, err := newMarks(t, MySQL).Rotate(t.Context(), db); !errors.As(err, &input) ||
		input.Field != "Retention" {
		t.Errorf("a table with deletes: %v", err)
	}
}
