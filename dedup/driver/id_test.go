package driver

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The digest is what stores keep: changing it forgets everything. The values were
// computed by another program from the doc comment: version, then length and text of
// each part.
func TestIDNeverChanges(t *testing.T) {
	for _, row := range []struct{ namespace, scope, key, want string }{
		{"payments", "", "evt_1", "74e71383b4e9021245a33d88185906d0"},
		{"payments", "tenant-a", "evt_1", "0ade0dff75dee2324e9eb49eb7052ac7"},
	} {
		id, err := NewID(row.namespace, row.scope, row.key)
		require.NoError(t, err)
		got := hex.EncodeToString(id[:])
		assert.Equal(t, row.want, got, "NewID(%q, %q, %q)", row.namespace, row.scope, row.key)
	}
}

func TestIDSeparatesItsParts(t *testing.T) {
	seen := map[ID][3]string{}
	for _, parts := range [][3]string{
		{"a", "", "bc"}, {"ab", "", "c"}, {"a", "b", "c"}, {"a", "c", "b"}, {"b", "a", "c"},
		{"a", "bc", "d"}, {"a", "b", "cd"}, {"ab", "c", "d"}, {"a", "", "b"}, {"a", "b", "b"},
	} {
		id, err := NewID(parts[0], parts[1], parts[2])
		require.NoError(t, err)
		other, ok := seen[id]
		assert.False(t, ok, "%q and %q share an ID", parts, other)
		seen[id] = parts
	}
}

// FuzzNewID: two keys share an ID only when namespace, scope and key are all equal, and
// what is accepted is within the documented bounds.
func FuzzNewID(f *testing.F) {
	f.Add("a", "", "bc", "ab", "", "c")
	f.Add("a", "b", "c", "a", "bc", "")
	f.Add("ns", "s", "k", "ns", "s", "k")
	f.Add("ns", "\x00", "k", "ns", "", "k")
	f.Add("ns", "", "\xff", "ns", "", "\xfe")
	f.Add("n\x00", "", "k", "n", "", "k")
	f.Fuzz(func(t *testing.T, ns1, scope1, key1, ns2, scope2, key2 string) {
		id1, err1 := NewID(ns1, scope1, key1)
		id2, err2 := NewID(ns2, scope2, key2)
		if err1 != nil || err2 != nil {
			return
		}
		require.NotZero(t, len(key1), "accepted %q, %q, %q", ns1, scope1, key1)
		require.LessOrEqual(t, len(key1), 255, "accepted %q, %q, %q", ns1, scope1, key1)
		require.LessOrEqual(t, len(scope1), 255, "accepted %q, %q, %q", ns1, scope1, key1)
		require.NotZero(t, len(ns1), "accepted %q, %q, %q", ns1, scope1, key1)
		require.LessOrEqual(t, len(ns1), 64, "accepted %q, %q, %q", ns1, scope1, key1)
		same := ns1 == ns2 && scope1 == scope2 && key1 == key2
		require.Equal(t, id1 == id2, same, "(%q, %q, %q) and (%q, %q, %q)", ns1, scope1, key1,
			ns2, scope2, key2)
	})
}

func TestFingerprintVersions(t *testing.T) {
	a, b := FingerprintOf([]byte("a")), FingerprintOf([]byte("b"))
	require.EqualValues(t, 1, a[0])
	require.NotEqual(t, b, a)
	require.Equal(t, FingerprintOf([]byte("a")), a)
	assert.NotEqual(t, FingerprintOf([]byte{}), FingerprintOf(nil),
		"a tombstone and an empty message have one fingerprint")
	newer := b
	newer[0] = 2
	for name, row := range map[string]struct {
		a, b Fingerprint
		want bool
	}{
		"equal":           {a, a, false},
		"different":       {a, b, true},
		"one without":     {a, Fingerprint{}, false},
		"the other":       {Fingerprint{}, a, false},
		"both without":    {Fingerprint{}, Fingerprint{}, false},
		"another version": {a, newer, false}, // an upgrade turns no redelivery into a mismatch
	} {
		assert.Equal(t, row.want, row.a.Conflicts(row.b), name)
		assert.Equal(t, row.want, row.b.Conflicts(row.a), name)
	}
}
