package sqlname

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
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
		assert.False(t, Valid(a) && strings.ContainsAny(a, "\"`[]; \n\x00"),
			"%q can leave its quotes", a)
		if !Valid(a) || !Valid(b) || suffix == "" || len(suffix) > 40 || !Valid("x"+suffix) {
			return
		}
		fromA, fromB := Derive(a, suffix), Derive(b, suffix)
		assert.True(t, Valid(fromA), "%q and %q became %q", a, suffix, fromA)
		assert.True(t, strings.HasSuffix(fromA, suffix), "%q and %q became %q", a, suffix, fromA)
		assert.NotEqual(t, a, fromA, "%q and %q became %q", a, suffix, fromA)
		assert.Equal(t, a == b, fromA == fromB, "%q and %q with %q became %q and %q", a, b, suffix,
			fromA, fromB)
	})
}
