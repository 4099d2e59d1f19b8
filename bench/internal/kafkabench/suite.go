// Package kafkabench is what the Kafka benchmarks measure: ways of consuming a topic, each next to
// the limits that bind it. suite.go has the workloads and their goals, side.go how one is timed and
// what a quiet topic and a slow one show, consumers.go the consumers.
package kafkabench

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/bench/internal/work"
)

// Suite is the Kafka adapter.
var Suite = harness.Suite{
	Area: "kafka", About: "the Kafka adapter next to what binds it",
	Full:  harness.Scale{Rounds: 5, Keys: 120_000, Budget: 400 * time.Millisecond},
	Quick: harness.Scale{Rounds: 3, Keys: 120_000, Budget: 150 * time.Millisecond},
	Open:  openSuite,
}

func openSuite(ctx context.Context, o harness.Options, b *harness.Bench) {
	e := &env{budget: o.Budget, messages: o.Keys, ahead: warm, behind: tail, gap: far}
	b.Modules = []string{"go-redis", "sarama", "kfake"}
	b.Groups = e.groups()
	if o.List {
		return
	}
	e.redis = server.Open(ctx, b, o.Redis)
	if o.Brokers != "" {
		e.broker = server.ConnectBroker(strings.Split(o.Brokers, ",")...)
	} else { // this program again: its CPU is told apart then
		e.broker = must.Get(server.StartBroker(ctx, must.Get(os.Executable()), server.BrokerArg))
	}
	b.Servers = append(b.Servers, &e.broker.Server)
	b.Defer(e.broker.Close)
	e.meter = harness.Meter{ServerCPU: e.redis.CPU(), BrokerCPU: e.broker.CPU()}
}

// Names of the sides.
const (
	bareSide      = "bare sarama loop"
	naiveSide     = "naive SET NX, effect, SET"
	byHandSide    = "by hand, in pipelines of 256"
	unclaimedSide = "adapter, unclaimed"
)

func redisSide(layout string) string { return "Redis batches, " + layout }

func adapterSide(layout string) string { return "adapter, " + layout }

// layouts that take part: a fast one everywhere, the smallest one where little else runs.
var layouts = []struct {
	name   string
	layout work.Layout
	detail bool // at one point only
}{{"full", work.Full, false}, {"compact", work.Compact, true}}

type point struct {
	partitions, value, share int // share: per cent duplicates
}

func (p point) title() string {
	return fmt.Sprintf("%d partitions, %d B, %d %% duplicates", p.partitions, p.value, p.share)
}

// central is the point that most can be said about; a quick run has it.
func (p point) central() bool { return p == point{partitions: 4, value: 100} }

// points are all duplicates at 100 B, and none at 1 kB: what the value's size changes is
// what a new message costs.
func points() (all []point) {
	for _, partitions := range []int{4, 16} {
		for _, share := range []int{0, 10, 50, 90} {
			all = append(all, point{partitions, 100, share})
		}
		all = append(all, point{partitions, 1000, 0})
	}
	return all
}

func (e *env) groups() (all harness.Groups) {
	for _, p := range points() {
		all.Add(fmt.Sprintf("%d partitions, %d B", p.partitions, p.value), p.share, p.title(),
			func(ctx context.Context, s *harness.Setup) { e.open(ctx, s, p) }).Detail =
			p.share == 10 || p.share == 90 || p.partitions == 16 && p != point{16, 100, 0}
	}
	e.neighbors(&all)
	e.latency(&all)
	return all
}

func (e *env) open(ctx context.Context, s *harness.Setup, p point) {
	log := e.log(p)
	e.write(ctx, s, log)
	p.compare(s)
	for _, one := range p.sides() {
		s.Sides = append(s.Sides, e.timed(one, log))
	}
}

// sides of a point. A further consumer takes a line here and one in pairs.
func (p point) sides() []side {
	sides := []side{{bareSide, bare}, {naiveSide, naive}, {byHandSide, byHand},
		{unclaimedSide, unclaimed}}
	for _, l := range layouts {
		if !l.detail || p.central() {
			sides = append(sides, side{redisSide(l.name), redisOnly(l.layout)},
				side{adapterSide(l.name), adapter(l.layout)})
		}
	}
	return sides
}

func (p point) compare(s *harness.Setup) {
	s.Metric = harness.Messages
	for _, l := range layouts {
		if l.detail && !p.central() {
			continue
		}
		goals := p.central() && !l.detail // next to loops that are written by hand
		ours := adapterSide(l.name)
		s.Compare(ours, bareSide).Wants(">= 0.8x (stretch 0.9x)").Or = redisSide(l.name)
		s.Compare(ours, naiveSide).Wants(harness.When(goals, ">= 6x (stretch 9x)"))
		s.Compare(ours, byHandSide).Wants(harness.When(goals, ">= 0.65x (stretch 0.8x)"))
		if goals {
			s.Compare(ours, byHandSide).Called(p.title() + ", client CPU").In(harness.ClientMicros).
				Wants("<= 5.5 us (stretch 4.5 us)")
		}
		s.Compare(redisSide(l.name), "")
	}
	s.Compare(unclaimedSide, bareSide)
	for _, side := range []string{bareSide, naiveSide, byHandSide} {
		s.Compare(side, "")
	}
}

func (e *env) log(p point) server.Log {
	size := e.warmUp(p.partitions) + e.messages + e.behind
	ids := make([][]string, p.partitions)
	for i := range ids {
		ids[i] = harness.Recent(size/p.partitions, p.share, e.gap)
	}
	return e.newLog(p.value, ids)
}
