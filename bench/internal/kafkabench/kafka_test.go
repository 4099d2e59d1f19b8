package kafkabench

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/bench/internal/work"
)

// embedded is an environment in which a test can run every workload: small, and without other
// processes.
func embedded(t *testing.T) *env {
	t.Helper()
	redis := server.Open(t.Context(), &harness.Bench{}, server.Embedded)
	t.Cleanup(func() { _ = redis.Close() })
	b := server.EmbedBroker()
	t.Cleanup(func() { _ = b.Close() })
	return &env{redis: redis, broker: b, budget: time.Millisecond, messages: 200, behind: 4 * tail,
		gap: 256, meter: harness.Meter{ServerCPU: redis.CPU(), BrokerCPU: b.CPU()}}
}

// opened returns a setup that is closed when the test ends.
func opened(t *testing.T) *harness.Setup {
	s := &harness.Setup{}
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

// Every side handles every message of the log, new or duplicate, and counts it once. Only new
// messages have an effect.
func TestSidesCountEveryMessageOnce(t *testing.T) {
	e := embedded(t)
	log := server.Log{Topic: "t", ValueSize: 10, Keys: 7}
	for range 2 {
		log.IDs = append(log.IDs, harness.Recent(2*e.gap+100, 50, e.gap))
	}
	e.broker.Write(t.Context(), opened(t), log)
	for _, s := range (point{partitions: 4, value: 100}).sides() {
		t.Run(s.name, func(t *testing.T) {
			require.NoError(t, must.Try(func() {
				e.consume(t.Context(), s, log, noEffect,
					func(ctx context.Context, done *atomic.Int64) {
						await(ctx, done, log.Size())
						assert.Equal(t, int64(log.Size()), done.Load())
					})
			}))
		})
	}
}

// Every group runs from the making of its topic to its last row.
func TestGroupsRun(t *testing.T) {
	e := embedded(t)
	match := regexp.MustCompile("^4 partitions, 100 B, 50 %|messages/s$")
	groups := slices.DeleteFunc(e.groups(), func(g harness.Group) bool {
		return !match.MatchString(g.Title)
	})
	require.Len(t, groups, 2)
	rows, err := harness.Runner{Scale: harness.Scale{Rounds: 1, Keys: 1}}.Run(t.Context(), groups)
	require.NoError(t, err)
	assert.Len(t, rows, 8+2)
	for _, row := range rows {
		assert.Positive(t, row.Value, "%+v", row)
		assert.Equal(t, row.Unit == messages, row.Binds != "", "%+v", row)
		// A pair without a ratio names a side that does not exist.
		assert.Equal(t, row.Against != "", row.Ratio > 0, "%+v", row)
		assert.NotContains(t, row.Side, "compact")
	}
}

var messages = harness.Messages.Unit

// If one partition is slow, only the messages of the fast one count.
func TestFastPartitionAloneCounts(t *testing.T) {
	e := embedded(t)
	log := e.newLog(10, [][]string{slowNumber: harness.FreshKeys(60), 1: harness.FreshKeys(50)})
	e.broker.Write(t.Context(), opened(t), log)
	require.NoError(t, must.Try(func() {
		e.consume(t.Context(), side{nextSide, fastOnly}, log, noEffect,
			func(ctx context.Context, done *atomic.Int64) { await(ctx, done, 50) })
	}))
}

// The pairs of a point name sides of the point. Every layout has one goal relative to its limits. A
// goal relative to loops written by hand is only at the central point.
func TestPairs(t *testing.T) {
	for _, p := range points() {
		names := []string{""}
		for _, s := range p.sides() {
			names = append(names, s.name)
		}
		goals := map[string]int{}
		setup := &harness.Setup{}
		p.compare(setup)
		for _, pair := range setup.Pairs {
			assert.Subset(t, names, []string{pair.Side, pair.Against, pair.Or}, p.title())
			if pair.Goal == ("") {
				continue
			}
			byHand := pair.Against == naiveSide || pair.Against == byHandSide
			assert.Equal(t, byHand, pair.Or == "", "%+v", pair)
			assert.True(t, byHand && p.central() || !byHand && pair.Against == bareSide,
				"%+v", pair)
			if !byHand {
				goals[pair.Side]++
			}
		}
		assert.Equal(t, 1, goals[adapterSide(work.Full)], p.title())
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
		"fast partition next to one whose messages take 20 ms", "4 partitions, 100 messages/s",
	} {
		assert.Contains(t, titles, want)
	}
	assert.True(t, details > 0 && details < len(titles), "a quick run leaves out %d", details)
}

// The timed part of a log has duplicates, and is not larger than the log.
func TestLogsAreLongEnough(t *testing.T) {
	e := &env{messages: 5000, ahead: warm, behind: tail, gap: far}
	for _, p := range points() {
		log, ahead := e.log(p), e.warmUp(p.partitions)
		assert.Len(t, log.IDs, p.partitions)
		assert.Equal(t, p.value, log.ValueSize)
		assert.GreaterOrEqual(t, log.Size(), ahead+e.messages+tail/2, p.title())
		assert.GreaterOrEqual(t, ahead, p.partitions*far, p.title())
	}
}

// A consumer that fails ends the measurement with its error.
func TestConsumerFails(t *testing.T) {
	e, boom := embedded(t), errors.New("boom")
	fails := func(context.Context, job) consumer {
		return func(context.Context) error { return boom }
	}
	require.ErrorIs(t, must.Try(func() {
		e.consume(t.Context(), side{"fails", fails}, server.Log{}, noEffect,
			func(ctx context.Context, done *atomic.Int64) { await(ctx, done, 1) })
	}), boom)
}
