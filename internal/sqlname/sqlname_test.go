package sqlname

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestValid(t *testing.T) {
	for name, want := range map[string]bool{
		"marks": true, "_m": true, "M9_x": true, strings.Repeat("a", Max): true,
		"": false, "9marks": false, "a b": false, `a"b`: false, "a`b": false, "a;b": false,
		"a.b":   false,
		"märks": false, "marks\n": false, "marks\x00": false, strings.Repeat("a", Max+1): false,
	} {
		got := Valid(name)
		assert.Equal(t, want, got, "Valid(%q) = %t", name, got)
	}
}

func TestQuote(t *testing.T) {
	assert.Equal(t, "\"marks\"`marks`[marks]", Quote("marks", '"')+Quote("marks", '`')+
		Quote("marks", '['))
}

func TestDerive(t *testing.T) {
	const suffix = "_created_at"
	long := strings.Repeat("a", Max)
	assert.Equal(t, "marks_created_at", Derive("marks", suffix))
	seen := map[string]bool{}
	for _, name := range []string{long, long[:Max-1] + "b", long[:Max-len(suffix)+1]} {
		got := Derive(name, suffix)
		assert.True(t, Valid(got), "Derive(%q) = %q", name, got)
		assert.True(t, strings.HasSuffix(got, suffix), "Derive(%q) = %q", name, got)
		assert.NotEqual(t, name, got)
		assert.False(t, seen[got], "Derive(%q) = %q", name, got)
		seen[got] = true
	}
}
