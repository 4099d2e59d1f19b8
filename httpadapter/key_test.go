package httpadapter

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseKey(t *testing.T) {
	long := strings.Repeat("k", 255)
	for _, row := range []struct {
		name, line, want string // want "": malformed
		strict           string // the same as want, with Strict
	}{
		{"quoted", `"8e03978e-40d5-43e8-bc93-6894a57f9324"`, "8e03978e-40d5-43e8-bc93-6894a57f9324",
			"8e03978e-40d5-43e8-bc93-6894a57f9324"},
		{"bare", `8e03978e-40d5`, "8e03978e-40d5", ""},
		{"spaces around", " \"k\" \t", "k", "k"},
		{"space within", `"a b"`, "a b", "a b"},
		{"comma within", `"a,b;c"`, "a,b;c", "a,b;c"},
		{"escapes", `"a\"b\\c"`, `a"b\c`, `a"b\c`},
		{"bare token with slash", `a/b:c*!`, "a/b:c*!", ""},
		{"parameters", `"k";a;b=1;c="x;\"";d=?0;e=:YQ==:;f=tok/x:y;*g=-1.5;h-_.*=999999999999999`,
			"k", "k"},
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
				assert.Equal(t, want, got, "strict %v", strict)
				assert.Equal(t, want != "", reason == "", "strict %v", strict)
			}
		})
	}
	_, reason := parseKey([]string{`"a"`, `"a"`}, false)
	assert.NotEmpty(t, reason, "two lines were taken")
}

func FuzzParseKey(f *testing.F) {
	for _, s := range []string{`"k"`, `k`, `"a\"b\\";a=1.5;b`, `"k";a=:YQ==:`, `"`, `"\`,
		`"k";a=?`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		key, reason := parseKey([]string{line}, false)
		if reason != "" {
			require.Empty(t, key, line)
			return
		}
		require.NotEmpty(t, key, "%q: not printable ASCII of 1-255 bytes", line)
		require.LessOrEqual(t, len(key), 255, "%q: not printable ASCII of 1-255 bytes", line)
		require.Empty(t, strings.Trim(key, tchars+` "(),/:;<=>?@[\]{}`),
			"%q: not printable ASCII of 1-255 bytes", line)
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
		again, reason := parseKey([]string{quoted}, true)
		require.Equal(t, key, again)
		require.Empty(t, reason)
	})
}
