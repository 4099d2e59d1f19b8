// Package kafkabench is what the Kafka benchmarks measure: ways of consuming a topic, each
// next to the limits that bind it. suite.go has the workloads and their goals, side.go how
// one is timed, adapter.go and loop.go the consumers.
package kafkabench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/redisadapter"
)

// Suite is the Kafka adapter.
var Suite = harness.Suite{
	Area: "kafka", About: "the Kafka adapter next to what binds it",
	Full:  harness.Scale{Rounds: 5, Keys: 120_000, Budget: 400 * time.Millisecond},
	Quick: harness.Scale{Rounds: 3, Keys: 120_000, Budget: 150 * time.Millisecond},
	Open:  openSuite,
}

func openSuite(ctx context.Context, o harness.Options) (b *harness.Bench, err error) {
	sides, err := regexp.Compile(o.Sides)
	if err != nil {
		return nil, fmt.Errorf("-sides: %w", err)
	}
	e := &env{budget: o.Budget, messages: o.Keys, choose: sides.MatchString}
	b = &harness.Bench{Groups: e.groups(), Modules: map[string]string{
		"github.com/redis/go-redis/v9": "go-redis", "github.com/IBM/sarama": "sarama",
		"github.com/twmb/franz-go/pkg/kfake": "kfake",
	}}
	if o.List {
		return b, nil
	}
	if e.redis, err = server.Open(ctx, o.Redis, o.Port); err != nil {
		return b, err
	}
	b.Servers = append(b.Servers, e.redis)
	if e.broker, err = openBroker(ctx, o.Brokers); err != nil {
		return b, err
	}
	b.Servers = append(b.Servers, e.broker)
	e.measureCPU()
	return b, nil
}

// openBroker starts this program again, as an embedded broker: its CPU is told apart then.
func openBroker(ctx context.Context, addrs string) (*server.Broker, error) {
	if addrs != "" {
		return server.ConnectBroker(strings.Split(addrs, ",")...), nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("this program's file: %w", err)
	}
	return server.StartBroker(ctx, self, server.BrokerArg)
}

// Names of the sides.
const (
	bareSide      = "bare sarama loop"
	naiveSide     = "naive SET NX, effect, SET"
	byHandSide    = "by hand, in pipelines of 256"
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

// point is one workload.
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

// groups are all workloads, in the order in which they run.
func (e *env) groups() []harness.Group {
	var groups []harness.Group
	for _, p := range points() {
		groups = append(groups, harness.Group{
			Workload: fmt.Sprintf("%d partitions, %d B", p.partitions, p.value),
			X:        float64(p.share), Title: p.title(),
			Detail: p.share == 10 || p.share == 90 ||
				(p.partitions == 16 && p != point{16, 100, 0}),
			Open: func(_ context.Context, s *harness.Setup) error { return e.open(s, p) },
		})
	}
	return append(groups, e.neighbors())
}

// open writes the log of a point and prepares the sides that consume it.
func (e *env) open(s *harness.Setup, p point) error {
	log := e.log(p)
	s.Defer(func() error { return e.broker.Remove(log.Topic) })
	if err := e.broker.Write(log); err != nil {
		return err
	}
	s.Pairs = e.chosen(p.pairs())
	for _, one := range p.sides() {
		if e.takesPart(one.name) {
			s.Sides = append(s.Sides, e.timed(one, log))
		}
	}
	if len(s.Sides) == 0 {
		return errors.New("kafkabench: no side is chosen")
	}
	return nil
}

func (e *env) takesPart(side string) bool {
	return side == "" || e.choose == nil || e.choose(side)
}

// chosen are the pairs of sides that take part, without what they would be compared with if that
// does not.
func (e *env) chosen(pairs []harness.Pair) []harness.Pair {
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
	sides := []side{{bareSide, bare}, {naiveSide, naive}, {byHandSide, byHand},
		{unclaimedSide, unclaimed}}
	for _, l := range layouts {
		if !l.detail || p.central() {
			sides = append(sides, side{redisSide(l.name), redisOnly(l.kind)},
				side{adapterSide(l.name), adapter(l.kind)})
		}
	}
	return sides
}

func (p point) pairs() []harness.Pair {
	var pairs []harness.Pair
	add := func(side, against, or string, g harness.Goal) {
		pairs = append(pairs, harness.Pair{Name: p.title(), Side: side, Against: against,
			Or: or, Metric: harness.Messages, Goal: g})
	}
	for _, l := range layouts {
		if l.detail && !p.central() {
			continue
		}
		goals := p.central() && !l.detail // next to loops that are written by hand
		add(adapterSide(l.name), bareSide, redisSide(l.name), harness.AtLeast(0.8, 0.9))
		add(adapterSide(l.name), naiveSide, "", harness.When(goals, harness.AtLeast(6, 9)))
		add(adapterSide(l.name), byHandSide, "", harness.When(goals, harness.AtLeast(0.65, 0.8)))
		if goals {
			pairs = append(pairs, harness.Pair{
				Name: p.title() + ", client CPU", Side: adapterSide(l.name), Against: byHandSide,
				Metric: harness.ClientMicros, Goal: harness.ValueAtMost(5.5, 4.5, "us"),
			})
		}
		add(redisSide(l.name), "", "", harness.Goal{})
	}
	add(unclaimedSide, bareSide, "", harness.Goal{})
	add(bareSide, "", "", harness.Goal{})
	add(naiveSide, "", "", harness.Goal{})
	add(byHandSide, "", "", harness.Goal{})
	return pairs
}

const (
	// keysPerPartition is among how many entities the messages of a partition are spread.
	keysPerPartition = 1000
	// gap is how far at least a duplicate lies behind its original: more than the adapter
	// has claimed of a partition, so that it is a duplicate of something done.
	gap = 1024
)

func (e *env) log(p point) server.Log {
	size := warmUp(p.partitions) + e.messages + tail
	log := server.Log{Topic: "bench-" + harness.Fresh(), ValueSize: p.value, Keys: keysPerPartition}
	for range p.partitions {
		log.IDs = append(log.IDs, harness.Recent(size/p.partitions, p.share, gap))
	}
	return log
}
