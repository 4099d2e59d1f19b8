package owned_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// plan is how much happens in a run.
type plan struct {
	keys, poison int
	during       time.Duration // of the faults
	drain        time.Duration // at most, afterwards
	faults       map[string]int
	quota        counts
	row          bool // a row is written to bench/results/torture.json
}

var faults = map[string]fault{
	"kill": kill, "stop": stop, "falter": falter, "hand over": handOver, "race": race,
	"restore": restore, "raise": raise,
}

// TestTorture: processes are killed, stopped and woken; partitions are handed over, and acquired by
// two processes at once; snapshots are restored, and counts raised. Every key has its effect once,
// except where the documentation says otherwise.
func TestTorture(t *testing.T) {
	t.Parallel()
	seed, p, began := seedOf(t), size, time.Now()
	c := newConductor(t, twoSources(p.keys), seed, &p)
	c.run(&p)
	v := c.judge(seed, &p.quota)
	if p.row {
		c.keep(v, seed, time.Since(began))
	}
}

// twoSources are one whose window passes several times, and one whose does not.
func twoSources(keys int) settings {
	short := sourceSettings{
		Partitions: 4, Window: 6 * time.Second, Hold: 2 * time.Second, Slices: 4,
		Lease:    480 * time.Millisecond,
		LeaseTTL: 160 * time.Millisecond, ExpectedKeys: 5000, Snapshots: true,
	}
	long := short
	long.Window, long.Hold = time.Hour, 10*time.Second
	long.ExpectedKeys = max(long.ExpectedKeys, keys/2/int(long.Partitions)*5/4)
	return settings{Sources: []sourceSettings{short, long}, Batch: 64, Cap: 3, Slow: 3001,
		Failing: 307, Dawdling: 29}
}

// seedOf returns the seed, which decides the events, but not their times.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("ONCEWARD_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("ONCEWARD_SEED=%d", seed)
	return seed
}

// run runs the whole plan, up to the end of all processes.
func (c *conductor) run(p *plan) {
	c.perform(p)
	c.encore(p)
	c.drain(p.drain)
	c.finish()
}

// perform causes the faults, one after another, and sends the messages meanwhile.
func (c *conductor) perform(p *plan) {
	score := c.score(p)
	every := p.during / time.Duration(len(score)+2)
	began := time.Now()
	next := began.Add(every)
	for len(score) > 0 || time.Since(began) < p.during {
		c.look()
		c.produce(float64(time.Since(began)) / float64(p.during))
		if len(score) > 0 && time.Now().After(next) && faults[score[0]](c) {
			score = score[1:]
			next = next.Add(every/2 + time.Duration(c.rng.Int64N(int64(every))))
		}
		if c.strike != nil && time.Since(c.struck) > 100*time.Millisecond {
			c.struck = time.Now()
			c.strike(c)
		}
		pauseFor(c.t.Context(), 2*time.Millisecond)
	}
	c.produce(1)
}

// encore restores old snapshots, and hands over their partitions. The plan alone may not have done
// so, because the seed does not decide when snapshots are written.
func (c *conductor) encore(p *plan) {
	if p.faults["restore"] == 0 {
		return
	}
	for began := time.Now(); !c.backed && time.Since(began) < 4*time.Second; {
		c.look()
		pauseFor(c.t.Context(), 5*time.Millisecond)
	}
	restore(c)
	for part := range c.count[0] {
		c.move(partition{0, uint16(part)}, 1)
	}
}

// score is the order of the faults. Snapshots are restored in the second half: there are none at
// first.
func (c *conductor) score(p *plan) (score []string) {
	for _, name := range slices.Sorted(maps.Keys(p.faults)) {
		if name != "restore" {
			score = append(score, slices.Repeat([]string{name}, p.faults[name])...)
		}
	}
	c.rng.Shuffle(len(score), func(i, j int) { score[i], score[j] = score[j], score[i] })
	for n := range p.faults["restore"] {
		at := len(score)/2 + n*(len(score)/2)/max(p.faults["restore"], 1)
		score = slices.Insert(score, at, "restore")
	}
	return score
}

// drain waits until everything is consumed, with one process for each partition.
func (c *conductor) drain(limit time.Duration) {
	c.t.Helper()
	for _, where := range c.partitions() {
		keep := c.slots[c.rng.IntN(slots)]
		for _, s := range c.slots {
			if s.wanted[where] {
				keep = s
			}
		}
		for _, s := range c.slots {
			if s != keep {
				c.drop(s, where)
			}
		}
		c.want(keep, where)
	}
	began := time.Now()
	for {
		c.look()
		left := c.left()
		if len(left) == 0 {
			c.t.Logf("consumed %v after the last fault", time.Since(began).Round(time.Millisecond))
			return
		}
		if time.Since(began) > limit {
			c.stuck = len(left)
			c.t.Errorf("not consumed within %v: %v", limit, left)
			return
		}
		pauseFor(c.t.Context(), 5*time.Millisecond)
	}
}

// left are the partitions that have something left.
func (c *conductor) left() (all []string) {
	for _, where := range c.partitions() {
		done, err := c.feed.drained(where)
		c.must(err)
		if !done {
			at, _ := c.feed.committed(where)
			all = append(all, fmt.Sprintf("%v from %d on", where, at))
		}
	}
	return all
}

// finish has all processes end in good order.
func (c *conductor) finish() {
	c.t.Helper()
	c.ended = true
	for _, s := range c.slots {
		if s.now == nil {
			continue
		}
		if s.now.stopped > 0 {
			c.wake(s)
		}
		_ = s.now.commands.Close()
		c.buried(s, <-s.now.ended)
	}
}

// table returns the counts of the run, and its result.
func (c *conductor) table(v *checkResult) string {
	n := &c.h.counts
	var b strings.Builder
	line := func(what string, of any) { fmt.Fprintf(&b, "%-46s%v\n", what, of) }
	line("keys", len(c.h.sent))
	line("messages", len(c.queue))
	line("effects", len(c.h.runs))
	line("  claimed on a filter's word", c.h.provenRuns())
	line("answers: new, maybe, unknown, of them too full",
		fmt.Sprint(n.proven, n.maybe, n.unknown, n.saturated))
	line("kills", n.kills)
	line("processes killed by a key", len(c.h.deaths)-n.kills)
	line("handovers", n.handovers)
	line("  effects that ran on through a release", n.running)
	line("stops past the lease", n.stops)
	line("counts raised", n.raised)
	line("snapshots saved, loaded, restored", fmt.Sprint(n.saved, n.loaded, n.restored))
	line("marks seen on the wire", n.marks)
	line("lost", v.lost)
	line("doubled without a reason", v.doubled)
	for _, why := range []string{expired, died, superseded, stopped, lapsed} {
		line("  second effects, "+why, v.explained[why])
	}
	line("turns accepted from a stale epoch", v.stale)
	line("keys that kill with all their attempts",
		fmt.Sprintf("%d of %d", v.capped, len(c.h.poison)))
	line("other problems", v.other)
	return b.String()
}

func (h *history) provenRuns() (n int) {
	for i := range h.runs {
		if h.runs[i].proven {
			n++
		}
	}
	return n
}

// judge reads the ledgers and judges them.
func (c *conductor) judge(seed uint64, quota *counts) *checkResult {
	c.t.Helper()
	c.must(c.h.read(c.cfg.Dir))
	v := judge(c.h)
	c.t.Logf("\n%s", c.table(v))
	for _, p := range v.problems {
		c.t.Error(p)
	}
	assert.False(c.t, len(c.h.poison) > 0 && v.capped == 0,
		"no key that kills had all its attempts")
	assert.Empty(c.t, c.h.counts.short(quota), "too little has happened")
	if c.t.Failed() {
		c.t.Logf("again with ONCEWARD_SEED=%d; what happens in between is not the same", seed)
	}
	return v
}
