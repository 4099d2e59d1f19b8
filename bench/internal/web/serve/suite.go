package serve

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/onceward/onceward/bench/internal/database"
	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/server"
)

// Env is where the workloads run.
type Env struct {
	Redis    *server.Server
	Postgres *database.Server // nil: left out
}

// Versions of clients, servers and peers.
func (e *Env) Versions(ctx context.Context) (map[string]string, error) {
	versions := harness.Versions(map[string]string{
		"github.com/redis/go-redis/v9": "go-redis", "github.com/jackc/pgx/v5": "pgx", "github.com/gofiber/fiber/v3": "fiber-v3",
		"github.com/gofiber/storage/redis/v3": "fiber-storage-redis", "github.com/valyala/fasthttp": "fasthttp",
	})
	var err error
	if versions["redis"], err = e.Redis.Version(ctx); err == nil && e.Postgres != nil {
		versions["PostgreSQL"], err = e.Postgres.Version(ctx)
	}
	return versions, err
}

// Kind says what the servers are.
func (e *Env) Kind() string {
	kind := e.Redis.Kind()
	if e.Postgres != nil && e.Postgres.Own {
		kind += "; PostgreSQL on loopback, every commit on disk"
	}
	return kind
}

// Families of rows.
const (
	New    = "new request"
	Replay = "replay"
)

// beside is what a side's latency is compared with.
type beside struct {
	side, against string
	goal          harness.Goal
}

var family = map[string]struct {
	sides []string
	pairs []beside
}{
	New: {
		[]string{Bare, RawTwo, OursMemory, OursRedis, ByHand, OursSQL, FiberBare, FiberMemory, FiberRedis},
		[]beside{
			{RawTwo, Bare, harness.Goal{}},
			{OursMemory, Bare, harness.AtMost(2, 0)},
			{OursRedis, RawTwo, harness.AtMost(1.5, 0)},
			{OursRedis, FiberRedis, harness.AtMost(1, 0)},
			{OursSQL, ByHand, harness.AtMost(1.5, 0)},
			{FiberMemory, FiberBare, harness.Goal{}},
			{FiberRedis, FiberBare, harness.Goal{}},
		},
	},
	Replay: {
		[]string{Bare, RawOne, OursMemory, OursRedis, FiberBare, FiberMemory, FiberRedis},
		[]beside{
			{RawOne, Bare, harness.Goal{}},
			{OursMemory, Bare, harness.AtMost(2, 0)},
			{OursRedis, RawOne, harness.AtMost(1.5, 0)},
			{OursRedis, FiberRedis, harness.Goal{}},
			{FiberMemory, FiberBare, harness.Goal{}},
			{FiberRedis, FiberBare, harness.Goal{}},
		},
	},
}

// Groups are the workloads: both families, from one connection and from sixteen.
func (e *Env) Groups() []harness.Group {
	var all []harness.Group
	for _, name := range []string{New, Replay} {
		for _, callers := range []int{1, 16} {
			title := fmt.Sprintf("%s, %d connections", name, callers)
			if callers == 1 {
				title = name + ", 1 connection"
			}
			all = append(all, harness.Group{Workload: name, X: float64(callers), Title: title, Open: func(ctx context.Context) (harness.Setup, error) {
				return e.open(ctx, name, title, callers)
			}})
		}
	}
	return all
}

// needsSQL are the sides that are left out without a PostgreSQL.
var needsSQL = []string{ByHand, OursSQL}

func (e *Env) open(ctx context.Context, name, title string, callers int) (harness.Setup, error) {
	var parties []*party
	shut := func() error {
		var err error
		for _, p := range parties {
			err = errors.Join(err, p.shut())
		}
		return err
	}
	setup := harness.Setup{Multiple: callers, Close: func() { _ = shut() }}
	for _, side := range family[name].sides {
		if e.Postgres == nil && slices.Contains(needsSQL, side) {
			continue
		}
		p := &party{name: side, again: name == Replay && side != Bare && side != FiberBare}
		parties = append(parties, p)
		err := openers[side](ctx, e, p, callers)
		if err == nil {
			err = p.connect(ctx, callers)
		}
		if err != nil {
			return harness.Setup{}, errors.Join(fmt.Errorf("%s: %w", side, err), shut())
		}
		setup.Sides = append(setup.Sides, p.side())
	}
	setup.Pairs = e.pairs(name, title)
	return setup, nil
}

// pairs are the medians of each side, and how they compare; last, what is told of the 99th percentile.
func (e *Env) pairs(name, title string) []harness.Pair {
	var pairs []harness.Pair
	f := family[name]
	for _, side := range f.sides {
		if e.Postgres == nil && slices.Contains(needsSQL, side) {
			continue
		}
		compared := false
		for _, b := range f.pairs {
			if b.side == side {
				pairs = append(pairs, harness.Pair{Name: title, Side: side, Against: b.against, Metric: harness.P50, Goal: b.goal})
				compared = true
			}
		}
		if !compared {
			pairs = append(pairs, harness.Pair{Name: title, Side: side, Metric: harness.P50})
		}
	}
	for _, b := range f.pairs {
		if e.Postgres == nil && slices.Contains(needsSQL, b.side) {
			continue
		}
		pairs = append(pairs, harness.Pair{Name: title, Side: b.side, Against: b.against, Metric: harness.P99})
	}
	return pairs
}
