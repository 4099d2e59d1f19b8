package retry

import (
	"math"
	"net/http"
	"strings"
	"time"
)

// RetryAfter returns how long a response asks to be left alone: its Retry-After, in seconds or as a
// date in any of HTTP's three forms (RFC 9110, 10.2.3 and 5.6.7). It returns false if the field is
// missing or has anything else in it, such as a negative or fractional number. A date in the past
// gives 0, and a number that a duration cannot hold gives the longest duration.
//
// A date is compared with the response's own Date field, because the clocks of two machines differ;
// now is used if that one is missing or unreadable.
func RetryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	value := strings.Trim(h.Get("Retry-After"), " \t")
	if value == "" {
		return 0, false
	}
	if strings.Trim(value, "0123456789") == "" {
		return seconds(value), true
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	if sent, err := http.ParseTime(strings.Trim(h.Get("Date"), " \t")); err == nil {
		now = sent
	}
	return max(0, at.Sub(now)), true
}

// seconds parses digits. A number that a duration cannot hold becomes the longest duration.
func seconds(digits string) time.Duration {
	const most = math.MaxInt64 / int64(time.Second)
	var n int64
	for _, c := range []byte(digits) {
		n = n*10 + int64(c-'0')
		if n > most {
			return math.MaxInt64
		}
	}
	return time.Duration(n) * time.Second
}
