package encrypted

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup/driver"
)

func newDigester(t *testing.T, version int, key []byte) *Digester {
	t.Helper()
	d, err := NewDigester("Config.FingerprintKey", version, key)
	require.NoError(t, err)
	return d
}

func parts(s ...string) [][]byte {
	var out [][]byte
	for _, p := range s {
		out = append(out, []byte(p))
	}
	return out
}

func TestFingerprintsTellPartsApart(t *testing.T) {
	seen := map[driver.Fingerprint]string{}
	for _, d := range []*Digester{newDigester(t, 0, nil), newDigester(t, 1, key(1)),
		newDigester(t, 2, key(1)), newDigester(t, 1, key(2))} {
		for _, p := range [][]string{{}, {""}, {"", ""}, {"ab", "c"}, {"a", "bc"}, {"abc"}} {
			f := d.Sum(parts(p...)...)
			assert.Equal(t, d.Sum(parts(p...)...), f, "%q: not the same twice", p)
			other, ok := seen[f]
			assert.False(t, ok, "%q has the fingerprint of %s", p, other)
			seen[f] = p0(p)
		}
	}
}

func p0(p []string) string { return string(rune('0'+len(p))) + " parts" }

// Another version of the key makes old records incomparable, and not mismatches.
func TestFingerprintVersions(t *testing.T) {
	plain, one, two := newDigester(t, 0, nil), newDigester(t, 1, key(1)), newDigester(t, 2, key(2))
	p := parts("payload")
	for _, row := range []struct {
		a, b driver.Fingerprint
		want bool
	}{
		{plain.Sum(p...), one.Sum(p...), false},
		{one.Sum(p...), two.Sum(p...), false},
		{one.Sum(p...), newDigester(t, 1, key(2)).Sum(p...), true},
		{one.Sum(p...), one.Sum(parts("other")...), true},
		{plain.Sum(p...), plain.Sum(parts("other")...), true},
		{plain.Sum(p...), plain.Sum(p...), false},
	} {
		assert.Equal(t, row.want, row.a.Conflicts(row.b), "%x and %x conflict", row.a, row.b)
	}
	assert.EqualValues(t, 1, plain.Sum()[0], "version without a key")
	assert.EqualValues(t, 255, newDigester(t, 127, key(1)).Sum()[0], "version with the last key")
}

// The list of what a fingerprint is made of is part of its version. Without a key the version is at
// most 127, and with a key at least 129. Two versions of a key under one list differ.
func TestFingerprintLists(t *testing.T) {
	version := func(v int, key []byte, list ...string) byte {
		d, err := NewDigester("Config.FingerprintKey", v, key, list...)
		require.NoError(t, err)
		return d.Sum()[0]
	}
	for _, list := range [][]string{{"A"}, {"B"}, {"A", "B"}, {"AB"}, {""}} {
		v := version(0, nil, list...)
		assert.GreaterOrEqual(t, v, byte(2), "%q: version without a key", list)
		assert.LessOrEqual(t, v, byte(127), "%q: version without a key", list)
		seen := map[byte]bool{}
		for v := 1; v <= 127; v++ {
			got := version(v, key(1), list...)
			assert.GreaterOrEqual(t, got, byte(129), "%q: version %d of a key is %d", list, v, got)
			assert.False(t, seen[got], "%q: version %d of a key is %d", list, v, got)
			assert.NotEqual(t, version(v, key(1)), got, "%q: version %d of a key is %d", list, v,
				got)
			seen[got] = true
		}
	}
	assert.NotEqual(t, version(0, nil, "AB"), version(0, nil, "A", "B"),
		"one list runs into another")
}

func TestBadFingerprintKeysAreRefused(t *testing.T) {
	for _, row := range []struct {
		version int
		key     []byte
	}{{0, key(1)}, {128, key(1)}, {-1, key(1)}, {1, nil}, {1, key(1)[1:]}} {
		_, err := NewDigester("Config.FingerprintKey", row.version, row.key)
		wantInputError(t, err)
	}
}

func TestScopesTellPartsApart(t *testing.T) {
	seen := map[string][]string{}
	for _, p := range [][]string{{}, {""}, {"", ""}, {"ab", "c"}, {"a", "bc"},
		{"abc"}, {"abc", ""}} {
		s := ScopeOf(p...)
		other, ok := seen[s]
		assert.False(t, ok, "%q has the scope %s, as %q", p, s, other)
		assert.Len(t, s, 43, "%q has the scope %s, as %q", p, s, other)
		seen[s] = p
	}
}
