package sqladapter

import (
	sqldriver "database/sql/driver"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// parseUUID turns uuidText back into bytes, to play PostgreSQL.
func parseUUID(t *testing.T, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
	if err != nil || len(b) != 16 {
		t.Fatalf("not a uuid: %q", text)
	}
	return b
}

func arrayItems(array any) []string {
	return strings.Split(strings.Trim(array.(string), "{}"), ",")
}

// insertedMany answers a batch INSERT: every id that keep accepts was absent.
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
		if mark.Outcome != want[i] {
			t.Errorf("item %d: %v, want %v", i, mark.Outcome, want[i])
		}
		if (mark.Err != nil) != (want[i] == dedup.Unknown || want[i] == dedup.Mismatch) {
			t.Errorf("item %d: Err = %v", i, mark.Err)
		}
	}
	var input *dedup.InputError
	if !errors.As(marks[1].Err, &input) {
		t.Errorf("bad item: %v", marks[1].Err)
	}
	// Prevents deadlocks: two batches that insert overlapping ids in different orders
	// each hold what the other one waits for.
	if ids := arrayItems(s.Args[0][0]); len(ids) != 4 || !slices.IsSorted(ids) {
		t.Errorf("ids are not 4 in ascending order: %v", ids)
	}
}

func TestMarkBatchTxRunsNothing(t *testing.T) {
	m := newMarks(t, Postgres)
	tx, _ := beginScript(t) // any statement fails the test
	for _, reqs := range [][]dedup.Request{nil, {}, {{Key: ""}}} {
		marks, err := m.MarkBatchTx(t.Context(), tx, reqs)
		if err != nil || len(marks) != len(reqs) {
			t.Errorf("MarkBatchTx(%v) = %v, %v", reqs, marks, err)
		}
	}
}

func TestMarkBatchTxFailsAsAWhole(t *testing.T) {
	m := newMarks(t, Postgres)
	reqs := []dedup.Request{{Key: "a"}, {Key: "b"}}
	for _, state := range []string{"40P01", "55P03"} {
		tx, _ := beginScript(t, Step{Query: insertManyText(m), Err: codeError(state)})
		marks, err := m.MarkBatchTx(t.Context(), tx, reqs)
		if marks != nil || !Retryable(err) ||
			errors.Is(err, dedup.ErrInFlight) != (state == "55P03") {
			t.Errorf("%s: %v, %v", state, marks, err)
		}
	}
}

// TestMarkBatchTxSQLite: one statement for all keys, in ascending order, and one for those that
// were there.
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
	if marks[0].First() == marks[1].First() {
		t.Errorf("marks = %+v", marks)
	}
	ids := s.Args[0][0].([]byte)
	first, second := ids[:16], ids[16:]
	if s.Args[0][2] != nil {
		t.Errorf("fingerprints %x, where there are none", s.Args[0][2])
	}
	if slices.Compare(first, second) >= 0 {
		t.Error("ids are not in ascending order")
	}
	if len(s.Args[1]) != 1 || !slices.Equal(s.Args[1][0].([]byte), second) {
		t.Errorf("it asks for %x, want the one that was not inserted", s.Args[1])
	}
}

// TestFingerprintsOfSQLite: they stand in the order of the ids, and zeros where there is none.
func TestFingerprintsOfSQLite(t *testing.T) {
	es := []entry{{id: driver.ID{1}}, {id: driver.ID{2}, fingerprint: driver.Fingerprint{7}}}
	want := make([]byte, 34)
	want[17] = 7
	if got, _ := fingerprintBlob(es).([]byte); !slices.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
}
