package ledger

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func open(t *testing.T, file string) *Ledger {
	t.Helper()
	l, err := Open(file)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, l.Close())
	})
	return l
}

// TestLedger: the ledger takes an id twice, returns the first, and keeps compositions apart; a
// second process sees the rows of the first.
func TestLedger(t *testing.T) {
	ctx, at := t.Context(), filepath.Join(t.TempDir(), "ledger.db")
	l := open(t, at)
	require.NoError(t, l.Create(ctx))
	first := Row{ID: "a", Worker: "w1", Partition: 3, Offset: 1 << 40, Generation: 7}
	for _, r := range []Row{first, {ID: "a", Worker: "w2"}, {ID: "b", Worker: "w2"}} {
		require.NoError(t, Append(ctx, l.DB, "atomic", r))
	}
	require.NoError(t, Append(ctx, l.DB, "claimed", Row{ID: "a", Worker: "w1"}))
	other := open(t, at)
	got, ok, err := First(ctx, other.DB, "atomic", "a")
	require.NoError(t, err, "First = %+v, %v, %v; want %+v", got, ok, err, first)
	assert.True(t, ok, "First = %+v, %v, %v; want %+v", got, ok, err, first)
	assert.Equal(t, first, got, "First = %+v, %v, %v; want %+v", got, ok, err, first)
	_, ok, err = First(ctx, other.DB, "claimed", "b")
	require.NoError(t, err, "First of an id without effect = %v, %v", ok, err)
	assert.False(t, ok, "First of an id without effect = %v, %v", ok, err)
	for composition, want := range map[string]map[string]int{"atomic": {"a": 2, "b": 1},
		"claimed": {"a": 1}, "naive": {}} {
		got, err := other.Count(ctx, composition)
		require.NoError(t, err, "Count(%s) = %v, %v; want %v", composition, got, err, want)
		assert.Equal(t, want, got, "Count(%s) = %v, %v; want %v", composition, got, err, want)
	}
	marks, err := Records("ns")
	require.NoError(t, err)
	require.NoError(t, marks.Migrate(ctx, l.DB))
}
