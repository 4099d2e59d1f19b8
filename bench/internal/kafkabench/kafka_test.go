package kafkabench

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/server"
)

// embedded is where every workload runs in a test: small, and without other processes.
func embedded(t *testing.T) *env {
	t.Helper()
	redis, err := server.Open(t.Context(), server.Embedded, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = redis.Close() })
	b, err := server.EmbedBroker()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	e := &env{redis: redis, broker: b, budget: time.Millisecond, messages: least}
	e.measureCPU()
	return e
}

// Every side takes every message of the log, and counts it once: new ones and duplicates.
func TestSidesCountEveryMessageOnce(t *testing.T) {
	e := embedded(t)
	log := server.Log{Topic: "t", ValueSize: 10, Keys: 7}
	for range 2 {
		log.IDs = append(log.IDs, harness.Recent(2*gap+100, 50, gap))
	}
	if err := e.broker.Write(log); err != nil {
		t.Fatal(err)
	}
	for _, s := range (point{partitions: 4, value: 100}).sides() {
		t.Run(s.name, func(t *testing.T) {
			if err := e.redis.Empty(t.Context()); err != nil {
				t.Fatal(err)
			}
			j := job{brokers: e.broker.Addrs, redis: e.redis.Addr, group: s.name, log: log,
				done: newProgress()}
			m, err := s.start(t.Context(), j)
			if err != nil {
				t.Fatal(err)
			}
			if err := j.done.await(t.Context(), int64(log.Size()), m.failed); err != nil {
				t.Error(err)
			}
			if err := m.stop(); err != nil {
				t.Error(err)
			}
			if n := j.done.n.Load(); n != int64(log.Size()) {
				t.Errorf("%d messages of %d", n, log.Size())
			}
		})
	}
}

func TestGroupsRun(t *testing.T) {
	e := embedded(t)
	e.choose = func(side string) bool {
		return !strings.Contains(side, "rich") || strings.Contains(side, "fast")
	}
	match := regexp.MustCompile("^4 partitions, 100 B, 50 %|^fast")
	groups := slices.DeleteFunc(e.groups(), func(g harness.Group) bool {
		return !match.MatchString(g.Title)
	})
	if len(groups) != 2 {
		t.Fatalf("%d groups", len(groups))
	}
	r := harness.Runner{Rounds: 1, MaxKeys: 1}
	rows, err := r.Run(t.Context(), groups)
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) < 8 {
		t.Errorf("%d rows", len(rows))
	}
	for _, row := range rows {
		if row.Value <= 0 || row.Allocs <= 0 || row.Unit != "messages/s" || row.Binds == "" ||
			strings.Contains(row.Side, "rich") {
			t.Errorf("row %+v", row)
		}
		if row.Against != "" && (row.Ratio <= 0 || row.AgainstValue <= 0) {
			t.Errorf("row %q has no ratio to %q: a pair names a side that is not there", row.Name,
				row.Against)
		}
	}
}

// The pairs of a point speak of its sides, and every layout has the goal next to its limits once;
// next to loops written by hand at the central point only.
func TestPairs(t *testing.T) {
	for _, p := range points() {
		var names []string
		for _, s := range p.sides() {
			names = append(names, s.name)
		}
		goals := map[string]int{}
		for _, pair := range p.pairs() {
			for _, name := range []string{pair.Side, pair.Against, pair.Or} {
				if name != "" && !slices.Contains(names, name) {
					t.Errorf("%s: %q is no side", p.title(), name)
				}
			}
			if pair.Goal != (harness.Goal{}) {
				byHand := pair.Against == naiveSide || pair.Against == byHandSide
				if byHand != (pair.Or == "") || byHand && !p.central() ||
					!byHand && pair.Against != bareSide {
					t.Errorf("%s: the goal of %q is beside %q and %q", p.title(), pair.Side,
						pair.Against, pair.Or)
				}
				if !byHand {
					goals[pair.Side]++
				}
			}
		}
		if goals[adapterSide("rich")] != 1 || goals[adapterSide("seen-only")] != 1 {
			t.Errorf("%s: goals %v", p.title(), goals)
		}
	}
}

// A side that is alone is beside nothing, and has missed no goal.
func TestPairsOfChosenSides(t *testing.T) {
	e := &env{choose: func(side string) bool {
		return side == adapterSide("rich") || side == naiveSide
	}}
	got := e.chosen(point{partitions: 4, value: 100}.pairs())
	var rows []string
	for _, p := range got {
		rows = append(rows, p.Side+" beside "+p.Against+p.Or+p.Goal.String())
	}
	const byNaive = ">= 6x (stretch 9x)"
	want := []string{
		adapterSide("rich") + " beside ", adapterSide("rich") + " beside " + naiveSide + byNaive,
		adapterSide("rich") + " beside ", naiveSide + " beside ",
	}
	if !slices.Equal(rows, want) {
		t.Errorf("%q, want %q", rows, want)
	}
}

func TestPointsAreAllThere(t *testing.T) {
	var titles []string
	details := 0
	for _, g := range (&env{}).groups() {
		titles = append(titles, g.Title)
		if g.Detail {
			details++
		}
	}
	for _, want := range []string{
		"4 partitions, 100 B, 0 % duplicates", "4 partitions, 100 B, 10 % duplicates",
		"4 partitions, 100 B, 50 % duplicates", "4 partitions, 100 B, 90 % duplicates",
		"16 partitions, 100 B, 0 % duplicates", "16 partitions, 100 B, 10 % duplicates",
		"16 partitions, 100 B, 50 % duplicates", "16 partitions, 100 B, 90 % duplicates",
		"4 partitions, 1000 B, 0 % duplicates", "16 partitions, 1000 B, 0 % duplicates",
		"fast partition next to one whose messages take 20 ms",
	} {
		if !slices.Contains(titles, want) {
			t.Errorf("no group is called %q", want)
		}
	}
	if details == 0 || details == len(titles) {
		t.Errorf("a quick run has %d of %d", len(titles)-details, len(titles))
	}
}

// What is timed of a log has duplicates in it, and lies within it.
func TestLogsAreLongEnough(t *testing.T) {
	e := &env{messages: 5000}
	for _, p := range points() {
		log := e.log(p)
		if len(log.IDs) != p.partitions || log.ValueSize != p.value {
			t.Errorf("%s: %d partitions of %d bytes", p.title(), len(log.IDs), log.ValueSize)
		}
		if need := warmUp(p.partitions) + e.messages + tail/2; log.Size() < need ||
			warmUp(p.partitions) < p.partitions*gap {
			t.Errorf("%s: %d messages, want %d", p.title(), log.Size(), need)
		}
	}
}

func TestProgress(t *testing.T) {
	p, boom := newProgress(), errors.New("boom")
	p.add(3)
	if err := p.await(t.Context(), 3, nil); err != nil {
		t.Error(err)
	}
	go func() {
		p.add(2)
		p.add(2)
	}()
	if err := p.await(t.Context(), 7, nil); err != nil || p.n.Load() != 7 {
		t.Errorf("%d, %v", p.n.Load(), err)
	}
	failed := make(chan error, 1)
	failed <- boom
	if err := p.await(t.Context(), 8, failed); !errors.Is(err, boom) {
		t.Errorf("a consumer that has failed: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(boom)
	if err := p.await(ctx, 8, nil); !errors.Is(err, boom) {
		t.Errorf("a run that has ended: %v", err)
	}
}
