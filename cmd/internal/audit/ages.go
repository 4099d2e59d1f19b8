package audit

import (
	"maps"
	"math"
	"slices"
	"time"
)

// ages counts durations in classes that are 5 % wide, by the number of the class.
type ages map[int]uint64

const classes = 20 // for each factor of e

// add counts an age, in milliseconds.
func (a ages) add(ms int64, weight uint64) {
	a[int(math.Ceil(classes*math.Log1p(float64(max(ms, 0)))))] += weight
}

// upper is the longest duration of a class.
func upper(class int) time.Duration {
	return span(int64(math.Ceil(math.Expm1(float64(class) / classes))))
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
	for _, class := range slices.Sorted(maps.Keys(a)) {
		if a[class] >= left {
			return upper(class)
		}
		left -= a[class]
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
	for class, count := range a {
		i, _ := slices.BinarySearch(steps, upper(class))
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
