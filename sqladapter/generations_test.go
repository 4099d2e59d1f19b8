package sqladapter

import (
	"database/sql/driver"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
)

func newGenerations(t *testing.T, table string) *Ledger {
	t.Helper()
	m, err := New(Config{Dialect: Postgres, Namespace: "payments", Table: table, Window: time.Hour,
		Retention: Generations})
	require.NoError(t, err)
	return m
}

func TestGoldenGenerations(t *testing.T) {
	m, err := New(Config{Dialect: Postgres, Namespace: "n", Schema: "Shop", Table: "marks",
		Window: time.Hour, Retention: Generations})
	require.NoError(t, err)
	d := m.generations.at(7)
	parts := []string{m.dialect.kind, m.Migrations().SQL()}
	parts = append(parts, m.generations.read, d.insert(make([]entry, 1), 0).text,
		d.insert(make([]entry, 2), 0).text,
		d.load(make([]entry, 1)).text, d.save(entry{}, nil).text, d.peek(make([]entry, 1)).text,
		newestMark(m.table.generation(7).open, tails[0]))
	parts = append(parts, m.sealing(7)...)
	wantGolden(t, "postgres_generations", parts)
}

// number answers with one row that has n.
func number(n int64) func([]any) [][]driver.Value {
	return func([]any) [][]driver.Value { return [][]driver.Value{{n}} }
}

// generationStep marks a key in generation n. It fails with err, or is the first.
func generationStep(m *Ledger, n int64, err error) Step {
	e, _ := m.entry(testKey, nil)
	return Step{Query: m.generations.at(n).insert(make([]entry, 1), 0).text, Err: err,
		Rows: func(args []any) [][]driver.Value {
			return [][]driver.Value{{e.id[:], at(1, args[1].(int64))}} //nolint:forcetypeassert // as the dialect has it
		}}
}

// TestLearnsOfRotations: after a transaction has failed, the next one reads the generation again.
func TestLearnsOfRotations(t *testing.T) {
	m := newGenerations(t, "marks")
	gone := codeError("42P01")
	read := func(n int64) Step { return Step{Query: m.generations.read, Rows: number(n)} }
	db, _ := openScript(t,
		read(3), generationStep(m, 3, nil), // asked once
		generationStep(m, 3, nil),
		generationStep(m, 3, gone),
		read(3), generationStep(m, 3, gone), // a snapshot from before the rotation
		read(5), generationStep(m, 5, nil),
		generationStep(m, 5, nil),
		generationStep(m, 5, codeError("23514")), // another error does not make it read again
		generationStep(m, 5, nil),
	)
	for i, want := range []error{nil, nil, gone, gone, nil, nil, codeError("23514"), nil} {
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		mark, err := m.MarkTx(t.Context(), tx, testKey)
		assert.ErrorIs(t, err, want, "mark %d: %v", i+1, mark.Outcome)
		assert.Equal(t, want == nil, mark.First(), "mark %d: %v", i+1, mark.Outcome)
		assert.Equal(t, errors.Is(want, gone), Retryable(err), "mark %d: %v", i+1, mark.Outcome)
		_ = tx.Rollback()
	}
	// A slow transaction that learns an older generation does not replace the newer one.
	assert.EqualValues(t, 4, m.generations.learn(4).generation,
		"an older generation has replaced a newer one")
	assert.EqualValues(t, 5, m.generations.known.Load().generation,
		"an older generation has replaced a newer one")
}

// TestOldSnapshot: if nothing was inserted and nothing is found, the snapshot is older than the
// sealed generation.
func TestOldSnapshot(t *testing.T) {
	m := newGenerations(t, "marks")
	nothing := generationStep(m, 2, nil)
	nothing.Rows = nil
	tx, _ := beginScript(t, Step{Query: m.generations.read, Rows: number(2)}, nothing,
		Step{Query: m.generations.at(2).load(make([]entry, 1)).text})
	mark, err := m.MarkTx(t.Context(), tx, testKey)
	assert.ErrorIs(t, err, errOldSnapshot)
	assert.True(t, Retryable(err), "%v", err)
	assert.Equal(t, dedup.Unknown, mark.Outcome)
}

// TestGenerationMissing: if no generation is on record, another try cannot fix that.
func TestGenerationMissing(t *testing.T) {
	m := newGenerations(t, "marks")
	for want, answer := range map[string]Step{
		"42P01":   {Err: codeError("42P01")},
		"Migrate": {},
	} {
		answer.Query = m.generations.read
		tx, _ := beginScript(t, answer)
		_, err := m.MarkTx(t.Context(), tx, testKey)
		assert.Error(t, err)
		assert.False(t, Retryable(err), "%v", err)
		assert.ErrorContains(t, err, want)
	}
}

// TestGenerationNames: all names of all generations differ and fit, even if the table's own name
// has the largest length.
func TestGenerationNames(t *testing.T) {
	for _, table := range []string{"t", strings.Repeat("t", 63)} {
		m := newGenerations(t, table)
		seen := map[string]bool{m.table.full: true, m.table.meta: true, m.table.results: true,
			m.table.state: true}
		for _, n := range []int64{0, 1, 12, 1 << 40} {
			g := m.table.generation(n)
			for _, name := range []string{g.open, g.sealed, g.results} {
				assert.LessOrEqual(t, len(name), 65, "generation %d has %s", n, name)
				assert.False(t, seen[name], "generation %d has %s", n, name)
				seen[name] = true
			}
			assert.Equal(t, g.sealed, m.table.sealedBare(n), "generation %d is sealed", n)
		}
	}
}

func TestRotateInput(t *testing.T) {
	m := newGenerations(t, "marks")
	var input *dedup.InputError
	_, err := m.Rotate(t.Context(), nil)
	require.ErrorAs(t, err, &input, "no database")
	assert.Equal(t, "db", input.Field, "no database")
	db, _ := openScript(t, Step{Query: m.dialect.window, Rows: number(forever)})
	_, err = newMarks(t, Postgres).Rotate(t.Context(), db)
	require.ErrorAs(t, err, &input, "a table with deletes")
	assert.Equal(t, "Retention", input.Field, "a table with deletes")
	_, err = m.DeleteExpired(t.Context(), db, 1)
	require.ErrorAs(t, err, &input, "deletes in generations")
	assert.Equal(t, "Retention", input.Field, "deletes in generations")
	_, err = m.Rotate(t.Context(), db)
	require.ErrorAs(t, err, &input, "a table that is kept for ever")
	assert.Equal(t, "Window", input.Field, "a table that is kept for ever")
	for r, want := range map[Retention]string{DeleteRows: "deletes", Generations: "generations",
		9: "unknown"} {
		assert.Equal(t, want, r.text())
	}
}
