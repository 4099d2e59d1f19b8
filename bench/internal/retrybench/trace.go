package retrybench

import "time"

// Slot is the time over which load is counted.
const Slot = 100 * time.Millisecond

// Outage is the time, from the start of a simulation, in which a site is down.
type Outage struct{ From, To time.Duration }

// Herd is what the first simulation has: clients whose request was cut off by the same outage.
type Herd struct {
	Clients         int
	Down            time.Duration // from the start
	Capacity, Queue float64
	Base, Cap       time.Duration // of the backoff
}

// TheHerd is the one that is drawn: a thousand clients, and a server that would need ten seconds
// for them.
var TheHerd = Herd{Clients: 1000, Down: 20 * time.Second, Capacity: 100, Queue: 50,
	Base: 100 * time.Millisecond, Cap: 10 * time.Second}

// Names of the ways to wait, in the order in which they are drawn.
const (
	NoJitter     = "no jitter"
	FullJitter   = "full jitter"
	EqualJitter  = "equal jitter"
	Decorrelated = "decorrelated jitter"
)

// Waits are the ways to wait.
var Waits = []string{NoJitter, FullJitter, EqualJitter, Decorrelated}

// Traffic is what the second simulation has: clients that go on sending, whatever comes back,
// through an outage.
type Traffic struct {
	Clients   int
	Processes int           // that the clients share; each has a transport
	Every     time.Duration // mean time between two requests of a client
	Outage    Outage
	Length    time.Duration
	Capacity  float64
	Queue     float64
}

// TheTraffic is the one that is drawn: a thousand requests a second, half a minute of outage.
var TheTraffic = Traffic{
	Clients: 1000, Processes: 4, Every: time.Second,
	Outage: Outage{20 * time.Second, 50 * time.Second}, Length: 80 * time.Second,
	Capacity: 1500, Queue: 500,
}

// Names of what holds retries back.
const (
	OnlyAttempts = "three attempts"
	WithBudget   = "with a budget"
	WithBreaker  = "with a budget and a breaker"
)

// Guards are what holds retries back, in the order in which they are drawn.
var Guards = []string{OnlyAttempts, WithBudget, WithBreaker}

// Trace is how a simulation went.
type Trace struct {
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
func (c Trace) Peak(from time.Duration) int {
	peak := 0
	for _, n := range c.Load[min(int(from/Slot), len(c.Load)):] {
		peak = max(peak, n)
	}
	return peak
}

// Calls are all requests that arrived.
func (c Trace) Calls() int { return total(c.Load) }

func total(slots []int) int { return Sum(slots, 0, time.Duration(len(slots))*Slot) }

// Done is when the last answer was given.
func (c Trace) Done() time.Duration { return time.Duration(len(c.Served)) * Slot }
