// Package httpbench times requests with an Idempotency-Key over real connections of loopback: a
// handler behind the middleware of httpadapter, the same handler bare, bare with the round trips
// that no middleware can do without, and behind what else people use.
package httpbench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/sqladapter"
)

// Suite is requests.
var Suite = harness.Suite{
	Area: "http", About: "requests through httpadapter next to their limits and peers",
	Full:  harness.Scale{Rounds: 7, Keys: 50_000, Budget: 300 * time.Millisecond},
	Quick: harness.Scale{Rounds: 3, Keys: 50_000, Budget: 50 * time.Millisecond},
	Open: func(ctx context.Context, o harness.Options, b *harness.Bench) {
		b.LeaveOut("github.com/repenguin22/idemlease, which the Go module proxy does not have")
		b.Modules = []string{"go-redis", "pgx", "fiber-v3", "fiber-storage-redis", "fasthttp"}
		e := &env{redis: server.Open(ctx, b, o.Redis)}
		b.Between = e.redis.Clear
		e.postgres = server.OpenDatabase(ctx, b, sqladapter.Postgres, o.Postgres)
		b.Groups = e.groups()
	},
}

type env struct {
	redis    *server.Redis
	postgres *server.Database // nil: left out
}

// Families of rows.
const (
	New    = "new request"
	Replay = "replay"
)

type compared struct {
	side, against string
	goal          harness.Goal
}

// family has the sides of a workload, and what they are compared with.
var family = map[string]struct {
	sides []string
	pairs []compared
}{
	New: {
		[]string{bareSide, rawTwo, oursMemory, oursRedis, byHandSide, oursSQL, fiberBare,
			fiberMemory, fiberRedis},
		[]compared{
			{side: rawTwo, against: bareSide},
			{oursMemory, bareSide, "<= 2x"},
			{oursRedis, rawTwo, "<= 1.5x"},
			{oursRedis, fiberRedis, "<= 1x"},
			{oursSQL, byHandSide, "<= 1.5x"},
			{side: fiberMemory, against: fiberBare},
			{side: fiberRedis, against: fiberBare},
		},
	},
	Replay: {
		[]string{bareSide, rawOne, oursMemory, oursRedis, fiberBare, fiberMemory, fiberRedis},
		[]compared{
			{side: rawOne, against: bareSide},
			{oursMemory, bareSide, "<= 2x"},
			{oursRedis, rawOne, "<= 1.5x"},
			{side: oursRedis, against: fiberRedis},
			{side: fiberMemory, against: fiberBare},
			{side: fiberRedis, against: fiberBare},
		},
	},
}

// groups are the workloads: both families, from one connection and from sixteen.
func (e *env) groups() (all harness.Groups) {
	for _, name := range []string{New, Replay} {
		for _, callers := range []int{1, 16} {
			title := fmt.Sprintf("%s, %s", name, harness.Count(callers, "connection"))
			all.Add(name, callers, title, func(ctx context.Context, s *harness.Setup) {
				s.Multiple = callers
				for _, side := range e.sides(name) {
					again := name == Replay && side != bareSide && side != fiberBare
					s.Sides = append(s.Sides, e.newParty(ctx, s, side, again, callers).side())
				}
				e.compare(s, name)
			})
		}
	}
	return all
}

// needsSQL are the sides that are left out without a PostgreSQL.
var needsSQL = []string{byHandSide, oursSQL}

func (e *env) sides(name string) []string {
	return slices.DeleteFunc(slices.Clone(family[name].sides), func(side string) bool {
		return e.postgres == nil && slices.Contains(needsSQL, side)
	})
}

// compare adds the medians of each side, and how they compare; last, the 99th percentiles.
func (e *env) compare(s *harness.Setup, name string) {
	for _, metric := range []harness.Metric{harness.P50, harness.P99} {
		s.Metric = metric
		for _, side := range e.sides(name) {
			alone := metric == harness.P50
			for _, c := range family[name].pairs {
				if c.side == side {
					s.Compare(side, c.against).Wants(harness.When(metric == harness.P50, c.goal))
					alone = false
				}
			}
			if alone {
				s.Compare(side, "")
			}
		}
	}
}
