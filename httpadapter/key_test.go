package httpadapter

import (
	"strings"
	"testing"
)

func TestParseKey(t *testing.T) {
	long := strings.Repeat("k", 255)
	for _, row := range []struct {
		name, line, want string // want "": malformed
		strict           string // with Strict, likewise
	}{
		{"quoted", `"8e03978e-40d5-43e8-bc93-6894a57f9324"`, "8e03978e-40d5-43e8-bc93-6894a57f9324", "8e03978e-40d5-43e8-bc93-6894a57f9324"},
		{"bare", `8e03978e-40d5`, "8e03978e-40d5", ""},
		{"spaces around", " \"k\" \t", "k", "k"},
		{"space within", `"a b"`, "a b", "a b"},
		{"comma within", `"a,b;c"`, "a,b;c", "a,b;c"},
		{"escapes", `"a\"b\\c"`, `a"b\c`, `a"b\c`},
		{"bare token with slash", `a/b:c*!`, "a/b:c*!", ""},
		{"parameters", `"k";a;b=1;c="x;\"";d=?0;e=:YQ==:;f=tok/x:y;*g=-1.5;h-_.*=999999999999999`, "k", "k"},
		{"parameter after spaces", `"k";  a`, "k", "k"},
		{"255 bytes", `"` + long + `"`, long, long},
		{"255 bytes bare", long, long, ""},

		{"empty", "", "", ""},
		{"blank", "  ", "", ""},
		{"empty string", `""`, "", ""},
		{"256 bytes", `"` + long + `k"`, "", ""},
		{"256 bytes bare", long + "k", "", ""},
		{"no end", `"k`, "", ""},
		{"text after", `"k"x`, "", ""},
		{"space before parameter", `"k" ;a`, "", ""},
		{"list", `"a", "b"`, "", ""},
		{"bare list", `a,b`, "", ""},
		{"bare with parameter", `a;b=1`, "", ""},
		{"bare with space", `a b`, "", ""},
		{"bare with quote", `a"b`, "", ""},
		{"bare with backslash", `a\b`, "", ""},
		{"bare non-ASCII", "caf\u00e9", "", ""},
		{"quoted non-ASCII", "\"caf\u00e9\"", "", ""},
		{"control", "\"a\tb\"", "", ""},
		{"DEL", "\"a\x7fb\"", "", ""},
		{"bad escape", `"a\b"`, "", ""},
		{"escape at end", `"a\`, "", ""},
		{"parameter without name", `"k";`, "", ""},
		{"parameter in capitals", `"k";A`, "", ""},
		{"parameter without value", `"k";a=`, "", ""},
		{"parameter with bad value", `"k";a=%`, "", ""},
		{"bad boolean", `"k";a=?2`, "", ""},
		{"half a boolean", `"k";a=?`, "", ""},
		{"bytes without end", `"k";a=:YQ`, "", ""},
		{"bytes not in base64", `"k";a=:Y_:`, "", ""},
		{"number too long", `"k";a=1000000000000000`, "", ""},
		{"decimal too long", `"k";a=1000000000000.0`, "", ""},
		{"decimal without digits", `"k";a=1.`, "", ""},
		{"decimal with four digits", `"k";a=1.2345`, "", ""},
		{"sign alone", `"k";a=-`, "", ""},
		{"string without end", `"k";a="`, "", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			for strict, want := range map[bool]string{false: row.want, true: row.strict} {
				got, reason := parseKey([]string{row.line}, strict)
				if got != want || (reason == "") != (want != "") {
					t.Errorf("strict %v: got %q, %q; want %q", strict, got, reason, want)
				}
			}
		})
	}
	if _, reason := parseKey([]string{`"a"`, `"a"`}, false); reason == "" {
		t.Error("two lines were taken")
	}
}

func FuzzParseKey(f *testing.F) {
	for _, s := range []string{`"k"`, `k`, `"a\"b\\";a=1.5;b`, `"k";a=:YQ==:`, `"`, `"\`, `"k";a=?`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		key, reason := parseKey([]string{line}, false)
		if reason != "" {
			if key != "" {
				t.Fatalf("%q: %q beside %q", line, key, reason)
			}
			return
		}
		if key == "" || len(key) > 255 || strings.Trim(key, tchars+` "(),/:;<=>?@[\]{}`) != "" {
			t.Fatalf("%q: not printable ASCII of 1-255 bytes: %q", line, key)
		}
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
		if again, reason := parseKey([]string{quoted}, true); again != key || reason != "" {
			t.Fatalf("%q became %q, %s", key, again, reason)
		}
	})
}
