package retry_test

import (
	"math"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/retry"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestRetryAfter(t *testing.T) {
	const longest = time.Duration(math.MaxInt64)
	for _, row := range []struct {
		value, date string
		want        time.Duration
		ok          bool
	}{
		{"", "", 0, false},
		{"120", "", 2 * time.Minute, true}, // RFC 9110, 10.2.3, the second example
		{"0", "", 0, true},
		{"007", "", 7 * time.Second, true},
		{" 5\t", "", 5 * time.Second, true},
		{"9223372036", "", 9223372036 * time.Second, true},
		{"9223372037", "", longest, true},
		{"99999999999999999999999999", "", longest, true},
		{"-1", "", 0, false},
		{"+1", "", 0, false},
		{"1.5", "", 0, false},
		{"1, 2", "", 0, false},
		{"0x10", "", 0, false},
		{"soon", "", 0, false},
		{"٣", "", 0, false}, // digits are ASCII
		{"Sun, 01 Mar 2026 12:00:30 GMT", "", 30 * time.Second, true},
		{"Sunday, 01-Mar-26 12:00:30 GMT", "", 30 * time.Second, true}, // RFC 850
		{"Sun Mar  1 12:00:30 2026", "", 30 * time.Second, true},       // asctime
		{"Sun, 01 Mar 2026 11:59:59 GMT", "", 0, true},
		{"Fri, 31 Dec 1999 23:59:59 GMT", "", 0, true}, // the RFC's first example
		{"Fri, 31 Dec 9999 23:59:59 GMT", "", longest, true},
		{"Sun, 01 Mar 2026 12:00:30 PST", "", 0, false},
		// The server's clock is an hour ahead: only the distance on that clock counts.
		{"Sun, 01 Mar 2026 13:00:30 GMT", "Sun, 01 Mar 2026 13:00:00 GMT", 30 * time.Second, true},
		{"Sun, 01 Mar 2026 12:00:30 GMT", "yesterday", 30 * time.Second, true},
	} {
		h := http.Header{"Retry-After": {row.value}}
		if row.date != "" {
			h.Set("Date", row.date)
		}
		got, ok := retry.RetryAfter(h, noon)
		assert.Equal(t, row.want, got, "%q (Date %q)", row.value, row.date)
		assert.Equal(t, row.ok, ok, "%q (Date %q)", row.value, row.date)
	}
	_, ok := retry.RetryAfter(nil, noon)
	assert.False(t, ok, "no header has a value")
}

// FuzzRetryAfter checks the parser against facts that hold without it: a result is never negative;
// a small whole number is its seconds; the parser accepts only digits or a date.
func FuzzRetryAfter(f *testing.F) {
	for _, s := range []string{"", "120", "-1", "1e3", "99999999999999999999",
		"Sun, 01 Mar 2026 12:00:30 GMT", "Sun Mar  1 12:00:30 2026",
		"Sunday, 01-Mar-26 12:00:30 GMT", " 5 "} {
		f.Add(s, "Sun, 01 Mar 2026 12:00:00 GMT")
		f.Add(s, "")
	}
	f.Fuzz(func(t *testing.T, value, date string) {
		h := http.Header{"Retry-After": {value}, "Date": {date}}
		d, ok := retry.RetryAfter(h, noon)
		require.GreaterOrEqual(t, d, time.Duration(0), value)
		require.False(t, !ok && d != 0, "%q: %v, %v", value, d, ok)
		n, err := strconv.ParseUint(value, 10, 32)
		require.False(t, err == nil && (!ok || d != time.Duration(n)*time.Second),
			"%q: %v, %v; want %d s", value, d, ok, n)
		h["Retry-After"] = []string{" " + value + "\t"}
		again, ok2 := retry.RetryAfter(h, noon)
		require.Equal(t, ok2, ok, "%q: blanks around it change", value)
		require.Equal(t, again, d, "%q: blanks around it change", value)
	})
}
