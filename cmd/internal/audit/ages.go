package audit

import (
	"maps"
	"math"
	"slices"
	"time"
)

// ages counts durations in classes that are 5 % wide. Class n has the key 2n. If one of the steps
// is within the class, the durations up to that step have the key 2n-1, so that a bar has no
// duration that another bar should have.
type ages map[int]uint64

const classes = 20 // for each factor of e

// add counts an age, in milliseconds.
func (a ages) add(ms int64, weight uint64) {
	ms = max(ms, 0)
	key := 2 * int(math.Ceil(classes*math.Log1p(float64(ms))))
	if step := stepIn(key); step > 0 && span(ms) <= step {
		key--
	}
	a[key] += weight
}

// upper is the longest duration with this key.
func upper(key int) time.Duration {
	if key%2 != 0 {
		return stepIn(key + 1)
	}
	return span(int64(math.Ceil(math.Expm1(float64(key/2) / classes))))
}

// stepIn returns the step within the class of an even key, or 0 if it has none.
func stepIn(key int) time.Duration {
	i, _ := slices.BinarySearch(steps, upper(key-2)+1)
	if i == len(steps) || steps[i] >= upper(key) {
		return 0
	}
	return steps[i]
}

func (a ages) total() (n uint64) {
	for _, count := range a {
		n += count
	}
	return n
}

// within returns the age that this share of all ages does not exceed, or 0 if there are no ages.
func (a ages) within(share float64) time.Duration {
	left := uint64(math.Ceil(share * float64(a.total())))
	for _, key := range slices.Sorted(maps.Keys(a)) {
		if a[key] >= left {
			return upper(key)
		}
		left -= a[key]
	}
	return 0
}

// steps are round durations that people use.
var steps = []time.Duration{time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, time.Hour,
	6 * time.Hour, day, 3 * day, 7 * day, 14 * day, 30 * day}

const day = 24 * time.Hour

// Bar counts the duplicates that came within WithinMS, but later than the time of the bar before.
type Bar struct {
	WithinMS int64  `json:"within_ms"` // 0: any time
	Count    uint64 `json:"count"`
}

// bars counts ages by the steps, up to the last step that has any.
func (a ages) bars() []Bar {
	counts := make([]uint64, len(steps)+1)
	last := -1
	for key, count := range a {
		i, _ := slices.BinarySearch(steps, upper(key))
		counts[i] += count
		last = max(last, i)
	}
	var all []Bar
	for i := range last + 1 {
		b := Bar{Count: counts[i]}
		if i < len(steps) {
			b.WithinMS = steps[i].Milliseconds()
		}
		all = append(all, b)
	}
	return all
}

// windowFor returns the shortest step of at least twice the age, because the next duplicate may
// come later than all earlier ones.
func windowFor(age time.Duration) time.Duration {
	i, _ := slices.BinarySearch(steps, 2*age)
	if i == len(steps) {
		return (2*age + day - 1).Truncate(day)
	}
	return max(steps[i], time.Minute)
}
