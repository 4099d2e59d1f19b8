package sqlname

import (
	"strings"
	"testing"
)

func TestValid(t *testing.T) {
	for name, want := range map[string]bool{
		"marks": true, "_m": true, "M9_x": true, strings.Repeat("a", Max): true,
		"": false, "9marks": false, "a b": false, `a"b`: false, "a`b": false, "a;b": false,
		"a.b":   false,
		"märks": false, "marks\n": false, "marks\x00": false, strings.Repeat("a", Max+1): false,
	} {
		if got := Valid(name); got != want {
			t.Errorf("Valid(%q) = %t", name, got)
		}
	}
}

func TestQuote(t *testing.T) {
	if got := Quote("marks", '"') + Quote("marks", '`') +
		Quote("marks", '['); got != "\"marks\"`marks`[marks]" {
		t.Errorf("got %s", got)
	}
}

func TestDerive(t *testing.T) {
	const suffix = "_created_at"
	long := strings.Repeat("a", Max)
	if got := Derive("marks", suffix); got != "marks_created_at" {
		t.Errorf("got %s", got)
	}
	seen := map[string]bool{}
	for _, name := range []string{long, long[:Max-1] + "b", long[:Max-len(suffix)+1]} {
		got := Derive(name, suffix)
		if !Valid(got) || !strings.HasSuffix(got, suffix) || got == name || seen[got] {
			t.Errorf("Derive(%q) = %q", name, got)
		}
		seen[got] = true
	}
}
