package encrypted

import (
	"testing"

	"github.com/onceward/onceward/dedup/driver"
)

func newDigester(t *testing.T, version int, key []byte) *Digester {
	t.Helper()
	d, err := NewDigester("Config.FingerprintKey", version, key)
	if err != nil {
		t.Fatal(err)
	}
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
			if f != d.Sum(parts(p...)...) {
				t.Errorf("%q: not the same twice", p)
			}
			if other, ok := seen[f]; ok {
				t.Errorf("%q has the fingerprint of %s", p, other)
			}
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
		if got := row.a.Conflicts(row.b); got != row.want {
			t.Errorf("%x and %x conflict: %v", row.a, row.b, got)
		}
	}
	if v := plain.Sum()[0]; v != 1 {
		t.Errorf("version %d without a key", v)
	}
	if v := newDigester(t, 127, key(1)).Sum()[0]; v != 255 {
		t.Errorf("version %d with the last key", v)
	}
}

// A list of what a fingerprint is made of is part of its version, and takes none for another's:
// without a key it is 1-127, with one 129-255, and two versions under one list are two.
func TestFingerprintLists(t *testing.T) {
	version := func(v int, key []byte, list ...string) byte {
		d, err := NewDigester("Config.FingerprintKey", v, key, list...)
		if err != nil {
			t.Fatal(err)
		}
		return d.Sum()[0]
	}
	for _, list := range [][]string{{"A"}, {"B"}, {"A", "B"}, {"AB"}, {""}} {
		if v := version(0, nil, list...); v < 2 || v > 127 {
			t.Errorf("%q: version %d without a key", list, v)
		}
		seen := map[byte]bool{}
		for v := 1; v <= 127; v++ {
			got := version(v, key(1), list...)
			if got < 129 || seen[got] || got == version(v, key(1)) {
				t.Errorf("%q: version %d of a key is %d", list, v, got)
			}
			seen[got] = true
		}
	}
	if version(0, nil, "A", "B") == version(0, nil, "AB") {
		t.Error("one list runs into another")
	}
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
		if other, ok := seen[s]; ok || len(s) != 43 {
			t.Errorf("%q has the scope %s, as %q", p, s, other)
		}
		seen[s] = p
	}
}
