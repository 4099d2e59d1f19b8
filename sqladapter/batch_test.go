package sqladapter

import (
	sqldriver "database/sql/driver"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// parseUUID turns uuidText back into bytes, as PostgreSQL does.
func parseUUID(t *testing.T, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
	require.NoError(t, err)
	require.Len(t, b, 16, "not a uuid: %q", text)
	return b
}

func arrayItems(array any) []string {
	return strings.Split(strings.Trim(array.(string), "{}"), ",")
}

// insertedMany answers a batch INSERT as if all ids that keep accepts were absent.
func insertedMany(t *testing.T, keep func(id driver.ID) bool) func(args []any) [][]sqldriver.Value {
	return func(args []any) [][]sqldriver.Value {
		var rows [][]sqldriver.Value
		for _, text := range arrayItems(args[0]) {
			id := parseUUID(t, text)
			if !keep(driver.ID(id)) {
				continue
			}
			rows = append(rows, []sqldriver.Value{id, at(1, args[1].(int64))}) //nolint:forcetypeassert // as the dialect has it
		}
		return rows
	}
}

func TestMarkBatchTx(t *testing.T) {
	m := newMarks(t, Postgres)
	done, err := driver.NewID("payments", "", "done")
	require.NoError(t, err)
	f := driver.FingerprintOf([]byte("body"))
	tx, s := beginScript(t,
		Step{Query: withFingerprintText(m), Rows: insertedMany(t, func(id driver.ID) bool {
			return id != done
		})},
		Step{Query: loadText(m), Rows: func(args []any) [][]sqldriver.Value {
			return stored(f)([]any{parseUUID(t, args[0].(string))})
		}},
	)
	marks, err := m.MarkBatchTx(t.Context(), tx, []dedup.Request{
		{Key: "a", Fingerprint: f},
		{Key: ""},
		{Key: "done", Fingerprint: f},
		{Key: "a", Fingerprint: f},
		{Key: "b"},
		{Key: "a", Fingerprint: driver.FingerprintOf([]byte("another"))},
		{Key: "done", Fingerprint: driver.FingerprintOf([]byte("another"))},
		{Key: "a", Scope: "tenant"},
	})
	require.NoError(t, err)
	want := []driver.Outcome{
		dedup.Acquired, dedup.Unknown, dedup.Duplicate, dedup.Duplicate,
		dedup.Acquired, dedup.Mismatch, dedup.Mismatch, dedup.Acquired,
	}
	for i, mark := range marks {
		assert.Equal(t, want[i], mark.Outcome, "item %d", i)
		assert.Equal(t, want[i] == dedup.Unknown || want[i] == dedup.Mismatch, mark.Err != nil,
			"item %d: Err", i)
	}
	var input *dedup.InputError
	assert.ErrorAs(t, marks[1].Err, &input, "bad item")
	// Prevents deadlocks: two batches that insert overlapping ids in different orders
	// each hold what the other one waits for.
	ids := arrayItems(s.Args[0][0])
	assert.Len(t, ids, 4, "ids are not 4 in ascending order")
	assert.True(t, slices.IsSorted(ids), "ids are not 4 in ascending order")
}

func TestMarkBatchTxRunsNothing(t *testing.T) {
	m := newMarks(t, Postgres)
	tx, _ := beginScript(t) // any statement fails the test
	for _, reqs := range [][]dedup.Request{nil, {}, {{Key: ""}}} {
		marks, err := m.MarkBatchTx(t.Context(), tx, reqs)
		require.NoError(t, err)
		assert.Len(t, marks, len(reqs))
	}
}

func TestMarkBatchTxFailsAsAWhole(t *testing.T) {
	m := newMarks(t, Postgres)
	reqs := []dedup.Request{{Key: "a"}, {Key: "b"}}
	for _, state := range []string{"40P01", "55P03"} {
		tx, _ := beginScript(t, Step{Query: insertManyText(m), Err: codeError(state)})
		marks, err := m.MarkBatchTx(t.Context(), tx, reqs)
		assert.Nil(t, marks, state)
		assert.True(t, Retryable(err), state)
		assert.Equal(t, state == "55P03", errors.Is(err, dedup.ErrInFlight), state)
	}
}

// TestMarkBatchTxSQLite: one statement inserts all keys, in ascending order. Another one loads
// those that existed.
func TestMarkBatchTxSQLite(t *testing.T) {
	m := newMarks(t, SQLite)
	tx, s := beginScript(t,
		Step{Query: insertManyText(m), Rows: func(args []any) [][]sqldriver.Value {
			return inserted(args)[:1]
		}},
		Step{Query: loadText(m), Rows: stored(driver.Fingerprint{})},
	)
	marks, err := m.MarkBatchTx(t.Context(), tx, []dedup.Request{{Key: "a"}, {Key: "b"}})
	require.NoError(t, err)
	assert.NotEqual(t, marks[1].First(), marks[0].First(), "marks = %+v", marks)
	ids := s.Args[0][0].([]byte)
	first, second := ids[:16], ids[16:]
	assert.Nil(t, s.Args[0][2])
	assert.Less(t, slices.Compare(first, second), 0, "ids are not in ascending order")
	require.Len(t, s.Args[1], 1, "it asks")
	assert.Equal(t, second, s.Args[1][0].([]byte), "it asks")
}

// TestFingerprintsOfSQLite: they are in the order of the ids. A missing one is all zeros.
func TestFingerprintsOfSQLite(t *testing.T) {
	es := []entry{{id: driver.ID{1}}, {id: driver.ID{2}, fingerprint: driver.Fingerprint{7}}}
	want := make([]byte, 34)
	want[17] = 7
	got, _ := fingerprintBlob(es).([]byte)
	assert.Equal(t, want, got)
}
