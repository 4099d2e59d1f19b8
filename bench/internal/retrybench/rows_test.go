package retrybench

import (
	"fmt"
	"slices"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
)

// Round is one run of all simulations, in the order of [Waits] and [Guards]. Deaf and Told are the
// calls of the last of four layers, if Do-Not-Retry is ignored and if it is obeyed.
type Round struct {
	Comeback, Through []Trace
	Deaf, Told        int
}

// Families of rows.
const (
	FamilyComeback = "comeback" // load by second and way to wait
	FamilyOutage   = "outage"   // load by second and guard
)

// Rows returns the medians of all rounds, and the loads of the first round.
func Rows(rounds []Round) []harness.Row {
	rows := slices.Concat(comebackGoals(rounds), outageGoals(rounds), []harness.Row{
		row(rounds, "Do-Not-Retry", "calls of the last of four layers, three attempts in each",
			"calls", "header ignored", "<= 3 calls",
			func(r Round) (float64, float64) { return float64(r.Told), float64(r.Deaf) })})
	comeback, outage := "load on a server that comes back after 20 s",
		"load through an outage from 20 to 50 s"
	for _, c := range rounds[0].Comeback { // the first seconds would dwarf the rest
		rows = append(rows, load(FamilyComeback, comeback, c.Name, c.Load, 10, 60)...)
	}
	can := slices.Repeat([]int{int(TheHerd.Capacity * Slot.Seconds())}, 600)
	rows = append(rows, load(FamilyComeback, comeback, Capacity, can, 20, 60)...)
	for _, c := range rounds[0].Through {
		rows = append(rows, load(FamilyOutage, outage, c.Name, c.Load, 0, 80)...)
	}
	return append(rows, load(FamilyOutage, outage, Wanted, rounds[0].Through[0].Wanted, 0, 80)...)
}

// Names of further lines in the figures.
const (
	Capacity = "what the server can do"
	Wanted   = "requests, without retries"
)

// comebackGoals compares the ways to wait with a wait without jitter.
func comebackGoals(rounds []Round) (rows []harness.Row) {
	back := TheHerd.Down
	peak := func(c Trace) float64 { return float64(c.Peak(back)) }
	done := func(c Trace) float64 { return (c.Done() - back).Seconds() }
	all := func(c Trace) float64 { return float64(c.Calls()) }
	for i, wait := range Waits[1:] {
		of := func(f func(Trace) float64) pair {
			return func(r Round) (float64, float64) { return f(r.Comeback[i+1]), f(r.Comeback[0]) }
		}
		rows = append(rows,
			row(rounds, wait, wait+": most requests in 100 ms after the server is back", "requests",
				NoJitter, "<= 0.2x", of(peak)),
			row(rounds, wait, wait+": until all 1,000 clients are served", "s", NoJitter,
				"<= 0.5x", of(done)),
			row(rounds, wait, wait+": calls in all", "calls", NoJitter, "", of(all)),
		)
	}
	return rows
}

// outageGoals compares the guards with three attempts alone. A budget pays for retries of a tenth
// of the requests, and for a saved burst of ten in each process.
func outageGoals(rounds []Round) []harness.Row {
	o := TheTraffic.Outage
	asked := func(c Trace) float64 { return float64(Sum(c.Wanted, o.From-Slot, o.To)) }
	added := func(c Trace) float64 { return 100 * float64(c.Calls()-c.Requests) / asked(c) }
	reached := func(c Trace) float64 { return float64(Sum(c.Load, o.From+time.Second, o.To)) }
	rate := func(c Trace, from, to time.Duration) float64 {
		return float64(Sum(c.Served, from, to)) / (to - from).Seconds()
	}
	burst := 0.0
	for _, r := range rounds {
		burst = max(burst, 100*10*float64(TheTraffic.Processes)/asked(r.Through[1]))
	}
	return []harness.Row{
		row(rounds, WithBudget,
			"outage of 30 s, a budget: load that retries add, its burst of ten per process included", "%", OnlyAttempts,
			harness.Goal(fmt.Sprintf("<= %g %%", float64(int(1000+100*burst))/100)),
			func(r Round) (float64, float64) { return added(r.Through[1]), added(r.Through[0]) }),
		row(rounds, WithBreaker,
			"outage of 30 s, a breaker: requests that reach the server after the first second",
			"requests", OnlyAttempts, "<= 0.02x", func(r Round) (float64, float64) {
				return reached(r.Through[2]), reached(r.Through[0])
			}),
		row(rounds, WithBreaker,
			"outage of 30 s, a breaker: requests served from two seconds after it", perSecond,
			"before the outage", ">= 0.95x", func(r Round) (float64, float64) {
				return rate(r.Through[2], o.To+2*time.Second, TheTraffic.Length),
					rate(r.Through[2], time.Second, o.From)
			}),
	}
}

const perSecond = "requests/s"

// pair returns a number of a round, and the number it is compared with.
type pair func(Round) (value, against float64)

func row(rounds []Round, side, name, unit, against string, goal harness.Goal, of pair) harness.Row {
	var values, others []float64
	for _, r := range rounds {
		v, a := of(r)
		values, others = append(values, v), append(others, a)
	}
	r := *(&harness.Setup{}).Figure(name, side, harness.Median(values), unit).
		Next(against, harness.Median(others))
	ratios := harness.Paired(values, others)
	r.Ratio, r.Spread, r.Rounds, r.Workload = harness.Median(ratios), harness.Spread(ratios),
		len(rounds), "retry"
	return *r.Wants(goal)
}

// load returns the rows of one line in a figure.
func load(family, name, side string, slots []int, from, to int) []harness.Row {
	s := &harness.Setup{}
	for second, n := range PerSecond(slots, to)[from:] {
		r := s.Figure(name+", "+side, side, float64(n), perSecond)
		r.Workload, r.X = family, float64(from+second)
	}
	return s.Rows
}

// Slot is the time over which load is counted.
const Slot = 100 * time.Millisecond

// Outage is the time, from the start of a simulation, in which a site is down.
type Outage struct{ From, To time.Duration }

// Herd describes the first simulation: the same outage has cut off the requests of all clients.
type Herd struct {
	Clients         int
	Down            time.Duration // from the start
	Capacity, Queue float64
	Base, Cap       time.Duration // of the backoff
}

// TheHerd is the one in the figure: a thousand clients, and a server that would need ten seconds
// for them.
var TheHerd = Herd{Clients: 1000, Down: 20 * time.Second, Capacity: 100, Queue: 50,
	Base: 100 * time.Millisecond, Cap: 10 * time.Second}

// Names of the ways to wait, in the order of the figure.
const (
	NoJitter     = "no jitter"
	FullJitter   = "full jitter"
	EqualJitter  = "equal jitter"
	Decorrelated = "decorrelated jitter"
)

// Waits are the ways to wait.
var Waits = []string{NoJitter, FullJitter, EqualJitter, Decorrelated}

// Traffic describes the second simulation: clients send requests through an outage, whatever they
// get.
type Traffic struct {
	Clients   int
	Processes int           // that the clients share; each has a transport
	Every     time.Duration // mean time between two requests of a client
	Outage    Outage
	Length    time.Duration
	Capacity  float64
	Queue     float64
}

// TheTraffic is the one in the figure: a thousand requests a second, and an outage of 30 seconds.
var TheTraffic = Traffic{
	Clients: 1000, Processes: 4, Every: time.Second,
	Outage: Outage{20 * time.Second, 50 * time.Second}, Length: 80 * time.Second,
	Capacity: 1500, Queue: 500,
}

// Names of the guards.
const (
	OnlyAttempts = "three attempts"
	WithBudget   = "with a budget"
	WithBreaker  = "with a budget and a breaker"
)

// Guards are the ways to limit retries, in the order of the figure.
var Guards = []string{OnlyAttempts, WithBudget, WithBreaker}

// Trace is the course of a simulation.
type Trace struct {
	Name     string // of what was varied
	Load     []int  // requests that arrived, by [Slot]
	Served   []int  // of them, by the slot of their answer
	Wanted   []int  // requests that clients began, retries not counted
	Requests int    // all of Wanted
	Outage   Outage
}

// Sum adds the slots between two times.
func Sum(slots []int, from, to time.Duration) (total int) {
	for i := int(from / Slot); i < int(to/Slot) && i < len(slots); i++ {
		total += slots[i]
	}
	return total
}

// PerSecond adds the slots of each second, and returns the given number of seconds.
func PerSecond(slots []int, seconds int) []int {
	out := make([]int, seconds)
	for s := range out {
		out[s] = Sum(slots, time.Duration(s)*time.Second, time.Duration(s+1)*time.Second)
	}
	return out
}

// Peak returns the largest load of one slot after a time.
func (c Trace) Peak(from time.Duration) (peak int) {
	for _, n := range c.Load[min(int(from/Slot), len(c.Load)):] {
		peak = max(peak, n)
	}
	return peak
}

// Calls returns the number of all requests that arrived.
func (c Trace) Calls() int { return total(c.Load) }

func total(slots []int) int { return Sum(slots, 0, time.Duration(len(slots))*Slot) }

// Done returns the time of the last answer.
func (c Trace) Done() time.Duration { return time.Duration(len(c.Served)) * Slot }
