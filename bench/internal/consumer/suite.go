// Package consumer is what the Kafka benchmarks measure: ways of consuming a topic, each
// beside the limits that bind it. suite.go has the workloads and their goals, side.go how
// one is timed, and each further file a kind of consumer.
package consumer

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/onceward/onceward/bench/internal/broker"
	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/redisadapter"
)

// Names of the sides.
const (
	bareSide      = "bare sarama loop"
	naiveSide     = "naive SET NX, effect, SET"
	unclaimedSide = "adapter, unclaimed"
)

// redisSide is the name of the side that has a layout's batches and no Kafka.
func redisSide(layout string) string { return "Redis batches, " + layout }

// adapterSide is the name of the side that has the adapter over a layout.
func adapterSide(layout string) string { return "adapter, " + layout }

// layouts that take part; a fast one everywhere, and the one with the least memory where
// little else runs.
var layouts = []struct {
	name   string
	kind   redisadapter.Layout
	detail bool // at one point only
}{
	{"rich", redisadapter.Rich, false},
	{"seen-only", redisadapter.SeenOnly, false},
	{"compact", redisadapter.Compact, true},
}

// goal of the adapter beside the slower of its limits.
var goal = harness.AtLeast(0.8, 0.9)

// point is one workload.
type point struct {
	partitions, value, share int // share: per cent duplicates
}

func (p point) title() string {
	return fmt.Sprintf("%d partitions, %d B, %d %% duplicates", p.partitions, p.value, p.share)
}

func (p point) workload() string { return fmt.Sprintf("%d partitions, %d B", p.partitions, p.value) }

// central is the point that most can be said about; a quick run has it.
func (p point) central() bool { return p == point{partitions: 4, value: 100} }

// points are all duplicates at 100 B, and none at 1 kB: what the value's size changes is
// what a new message costs.
func points() []point {
	var all []point
	for _, partitions := range []int{4, 16} {
		for _, share := range []int{0, 10, 50, 90} {
			all = append(all, point{partitions, 100, share})
		}
		all = append(all, point{partitions, 1000, 0})
	}
	return all
}

// Groups are all workloads, in the order in which they run.
func (e *Env) Groups() []harness.Group {
	var groups []harness.Group
	for _, p := range points() {
		groups = append(groups, harness.Group{
			Workload: p.workload(), X: float64(p.share), Title: p.title(),
			Detail: p.share == 10 || p.share == 90 || (p.partitions == 16 && p != point{16, 100, 0}),
			Open:   func(ctx context.Context) (harness.Setup, error) { return e.open(ctx, p) },
		})
	}
	return append(groups, e.neighbours())
}

// Match returns the groups whose title matches and that the run has time for.
func (e *Env) Match(groups []harness.Group, match *regexp.Regexp) (chosen []harness.Group, leftOut []string) {
	for _, g := range groups {
		if match.MatchString(g.Title) && (!g.Detail || !e.Quick) {
			chosen = append(chosen, g)
		}
	}
	if e.Quick {
		leftOut = append(leftOut, "points between others: a quick run, for orientation")
	}
	return chosen, leftOut
}

// open writes the log of a point and prepares the sides that consume it.
func (e *Env) open(ctx context.Context, p point) (harness.Setup, error) {
	log := e.log(p)
	if err := e.Broker.Write(log); err != nil {
		return harness.Setup{}, err
	}
	s := harness.Setup{Pairs: e.chosen(p.pairs()), Close: func() { _ = e.Broker.Remove(log.Topic) }}
	for _, one := range p.sides() {
		if e.takesPart(one.name) {
			s.Sides = append(s.Sides, e.timed(one, log))
		}
	}
	if len(s.Sides) == 0 {
		return s, errors.Join(errors.New("consumer: no side is chosen"), e.Broker.Remove(log.Topic))
	}
	return s, context.Cause(ctx)
}

func (e *Env) takesPart(side string) bool {
	return side == "" || e.Choose == nil || e.Choose(side)
}

// chosen are the pairs of sides that take part, without what they would be beside if that
// does not.
func (e *Env) chosen(pairs []harness.Pair) []harness.Pair {
	var chosen []harness.Pair
	for _, p := range pairs {
		if !e.takesPart(p.Side) {
			continue
		}
		if !e.takesPart(p.Against) || !e.takesPart(p.Or) {
			p.Against, p.Or, p.Goal = "", "", harness.Goal{}
		}
		if !slices.Contains(chosen, p) {
			chosen = append(chosen, p)
		}
	}
	return chosen
}

// sides of a point. A further consumer takes a line here and one in pairs.
func (p point) sides() []side {
	sides := []side{{bareSide, bare}, {naiveSide, naive}, {unclaimedSide, unclaimed}}
	for _, l := range layouts {
		if !l.detail || p.central() {
			sides = append(sides, side{redisSide(l.name), redisOnly(l.kind)}, side{adapterSide(l.name), adapter(l.kind)})
		}
	}
	return sides
}

func (p point) pairs() []harness.Pair {
	var pairs []harness.Pair
	add := func(side, against, or string, g harness.Goal) {
		pairs = append(pairs, harness.Pair{Name: p.title(), Side: side, Against: against, Or: or, Metric: harness.Messages, Goal: g})
	}
	for _, l := range layouts {
		if !l.detail || p.central() {
			add(adapterSide(l.name), bareSide, redisSide(l.name), goal)
			add(adapterSide(l.name), naiveSide, "", harness.Goal{})
			add(redisSide(l.name), "", "", harness.Goal{})
		}
	}
	add(unclaimedSide, bareSide, "", harness.Goal{})
	add(bareSide, "", "", harness.Goal{})
	add(naiveSide, "", "", harness.Goal{})
	return pairs
}

const (
	// keysPerPartition is among how many entities the messages of a partition are spread.
	keysPerPartition = 1000
	// gap is how far at least a duplicate lies behind its original: more than the adapter
	// has claimed of a partition, so that it is a duplicate of something done.
	gap = 1024
)

func (e *Env) log(p point) broker.Log {
	size := warmUp(p.partitions) + e.Messages + tail
	log := broker.Log{Topic: "bench-" + harness.FreshKeys(1)[0], ValueSize: p.value, Keys: keysPerPartition}
	for range p.partitions {
		log.IDs = append(log.IDs, harness.Recent(size/p.partitions, p.share, gap))
	}
	return log
}
