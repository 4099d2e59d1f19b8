package others_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// resultsEnv is bench/results/torture-others.json if everything is to run and its results are kept.
const resultsEnv = "ONCEWARD_OTHERS_TABLE"

// small is the part in `make test`: the harness finds faults, and our library keeps its promises.
var small = map[string][]string{
	"SET NX, DEL on failure": {"before"},
	"check, then set":        {"close"},
	"onceward, Claimed":      {"close", "after", "fails", "reply"},
	"onceward, Atomic":       {"in", "reply"},
}

// TestOthers runs every scenario over every rival.
func TestOthers(t *testing.T) {
	full := os.Getenv(resultsEnv) != ""
	of := size{messages: 40, every: 8, quiet: 20 * time.Second}
	if full {
		of = size{messages: 400, every: 10, quiet: 20 * time.Second}
	}
	for _, r := range rivals {
		for _, s := range scenarios {
			wanted := full
			for _, id := range small[r.name] {
				wanted = wanted || id == s.id
			}
			if !wanted || !s.applies(r) {
				continue
			}
			t.Run(s.id+"/"+r.name, func(t *testing.T) {
				t.Parallel()
				of := of
				if s.fate == stopped {
					of.every *= 2 // a stop takes two leases, and another process must take over
				}
				measure(t, r, s, of)
			})
		}
	}
}

// measure runs a row. If a process got no processor for a third of a lease, the counts may be the
// machine's fault, and measure runs the row again.
func measure(t *testing.T, r *rival, s *scenario, of size) {
	t.Helper()
	seed := seedOf(t)
	const tries = 3
	for try := 1; ; try++ {
		began := time.Now()
		c := newConductor(t, r, s, seed, of)
		c.serve()
		c.run()
		got := c.judge()
		t.Logf("%d messages, %d deliveries: %+v; faults %v; refused %v; %v", of.messages,
			c.source.given, got, c.faults, c.refused, time.Since(began).Round(time.Millisecond))
		if c.faults["stalls"] > 0 && try < tries {
			continue
		}
		c.sentence(got)
		keep(t, c, got, seed, time.Since(began))
		return
	}
}

func seedOf(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64() >> 1
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

// judge reads the records of the run.
func (c *conductor) judge() count {
	c.t.Helper()
	records, err := readLedgers(c.cfg.Dir)
	c.must(err)
	e := evidence{messages: c.size.messages, records: records, ownerless: c.ownerless,
		unfinished: map[uint32]bool{}}
	for m, left := range c.messages {
		if left > 0 {
			e.unfinished[m] = true
		}
	}
	if c.rival.atomic {
		e.rows = c.rows()
	}
	for _, r := range records {
		if r.kind == stalled && !c.stops[int(r.child)] {
			c.faults["stalls"]++
		}
	}
	met, err := filepath.Glob(filepath.Join(c.cfg.Dir, "fate-*"))
	c.must(err)
	switch {
	case c.scenario.fate == fails:
		c.faults["failures"] = len(met)
	case c.proxy != nil:
		c.faults["replies lost"] = c.proxy.Stats().RepliesDropped
	case c.scenario.reply:
		c.faults["replies lost"] = len(met)
	}
	return judge(e)
}

// sentence fails the test if our library breaks its promise, if no message ran, or if the harness
// misses a fault that must be there.
func (c *conductor) sentence(got count) {
	c.t.Helper()
	assert.False(c.t,
		c.rival.promises[c.scenario.id]&got.found() != 0 && c.rival.module == ours &&
			c.faults["stalls"] == 0, "lost %d, doubled %d, stuck %d: more than is promised",
		got.lost,
		got.doubled, got.stuck)
	wanted := map[fate]string{killedBefore: "kills", killedIn: "kills", killedAfter: "kills",
		stopped: "stops", fails: "failures", replyLost: "replies lost"}[c.scenario.fate]
	if c.scenario.restarts > 0 {
		wanted = "restarts"
	}
	assert.False(c.t, wanted != "" && c.faults[wanted] == 0, "there were no %s: %v", wanted,
		c.faults)
	for _, sure := range certain {
		assert.False(c.t,
			sure.rival == c.rival.name && sure.scenario == c.scenario.id &&
				got.found()&sure.found == 0, "%+v: nothing of %v, which cannot be", got, sure.found)
	}
	if c.t.Failed() {
		for _, text := range c.said {
			c.t.Log(text)
		}
	}
}

// certain are the faults that the harness must find: if it misses these, it would miss any.
var certain = []struct {
	rival, scenario string
	found           promise
}{
	{"SET NX, DEL on failure", "before", neverLost},
	{"check, then set", "close", neverDoubled},
	{"onceward, Claimed", "after", neverDoubled},
	{"INSERT in a CTE", "fails", neverStuck},
}

// found returns which of the counts are not zero.
func (c count) found() (p promise) {
	for of, n := range map[promise]int{neverLost: c.lost, neverDoubled: c.doubled,
		neverStuck: c.stuck} {
		if n > 0 {
			p |= of
		}
	}
	return p
}

// String returns the names of the counts.
func (p promise) String() string {
	return fmt.Sprintf("%03b", uint8(p))
}
