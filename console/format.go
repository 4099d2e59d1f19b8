package console

import (
	"fmt"
	"strings"
	"time"
)

// instant is the format of points in time.
const instant = "2006-01-02 15:04:05 UTC"

const day = 24 * time.Hour

// short formats a duration for people, with one or two units.
func short(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + short(-d)
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return without(d.Round(time.Second).String(), "0s")
	case d < 2*day:
		return without(strings.TrimSuffix(d.Round(time.Minute).String(), "0s"), "0m")
	}
	d = d.Round(time.Hour)
	if hours := d % day / time.Hour; hours > 0 {
		return fmt.Sprintf("%dd%dh", d/day, hours)
	}
	return fmt.Sprintf("%dd", d/day)
}

// without drops a unit that is zero, so 5m0s becomes 5m, but 10s stays.
func without(s, zero string) string {
	if i := len(s) - len(zero); i > 0 && s[i:] == zero && (s[i-1] < '0' || s[i-1] > '9') {
		return s[:i]
	}
	return s
}

// fenceTicks is the number of fences per millisecond. The fence of a claim is the store's time when
// the claim was won, or a little more. All stores of this module count so.
const fenceTicks = 1024

// claimedAt returns when the claim with this fence was won, by the store's clock. It returns false
// when the fence is zero, or was not made from a clock.
func claimedAt(fence uint64) (time.Time, bool) {
	at := time.UnixMilli(int64(fence / fenceTicks)) // a quotient by 1024 fits
	return at, at.Year() >= 2000 && time.Until(at) < day
}

// ago returns how long ago a point in time was, by this machine's clock.
func ago(at time.Time) string { return short(max(time.Since(at), 0)) + " ago" }
