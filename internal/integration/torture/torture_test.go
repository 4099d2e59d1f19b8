package torture_test

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/integration/internal/results"
	"github.com/onceward/onceward/internal/servertest"
)

const (
	profileEnv   = "ONCEWARD_TORTURE"       // smoke (the default), ci, full or soak
	defaultLease = 800 * time.Millisecond   // of a claim
	timeout      = 250 * time.Millisecond   // of a command
	outDefault   = 4 * time.Minute          // after which a row counts as stuck
	resultsEnv   = "ONCEWARD_TORTURE_TABLE" // bench/results/torture.json, if rows are to be kept
)

var profile = cmp.Or(os.Getenv(profileEnv), "smoke")

// TestTorture runs every row of the profile over all of its compositions.
func TestTorture(t *testing.T) {
	if profile == "soak" {
		last, err := time.ParseDuration(cmp.Or(os.Getenv("ONCEWARD_TORTURE_FOR"), "1h"))
		require.NoError(t, err)
		soak(t, last)
		return
	}
	torture(t, profile, keep)
}

// torture runs the rows and passes the result of each to keep.
func torture(t *testing.T, profile string, keep func(*conductor, results.Row)) {
	t.Helper()
	common := servertest.Private(t, servertest.KindRedis)
	for i := range rows {
		r := &rows[i]
		size, wanted := r.sizes[profile]
		if !wanted {
			continue
		}
		t.Run(r.id, func(t *testing.T) {
			t.Parallel() // the last of a row must not run alone
			of := r.compositions
			switch {
			case profile == "smoke" && r.smoke != nil:
				of = r.smoke
			case profile == "soak" && r.soak != nil:
				of = r.soak
			}
			for _, name := range of {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					r.torture(t, name, size, common, keep)
				})
			}
		})
	}
}

// TestSmokeHasEverything: the profile of make test has each row, each composition, and at least the
// rows that ci has.
func TestSmokeHasEverything(t *testing.T) {
	left := maps.Clone(compositions)
	for i := range rows {
		r := &rows[i]
		assert.Contains(t, r.sizes, "smoke", r.id)
		of := r.compositions
		if r.smoke != nil {
			of = r.smoke
		}
		for _, name := range of {
			assert.Contains(t, r.compositions, name, r.id)
			delete(left, name)
		}
	}
	assert.Empty(t, left, "compositions that no row of smoke has")
}

// seedOf returns the seed. It decides what happens, but not when.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("ONCEWARD_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("repeat with ONCEWARD_SEED=%d; the timing depends on the machine", seed)
		}
	})
	return seed
}

// torture runs a row over a composition. A row that does nothing to Redis uses the common server.
func (r *row) torture(t *testing.T, name string, size size, common *servertest.Server,
	keep func(*conductor, results.Row)) {
	t.Helper()
	began := time.Now()
	made := compositions[name]
	cfg := settings{
		Seed: seedOf(t), Composition: name, Prefix: servertest.Prefix(t), Fates: r.fates,
		Lease: defaultLease, Timeout: timeout,
	}
	if r.lease > 0 {
		cfg.Lease = r.lease
	}
	if name == "layered" { // a completion goes to two servers within a lease
		cfg.Lease *= 3
	}
	c := newConductor(t, r, cfg, size)
	s := c.serve(made.needs, common)
	if r.nemeses != nil {
		c.nemesis = r.nemeses(c, s, size.strikes)
	}
	stop := c.probe()
	c.run(outDefault + time.Duration(size.messages*size.times)*10*time.Millisecond)
	stop()
	h := newHistory()
	h.lease, h.messages, h.atomic, h.allowed = int64(c.cfg.Lease), size.messages, made.atomic,
		r.allowed[made.level]
	h.undecided = r.checkResult == either
	if made.atomic {
		h.sink = c.sink(name)
	}
	c.must(h.read(c.cfg.Dir))
	v := judge(h)
	r.sentence(t, c, h, v)
	keep(c, r.result(c, h, v, time.Since(began)))
}

// sentence fails the test for the problems that the judge has found.
func (r *row) sentence(t *testing.T, c *conductor, h *history, v *checkResult) {
	t.Helper()
	want := r.checkResult
	if want == "" {
		want = porcupine.Ok
	}
	assert.False(t, v.linear != want && want != either, "Porcupine says %s of %d operations",
		v.linear, v.operations)
	assert.Zero(t, v.lost+v.doubled+v.stuck+v.selfDuplicates,
		"lost %d, doubled %d, stuck %d, own claims taken for others' %d", v.lost, v.doubled,
		v.stuck, v.selfDuplicates)
	if t.Failed() {
		for _, text := range append(v.problems, c.said[:min(len(c.said), 20)]...) {
			t.Log(text)
		}
	}
	// a late COMMIT has a goroutine
	assert.False(t, c.mostLeft > 0 && c.cfg.Cut == 0,
		"%d goroutines were left when all was closed; %q", c.mostLeft, c.said)
	for _, name := range r.counts {
		assert.NotZero(t, c.faults(h)[name], "%q did not happen", name)
	}
	for _, name := range r.none {
		n := c.faults(h)[name]
		assert.Zero(t, n, "%q happened %d times", name, n)
	}
	r.met(t, h)
	t.Logf("%v of processors; %d messages, %d deliveries, %d effects, %d processes, %d dead, faults %v; second effects %v; %d operations in %v: %s; refused %v",
		c.used.Round(100*time.Millisecond), h.messages, c.source.given, h.runs,
		c.child, len(h.deaths),
		c.faults(h), v.explained, v.operations, v.took.Round(time.Millisecond), v.linear, c.refused)
}

// met requires that deliveries have met the points of the row. In smoke two or three deliveries are
// sent to each point, in ci three or four, and each of them may find that another delivery has the
// message. So points that no delivery met are only logged there if one point was met in smoke, or
// if they are at most a third of the points in ci.
func (r *row) met(t *testing.T, h *history) {
	t.Helper()
	var wanted, missed []point
	for p := live + 1; p < points; p++ {
		if r.quota == nil || !r.quota(p) {
			continue
		}
		wanted = append(wanted, p)
		if h.points[p] == 0 {
			missed = append(missed, p)
		}
	}
	if len(missed) == 0 {
		return
	}
	if !assert.LessOrEqual(t, len(missed),
		map[string]int{"smoke": len(wanted) - 1,
			"ci": len(wanted) / 3}[profile], "no delivery met") {
		return
	}
	t.Logf("no delivery met %v", missed)
}

// faults counts the faults that were caused.
func (c *conductor) faults(h *history) map[string]int {
	all := map[string]int{}
	for p, n := range h.points {
		all[p.String()] = n
	}
	for _, n := range c.nemesis {
		all[n.name] = n.begun
	}
	for how, n := range h.cuts {
		if n > 0 {
			all["COMMIT "+[...]string{"not delivered", "not answered", "late"}[how]] = n
		}
	}
	if n := c.slow.Load(); n > 0 {
		all["slow"] = int(n)
	}
	for name, n := range maps.All(c.counted) {
		all[name] = n
	}
	return all
}

// serve starts the servers that a composition needs, and makes its tables.
func (c *conductor) serve(needs need, common *servertest.Server) *servers {
	c.t.Helper()
	s := &servers{}
	if needs&needRedis != 0 {
		s.redis = common
		switch {
		case c.row.pair:
			s.redis = servertest.Private(c.t, servertest.KindRedisPair)
		case c.row.clock:
			s.redis = servertest.Private(c.t, servertest.KindRedisClock)
		case c.row.breaksRedis:
			s.redis = servertest.Private(c.t, servertest.KindRedis)
		}
		c.cfg.Redis = s.redis.Addr
		if c.row.pair {
			s.pair = newPair(c, s.redis)
			c.cfg.Redis = s.pair.name
		}
		c.notesRedis(s.redis.Addr)
		s.client = redis.NewClient(&redis.Options{Addr: c.cfg.Redis})
		c.t.Cleanup(func() { _ = s.client.Close() })
		c.probes = append(c.probes, func(ctx context.Context) error {
			return s.client.Ping(ctx).Err() // a full server answers it too
		})
	}
	if needs&needCluster != 0 {
		s.nodes = newNodes(c)
		c.cfg.Redis = strings.Join(s.nodes.Addrs, ",")
		c.notesRedis(s.nodes.Addr)
		s.client = (&worker{cfg: &c.cfg}).client()
		c.t.Cleanup(func() { _ = s.client.Close() })
		for _, key := range []string{"probe{a}", "probe{b}", "probe{c}"} { // one for each master
			c.probes = append(c.probes, func(ctx context.Context) error {
				return s.client.Set(ctx, key, 1, time.Minute).Err()
			})
		}
	}
	if needs&needPostgres != 0 {
		if c.cfg.Postgres = servertest.Postgres(c.t); c.row.private || c.row.clock {
			c.cfg.Postgres = c.ownPostgres(s)
		}
		c.migrate(onPostgres)
	}
	if needs&needMariaDB != 0 {
		c.cfg.MariaDB = servertest.MariaDB(c.t)
		c.migrate(onMariaDB)
	}
	return s
}

// notesRedis notes the server's own name and version. Valkey also names its compatible Redis.
func (c *conductor) notesRedis(addr string) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = client.Close() }()
	info, err := client.InfoMap(c.t.Context(), "server").Result()
	c.must(err)
	if version := info["Server"]["valkey_version"]; version != "" {
		c.versions["valkey"] = version
		return
	}
	c.versions["redis"] = info["Server"]["redis_version"]
}
