package bench

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/onceward/onceward/cmd/internal/progress"
)

const (
	// roundTime is how long a round is about, of which there are fewest and most.
	roundTime    = 2 * time.Second
	fewest, most = 2, 30
	// warmTime bounds the warming up of a side, warmShare the keys for it.
	warmTime  = 500 * time.Millisecond
	warmShare = 20
	// spare is by how much more keys the layouts with buckets are planned for than it looks like.
	spare = 1.5
	// leastCounted is from how many keys on the room that they take tells something.
	leastCounted = 1000
)

// total is what a side has done in all rounds.
type total struct {
	*tally
	sent         traffic
	bytes, cpu   float64
	bytesUnknown bool
	cpuUnknown   bool
}

// bench is one run.
type bench struct {
	o      *Options
	t      target
	meter  *progress.Meter
	sides  [2]*crew // onceward and bare
	totals [2]total
	ratios []float64
	used   int64
	// most is how many keys each side may still write.
	most  [2]int64
	last  sample
	ended string
}

// measure warms both sides up and has them take turns. Errors are of the target: those of messages
// are counted.
func (o *Options) measure(ctx context.Context, t target, meter *progress.Meter,
	rounds int) (*Report, error) {
	b := &bench{o: o, t: t, meter: meter, ended: "done",
		most: [2]int64{math.MaxInt64, math.MaxInt64}}
	for i := range b.totals {
		b.totals[i].tally = newTally()
	}
	length := o.For / time.Duration(2*rounds)
	if err := b.warm(ctx, length); err != nil {
		return nil, err
	}
	var err error
	if b.last, err = t.sample(ctx); err != nil {
		return nil, err
	}
	for round := 0; round < rounds && b.ended == "done"; round++ {
		if err := b.round(ctx, round, rounds, length); err != nil {
			return nil, err
		}
		meter.Add(1)
	}
	return b.report(), ctx.Err()
}

// rounds is how many there are.
func (o *Options) rounds() int { return min(max(int(o.For/roundTime), fewest), most) }

func (o *Options) load() load { return load{o.Workers, o.Batch, o.Dup, o.Rate} }

// warm opens connections and has scripts loaded, and finds out how many keys are to be expected.
func (b *bench) warm(ctx context.Context, length time.Duration) error {
	ours, bare, err := b.t.open(ctx, true, 0)
	if err != nil {
		return err
	}
	length = min(length, warmTime)
	budget := int64(b.o.MaxKeys) / warmShare
	speed := b.o.Rate
	for i, do := range []work{bare, ours} {
		warmed := newCrew(b.o.load(), fmt.Sprint("warm", i), do, b.t.kind).run(ctx, length, budget)
		b.used += warmed.used
		if b.o.Rate == 0 {
			speed = warmed.perSecond()
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	expected := speed * (1 - b.o.Dup) * b.o.For.Seconds() / 2 * spare
	most := int64(min(max(expected, float64(b.o.leastKeys())), float64(b.o.MaxKeys)))
	if ours, bare, err = b.t.open(ctx, false, int(most)); err != nil {
		return err
	}
	if b.o.bucketed() {
		b.most[0] = most
	}
	b.sides = [2]*crew{newCrew(b.o.load(), "a", ours, b.t.kind),
		newCrew(b.o.load(), "b", bare, b.t.kind)}
	return nil
}

// round lets each side have its turn, the other one first than in the round before.
func (b *bench) round(ctx context.Context, round, rounds int, length time.Duration) error {
	var rates [2]float64
	for turn := range 2 {
		i := (round + turn) % 2
		left := int64(b.o.MaxKeys) - b.used
		t, err := b.turn(ctx, i, length,
			min(left/int64(2*(rounds-round)-turn), b.most[i]/int64(rounds-round)))
		if err != nil {
			return err
		}
		rates[i] = t.perSecond()
		if t.full && b.used >= int64(b.o.MaxKeys)*9/10 || t.messages() == 0 && t.full {
			b.ended = "max_keys"
		}
		if b.last.full > fullShare && !b.o.Force {
			b.ended = "memory"
			return nil
		}
	}
	if rates[0] > 0 && rates[1] > 0 {
		b.ratios = append(b.ratios, rates[0]/rates[1])
	}
	return nil
}

// turn is one of one side.
func (b *bench) turn(ctx context.Context, i int, length time.Duration,
	budget int64) (*tally, error) {
	sent := b.t.traffic(i)
	t := b.sides[i].run(ctx, length, budget)
	now := b.t.traffic(i)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b.used += t.used
	b.most[i] -= t.used
	of := &b.totals[i]
	elapsed := of.elapsed + t.elapsed
	of.join(t)
	of.elapsed = elapsed
	of.sent = traffic{of.sent.commands + now.commands - sent.commands,
		of.sent.trips + now.trips - sent.trips, now.known}
	s, err := b.t.sample(ctx)
	if err != nil {
		return nil, err
	}
	of.bytes += s.bytes.value - b.last.bytes.value
	of.cpu += s.cpu.value - b.last.cpu.value
	of.bytesUnknown = of.bytesUnknown || !s.bytes.ok || !b.last.bytes.ok || s.written ||
		b.last.written
	of.cpuUnknown = of.cpuUnknown || !s.cpu.ok || !b.last.cpu.ok || s.busy || b.last.busy
	b.last = s
	return t, nil
}

// side is what a side has come to.
func (b *bench) side(i int) Side {
	of := &b.totals[i]
	s := of.side(b.o.Server.Hide)
	n := float64(of.messages())
	if n == 0 {
		return s
	}
	if of.sent.known {
		commands, trips := float64(of.sent.commands)/n, float64(of.sent.trips)/n
		s.Commands, s.Trips = &commands, &trips
	}
	if !of.cpuUnknown && of.cpu > 0 {
		cpu := of.cpu * 1e6 / n
		s.CPU = &cpu
	}
	if !of.bytesUnknown && of.bytes > 0 && of.fresh >= leastCounted {
		bytes := of.bytes / float64(of.fresh)
		s.BytesPerKey = &bytes
	}
	return s
}

func (b *bench) report() *Report {
	o := b.o
	r := &Report{
		Store: b.t.title(), Workers: o.Workers, Batch: o.Batch, Rate: o.Rate, Dup: o.Dup,
		Result: o.Result, Window: o.Window.Seconds(),
		Rounds: len(b.ratios), Onceward: b.side(0), Bare: b.side(1), Ratio: ratioOf(b.ratios),
		MaxMemory: b.last.limit, Ended: b.ended, Notes: []string{},
	}
	note := func(when bool, text string, args ...any) {
		if when {
			r.Notes = append(r.Notes, fmt.Sprintf(text, args...))
		}
	}
	note(b.ended == "max_keys", "ended early: --max-keys (%d) are written", o.MaxKeys)
	note(b.ended == "memory", "ended early: more than %.0f %% of maxmemory are in use",
		100*fullShare)
	note(r.Onceward.Unsent > 0 || r.Bare.Unsent > 0,
		"the rate was not reached: %d messages of onceward and %d of bare were due and not sent; their wait is in the latency",
		r.Onceward.Unsent, r.Bare.Unsent)
	first := b.totals[0]
	note(first.bytesUnknown && b.last.bytes.ok,
		"others write to the server: what a key takes is not shown; plan reckons it")
	note(first.cpuUnknown && b.last.cpu.ok,
		"others use the server: what a message takes of its processor is not shown")
	return r
}
