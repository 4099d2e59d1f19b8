package torture_test

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/internal/servertest"
)

const (
	profileEnv   = "ONCEWARD_TORTURE"       // smoke, ci, full or soak
	defaultLease = 800 * time.Millisecond   // of a claim
	timeout      = 250 * time.Millisecond   // of a command
	outDefault   = 2 * time.Minute          // after which a row has hung
	resultsEnv   = "ONCEWARD_TORTURE_TABLE" // bench/results/torture.json, where a row is to be kept
)

var profile = cmp.Or(os.Getenv(profileEnv), "smoke")

// TestTorture runs every row of the profile over every composition that it is for. A soak is rounds of those
// of ci, each with other seeds, until its time is over.
func TestTorture(t *testing.T) {
	if profile != "soak" {
		torture(t, profile)
		return
	}
	last, err := time.ParseDuration(cmp.Or(os.Getenv("ONCEWARD_TORTURE_FOR"), "1h"))
	if err != nil {
		t.Fatal(err)
	}
	for began, n := time.Now(), 1; time.Since(began) < last && !t.Failed(); n++ {
		t.Run("round"+strconv.Itoa(n), func(t *testing.T) { torture(t, "ci") })
	}
}

func torture(t *testing.T, profile string) {
	for i := range rows {
		r := &rows[i]
		size, wanted := r.sizes[profile]
		if !wanted {
			continue
		}
		t.Run(r.id, func(t *testing.T) {
			of := r.compositions
			if profile == "smoke" && r.smoke != nil {
				of = r.smoke
			}
			for _, name := range of {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					r.torture(t, name, size)
				})
			}
		})
	}
}

// seedOf is what decides what happens, but not when.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("ONCEWARD_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("again with ONCEWARD_SEED=%d; what happens when is the machine's", seed)
		}
	})
	return seed
}

// torture is a row over a composition.
func (r *row) torture(t *testing.T, name string, size size) {
	began := time.Now()
	made := compositions[name]
	cfg := settings{
		Seed: seedOf(t), Composition: name, Prefix: servertest.Prefix(t), Fates: r.fates, Lease: defaultLease, Timeout: timeout,
	}
	if r.lease > 0 {
		cfg.Lease = r.lease
	}
	if name == "layered" { // an end has two servers to go to within it
		cfg.Lease *= 3
	}
	c := newConductor(t, r, cfg, size)
	s := c.serve(made.needs)
	if r.nemeses != nil {
		c.nemesis = r.nemeses(c, s, size.strikes)
	}
	stop := c.probe()
	c.run(outDefault + time.Duration(size.messages*size.times)*10*time.Millisecond)
	stop()
	h := newHistory()
	h.lease, h.messages, h.atomic, h.allowed = int64(c.cfg.Lease), size.messages, made.atomic, r.allowed[made.level]
	if made.atomic {
		h.sink = c.sink(name)
	}
	c.must(h.read(c.cfg.Dir))
	v := judge(h)
	r.sentence(t, c, h, v)
	r.keep(t, c, h, v, time.Since(began))
}

// sentence fails the test for what the judge has found.
func (r *row) sentence(t *testing.T, c *conductor, h *history, v *verdict) {
	t.Helper()
	want := r.verdict
	if want == "" {
		want = porcupine.Ok
	}
	if v.linear != want && want != either {
		t.Errorf("Porcupine says %s of %d operations", v.linear, v.operations)
	}
	if v.lost+v.doubled+v.stuck+v.selfDuplicates > 0 {
		t.Errorf("lost %d, doubled %d, stuck %d, own claims taken for others' %d", v.lost, v.doubled, v.stuck, v.selfDuplicates)
	}
	if t.Failed() {
		for _, text := range append(v.problems, c.said[:min(len(c.said), 20)]...) {
			t.Log(text)
		}
	}
	for _, name := range r.counts {
		if c.faults(h)[name] == 0 {
			t.Errorf("%q has not happened", name)
		}
	}
	for p := live + 1; p < points; p++ {
		if r.quota != nil && r.quota(p) && h.points[p] == 0 {
			t.Errorf("nobody has met %v", p)
		}
	}
	t.Logf("%d messages, %d deliveries, %d effects, %d processes, %d dead, faults %v; second effects %v; %d operations in %v: %s; refused %v",
		h.messages, c.source.given, h.runs, c.child, len(h.deaths), c.faults(h), v.explained, v.operations, v.took.Round(time.Millisecond), v.linear, c.refused)
}

// faults counts what was done.
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

// serve starts what a composition needs, and makes its tables.
func (c *conductor) serve(needs need) *servers {
	c.t.Helper()
	s := &servers{}
	if needs&needRedis != 0 {
		kind := servertest.KindRedis
		if c.row.pair {
			kind = servertest.KindRedisPair
		}
		s.redis = servertest.Private(c.t, kind)
		c.cfg.Redis = s.redis.Addr
		if c.row.pair {
			s.pair = newPair(c, s.redis)
			c.cfg.Redis = s.pair.name
		}
		s.client = redis.NewClient(&redis.Options{Addr: c.cfg.Redis})
		c.t.Cleanup(func() { _ = s.client.Close() })
		c.probes = append(c.probes, func(ctx context.Context) error {
			return s.client.Ping(ctx).Err() // which is answered when it is full, too
		})
	}
	if needs&needPostgres != 0 {
		if c.cfg.Postgres = servertest.Postgres(c.t); c.row.private {
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
