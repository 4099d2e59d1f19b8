package web

import "time"

// Course is how a simulation went.
type Course struct {
	Name     string // of what was varied
	Load     []int  // requests that arrived, by [Slot]
	Served   []int  // of them, by the slot of their answer
	Wanted   []int  // requests that clients began, retries not counted
	Requests int    // all of Wanted
	Outage   Outage
}

// Sum adds what is in slots between two times.
func Sum(slots []int, from, to time.Duration) int {
	total := 0
	for i := int(from / Slot); i < int(to/Slot) && i < len(slots); i++ {
		total += slots[i]
	}
	return total
}

// PerSecond adds slots up to seconds; it has so many of them.
func PerSecond(slots []int, seconds int) []int {
	out := make([]int, seconds)
	for s := range out {
		out[s] = Sum(slots, time.Duration(s)*time.Second, time.Duration(s+1)*time.Second)
	}
	return out
}

// Peak is the largest load of one slot from a time on.
func (c Course) Peak(from time.Duration) int {
	peak := 0
	for _, n := range c.Load[min(int(from/Slot), len(c.Load)):] {
		peak = max(peak, n)
	}
	return peak
}

// Calls are all requests that arrived.
func (c Course) Calls() int { return total(c.Load) }

func total(slots []int) int { return Sum(slots, 0, time.Duration(len(slots))*Slot) }

// Done is when the last answer was given.
func (c Course) Done() time.Duration { return time.Duration(len(c.Served)) * Slot }

// course is how it went at a site.
func (s *Site) course(name string) Course {
	return Course{Name: name, Load: s.load, Served: s.served, Wanted: s.wanted, Requests: total(s.wanted), Outage: s.Outage}
}
