package ledger

import (
	"path/filepath"
	"reflect"
	"testing"
)

func sqlite(t *testing.T) Location {
	return Location{File: filepath.Join(t.TempDir(), "ledger.db"), Table: "effects"}
}

func open(t *testing.T, p Location) *Ledger {
	t.Helper()
	l, err := Open(p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// TestLedger: the ledger takes an id twice, returns the first, and keeps compositions apart; a
// second process sees the rows of the first.
func TestLedger(t *testing.T) {
	ctx, at := t.Context(), sqlite(t)
	l := open(t, at)
	if err := l.Create(ctx); err != nil {
		t.Fatal(err)
	}
	first := Row{ID: "a", Worker: "w1", Partition: 3, Offset: 1 << 40, Generation: 7}
	for _, r := range []Row{first, {ID: "a", Worker: "w2"}, {ID: "b", Worker: "w2"}} {
		if err := l.Append(ctx, l.DB, "atomic", r); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Append(ctx, l.DB, "claimed", Row{ID: "a", Worker: "w1"}); err != nil {
		t.Fatal(err)
	}
	other := open(t, at)
	if got, ok, err := other.First(ctx, other.DB, "atomic", "a"); err != nil ||
		!ok || got != first {
		t.Errorf("First = %+v, %v, %v; want %+v", got, ok, err, first)
	}
	if _, ok, err := other.First(ctx, other.DB, "claimed", "b"); err != nil || ok {
		t.Errorf("First of an id without effect = %v, %v", ok, err)
	}
	for composition, want := range map[string]map[string]int{"atomic": {"a": 2, "b": 1},
		"claimed": {"a": 1}, "naive": {}} {
		if got, err := other.Count(ctx, composition); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("Count(%s) = %v, %v; want %v", composition, got, err, want)
		}
	}
	marks, err := l.Marks("ns")
	if err != nil {
		t.Fatal(err)
	}
	if err := marks.Migrate(ctx, l.DB); err != nil {
		t.Fatal(err)
	}
}
