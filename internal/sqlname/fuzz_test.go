package sqlname

import (
	"strings"
	"testing"
)

// FuzzDerive: a name that is derived from a valid one is valid, ends in the suffix and is another
// name; two names and two suffixes never become one. Nothing that is valid can leave its quotes.
func FuzzDerive(f *testing.F) {
	long := strings.Repeat("a", Max)
	f.Add("marks", "marks2", "_created_at")
	f.Add(long, long[:Max-1]+"b", "_i")
	f.Add(long[:Max-1], long, "_created_at")
	f.Add("a\n", "a", "_x")
	f.Fuzz(func(t *testing.T, a, b, suffix string) {
		if Valid(a) && strings.ContainsAny(a, "\"`[]; \n\x00") {
			t.Errorf("%q can leave its quotes", a)
		}
		if !Valid(a) || !Valid(b) || suffix == "" || len(suffix) > 40 || !Valid("x"+suffix) {
			return
		}
		fromA, fromB := Derive(a, suffix), Derive(b, suffix)
		if !Valid(fromA) || !strings.HasSuffix(fromA, suffix) || fromA == a {
			t.Errorf("%q and %q became %q", a, suffix, fromA)
		}
		if (fromA == fromB) != (a == b) {
			t.Errorf("%q and %q with %q became %q and %q", a, b, suffix, fromA, fromB)
		}
	})
}
