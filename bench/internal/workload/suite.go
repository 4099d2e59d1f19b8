// Package workload is what the Redis benchmarks measure: each file is a family of
// workloads, sides.go has the configurations of Onceward that take part, and the goals
// stand beside the pairs that have to reach them.
package workload

import (
	"context"
	"regexp"
	"slices"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/peer"
	"github.com/onceward/onceward/bench/internal/server"
)

// Env is where the workloads run.
type Env struct {
	Server *server.Server
	// Budget of one timing.
	Budget time.Duration
	// Fill is how many keys are remembered when memory is measured.
	Fill int
	// Grown is how many keys the larger of two databases remembers.
	Grown []int
	// Quick leaves out the points between others.
	Quick bool
}

// Scale is how much is measured.
type Scale struct{ Quick, Long bool }

// NewEnv scales the workloads that fill a server.
func NewEnv(s *server.Server, scale Scale) *Env {
	e := &Env{Server: s, Quick: scale.Quick, Fill: 1_000_000, Grown: []int{1_000_000}}
	switch {
	case scale.Quick:
		e.Fill, e.Grown = 50_000, []int{50_000}
	case scale.Long:
		e.Grown = append(e.Grown, 10_000_000)
	}
	return e
}

// Groups are all workloads, in the order in which they run.
func (e *Env) Groups() []harness.Group {
	var groups []harness.Group
	for _, family := range []func() []harness.Group{
		e.batches, e.duplicates, e.callers, e.delayed, e.streams, e.local, e.peers, e.results, e.memory, e.compactCPU, e.remembered,
	} {
		groups = append(groups, family()...)
	}
	for i := range groups {
		groups[i].Open = e.emptied(groups[i].Open)
	}
	return slices.DeleteFunc(groups, func(g harness.Group) bool { return g.Detail && e.Quick })
}

// emptied makes a group begin with an empty server, where it is ours: keys of the groups
// before it would lie in memory for the rest of their window.
func (e *Env) emptied(open openFunc) openFunc {
	if e.Server == nil || !e.Server.Own || e.Server.Embedded {
		return open
	}
	return func(ctx context.Context) (harness.Setup, error) {
		if err := e.Server.Empty(ctx); err != nil {
			return harness.Setup{}, err
		}
		return open(ctx)
	}
}

type openFunc = func(ctx context.Context) (harness.Setup, error)

// Choose splits groups into those whose title matches and can run on the server, and the
// titles of those that match and cannot.
func (e *Env) Choose(groups []harness.Group, match *regexp.Regexp) (chosen []harness.Group, leftOut []string) {
	for _, g := range groups {
		switch {
		case !match.MatchString(g.Title):
		case g.Memory && (e.Server.Embedded || !e.Server.Own):
			leftOut = append(leftOut, g.Title+": needs a Redis process of its own")
		case g.Own && !e.Server.Own:
			leftOut = append(leftOut, g.Title+": fills a server that others use for an hour")
		default:
			chosen = append(chosen, g)
		}
	}
	if e.Quick {
		leftOut = append(leftOut, "points between others, and large databases: a quick run, for orientation")
	}
	if peer.RedisBenchmarkPath() == "" || e.Server.Embedded {
		leftOut = append(leftOut, "redis-benchmark: it is not installed, or the server is embedded")
	}
	return chosen, leftOut
}

// Versions names the modules that take part, by their paths.
func (e *Env) Versions(ctx context.Context) (map[string]string, error) {
	versions := harness.Versions(map[string]string{
		"github.com/redis/go-redis/v9": "go-redis", "github.com/redis/rueidis": "rueidis", "github.com/bsm/redislock": "redislock",
		"github.com/go-redsync/redsync/v4": "redsync", "github.com/ThreeDotsLabs/watermill": "watermill",
		"github.com/gofiber/fiber/v2": "fiber", "github.com/gofiber/storage/redis/v3": "fiber-storage-redis",
		"github.com/alicebob/miniredis/v2": "miniredis",
	})
	var err error
	versions["redis"], err = e.Server.Version(ctx)
	return versions, err
}
