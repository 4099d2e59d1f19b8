package http_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
)

// reader is a Runner that runs nothing and notes the key.
type reader struct{ key string }

func (r *reader) Run(_ context.Context, key string, _ httpadapter.Effect,
	_ ...dedup.Option) (dedup.Result[[]byte], error) {
	r.key = key
	return dedup.Result[[]byte]{Outcome: dedup.Duplicate}, nil
}
func (*reader) Window() time.Duration { return 0 }
func (*reader) ResultLimit() int      { return 1 << 20 }

// newReader returns a function that reads the key in the lines of a field, as a strict middleware
// does.
func newReader(t *testing.T) func(lines ...string) (key string, ok bool) {
	t.Helper()
	run := &reader{}
	m, err := httpadapter.New(run, httpadapter.Unscoped, httpadapter.Config{Strict: true})
	require.NoError(t, err)
	h := m.Handler(http.NotFoundHandler())
	return func(lines ...string) (string, bool) {
		run.key = ""
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header["Idempotency-Key"] = lines
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		taken := w.Code == http.StatusGone
		assert.Equal(t, run.key != "", taken, "%q: %d, key %q", lines, w.Code, run.key)
		assert.False(t, !taken && w.Code != http.StatusBadRequest, "%q: %d, key %q", lines, w.Code,
			run.key)
		return run.key, run.key != ""
	}
}

// other returns the key that an independent parser reads in the lines, by the rules for a key: a
// String of 1 to 255 bytes. It reads RFC 9651, which has two more kinds of parameters. newer says
// that the lines may have one of these.
func other(lines ...string) (key string, ok, newer bool, err error) {
	trimmed := make([]string, len(lines))
	for i, line := range lines {
		trimmed[i] = strings.Trim(line, " \t") // RFC 9110, 5.5: not a part of the field's value
	}
	item, err := httpsfv.UnmarshalItem(trimmed)
	if err != nil {
		return "", false, false, err
	}
	key, ok = item.Value.(string)
	all := strings.Join(lines, "")
	return key, ok && len(key) >= 1 && len(key) <= 255, strings.Contains(all, "=@") ||
		strings.Contains(all, `=%"`), nil
}

// vectors are cases of RFC 8941, in the groups of the working group's tests. With none in want the
// lines are refused.
var vectors = []struct {
	name  string
	lines []string
	want  string
}{
	{"basic string", []string{`"foo bar"`}, "foo bar"},
	{"long string", []string{`"` + strings.Repeat("foo ", 63) + `"`}, strings.Repeat("foo ", 63)},
	{"white space alone", []string{`"   "`}, "   "},
	{"quotes and backslashes", []string{`"foo \"bar\" \\ baz"`}, `foo "bar" \ baz`},
	{"an escape at either end", []string{`"\"\\"`}, `"\`},
	{"space around", []string{`  "a"  `}, "a"},
	{"tab around", []string{"\t\"a\"\t"}, "a"},

	{"empty string", []string{`""`}, ""}, // a String, but no key
	{"empty item", []string{``}, ""},
	{"outside of ASCII", []string{"\"f\u00fc\u00fc\""}, ""},
	{"a byte that is no UTF-8", []string{"\"\xff\""}, ""},
	{"tab within", []string{"\"\t\""}, ""},
	{"line feed within", []string{"\" \n \""}, ""},
	{"single quotes", []string{`'foo'`}, ""},
	{"no end", []string{`"foo`}, ""},
	{"no beginning", []string{`foo"`}, ""},
	{"a quote alone", []string{`"`}, ""},
	{"escape of a letter", []string{`"foo \,"`}, ""},
	{"ends with an escaped quote", []string{`"foo \"`}, ""},
	{"ends in an escape", []string{`"foo \`}, ""},
	{"two strings", []string{`"a" "b"`}, ""},
	{"two strings, one in a line", []string{`"a"`, `"b"`}, ""},
	{"a string and an empty line", []string{`"a"`, ``}, ""},
	{"a list of one, and a comma", []string{`"a",`}, ""},

	{"integer", []string{`42`}, ""},
	{"decimal", []string{`4.2`}, ""},
	{"token", []string{`a_b-c3/*`}, ""},
	{"boolean", []string{`?1`}, ""},
	{"bytes", []string{`:aGVsbG8=:`}, ""},
	{"inner list", []string{`("a")`}, ""},
	{"dictionary", []string{`a="b"`}, ""},

	{"a parameter of each kind", []string{`"k";a;b=1;c=-1.5;d="x;\"";e=?0;f=:YQ==:;g=tok/x:y;h=*t`},
		"k"},
	{"spaces before parameters", []string{`"k";  a;   b=1`}, "k"},
	{"a parameter twice", []string{`"k";a=1;a=2`}, "k"},
	{"names of parameters", []string{`"k";*a;a_-.*9`}, "k"},
	{"largest numbers", []string{`"k";a=999999999999999;b=-999999999999999;c=999999999999.999`},
		"k"},
	{"empty bytes", []string{`"k";a=::`}, "k"},

	{"space before a semicolon", []string{`"k" ;a`}, ""},
	{"tab after a semicolon", []string{"\"k\";\ta"}, ""},
	{"space before a value", []string{`"k";a= 1`}, ""},
	{"a parameter without a name", []string{`"k";`}, ""},
	{"a parameter without a value", []string{`"k";a=`}, ""},
	{"a parameter in capitals", []string{`"k";A=1`}, ""},
	{"a parameter that begins with a digit", []string{`"k";1a`}, ""},
	{"a number of 16 digits", []string{`"k";a=1000000000000000`}, ""},
	{"a decimal of 13 digits", []string{`"k";a=1000000000000.1`}, ""},
	{"a decimal of four places", []string{`"k";a=0.1234`}, ""},
	{"a decimal without places", []string{`"k";a=1.`}, ""},
	{"a decimal without digits", []string{`"k";a=.1`}, ""},
	{"a sign alone", []string{`"k";a=-`}, ""},
	{"two signs", []string{`"k";a=--1`}, ""},
	{"a boolean of another digit", []string{`"k";a=?2`}, ""},
	{"half of a boolean", []string{`"k";a=?`}, ""},
	{"bytes without an end", []string{`"k";a=:YQ==`}, ""},
	{"bytes of another alphabet", []string{`"k";a=:_-==:`}, ""},
	{"an inner list as a value", []string{`"k";a=(1)`}, ""},
}

// TestFieldVectors reads every case with the middleware and with the other parser, and every byte
// of ASCII, as it is and escaped.
func TestFieldVectors(t *testing.T) {
	read := newReader(t)
	for _, v := range vectors {
		key, ok := read(v.lines...)
		assert.Equal(t, v.want, key, "%s: %q is %q", v.name, v.lines, key)
		assert.Equal(t, v.want != "", ok, "%s: %q is %q", v.name, v.lines, key)
		key, ok, newer, err := other(v.lines...)
		assert.Equal(t, v.want != "", ok, "%s: the other parser reads %q, %v: the vector is wrong",
			v.name, key, err)
		assert.False(t, ok && key != v.want,
			"%s: the other parser reads %q, %v, %v: the vector is wrong", v.name, key, ok, err)
		assert.False(t, newer, "%s: the other parser reads %q, %v, %v: the vector is wrong", v.name,
			key, ok, err)
	}
	// Lines are joined by commas, and so a String can be in two. A proxy may join them elsewhere.
	split := []string{`"a`, `b"`}
	key, ok, _, _ := other(split...)
	assert.True(t, ok, "the other parser joins %q to %q, %v", split, key, ok)
	assert.Equal(t, "a, b", key, "the other parser joins %q to %q, %v", split, key, ok)
	key, ok = read(split...)
	assert.False(t, ok, "a key in two lines is read as %q", key)
	for c := range 0x80 {
		for _, escape := range []string{"", `\`} {
			line := `" ` + escape + string(rune(c)) + ` "`
			key, ok := read(line)
			want, wantOK, _, _ := other(line)
			assert.Equal(t, wantOK, ok, "%q: %q, the other parser %q", line, key, want)
			assert.False(t, ok && key != want, "%q: %q, %v; the other parser %q, %v", line, key, ok,
				want, wantOK)
			printable := c >= ' ' && c <= '~'
			special := c == '"' || c == '\\'
			assert.Equal(t, printable && special == (escape != ""), ok, "%q: taken, allowed", line)
		}
	}
}

// TestFieldsAgainstAnotherParser makes fields of a fixed seed, most of them almost right. The two
// parsers disagree only where RFC 8941 allows it, or where we are stricter. RFC 8941 has no dates
// and no display strings, does not require that the bytes of an unused parameter are decoded, and
// joins lines.
func TestFieldsAgainstAnotherParser(t *testing.T) {
	const fields = 5_000
	read := newReader(t)
	g := generator{rand.New(rand.NewPCG(8941, 9651))}
	taken, refused, newerOnes, undecoded, joined := 0, 0, 0, 0, 0
	for range fields {
		lines := g.lines()
		key, ok := read(lines...)
		want, wantOK, newer, err := other(lines...)
		var corrupt base64.CorruptInputError
		switch {
		case ok == wantOK && (!ok || key == want):
			if ok {
				taken++
			} else {
				refused++
			}
		case wantOK && !ok && len(lines) > 1:
			joined++
		case wantOK && !ok && newer:
			newerOnes++
		case ok && errors.As(err, &corrupt):
			undecoded++
		default:
			t.Errorf("%q is %q, %v; the other parser says %q, %v, %v", lines, key, ok, want,
				wantOK, err)
		}
	}
	t.Logf("%d taken, %d refused, %d with parameters of RFC 9651, %d with bytes that are not decoded, %d in two lines", taken, refused, newerOnes, undecoded, joined)
	assert.GreaterOrEqual(t, min(taken, refused), fields/10,
		"the fields are too much alike: nothing is shown")
	assert.NotZero(t, newerOnes, "the fields are too much alike: nothing is shown")
	assert.NotZero(t, undecoded, "the fields are too much alike: nothing is shown")
}

// generator writes fields.
type generator struct{ *rand.Rand }

func (g generator) pick(of ...string) string { return of[g.IntN(len(of))] }

func (g generator) lines() []string {
	lines := []string{g.line()}
	if g.IntN(20) == 0 {
		lines = append(lines, g.line())
	}
	return lines
}

// line returns a valid item that is, more often than not, changed a little.
func (g generator) line() string {
	line := g.value()
	if g.IntN(3) > 0 {
		line = g.quoted()
	}
	for g.IntN(2) == 0 {
		line += ";" + g.pick("", "", " ", "  ") + g.pick("a", "b", "*", "a_-.*9", "zz")
		if g.IntN(3) > 0 {
			line += "=" + g.value()
		}
	}
	for g.IntN(2) == 0 {
		at := g.IntN(len(line) + 1)
		end := min(len(line), at+g.IntN(3))
		line = line[:at] + g.pick("", "", `"`, `\`, ";", "=", ",", " ", "\t", "-", ".", "?",
			":", "@", `%"`, "(", "A", "0", "\x7f", "\u00fc", "\x00") + line[end:]
	}
	return g.pick("", "", " ", "\t") + line + g.pick("", "", " ", "\t ")
}

func (g generator) quoted() string {
	var b strings.Builder
	for range g.IntN(g.IntN(300) + 1) {
		b.WriteString(g.pick("a", "Z", "0", " ", `\"`, `\\`, ";", ",", "'", "~", "!"))
	}
	return `"` + b.String() + `"`
}

func (g generator) value() string {
	return g.pick(
		g.quoted(), "tok/x:y", "*", "?0", "?1", fmt.Sprint(g.Int64N(2e15)-1e15),
		fmt.Sprintf("%d.%d", g.Int64N(2e12), g.IntN(2000)),
		":"+base64.StdEncoding.EncodeToString(slices.Repeat([]byte("x"), g.IntN(5)))+":",
		":YQ:", "@1659578233", `%"f%c3%bc"`,
	)
}
