package owned_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/contrib/owned"
	"github.com/onceward/onceward/internal/servertest"
)

// slots is how many processes there are at a time.
const slots = 3

// process is one of them. A slot has another one after each death.
type process struct {
	child    int
	cmd      *exec.Cmd
	commands io.WriteCloser
	errors   bytes.Buffer
	ended    chan error
	killed   bool // by us
	resume   time.Time
	stopped  int64 // since when, in ns; 0 while it runs
}

// slot is a place for a process.
type slot struct {
	now    *process // nil while there is none
	again  time.Time
	wanted map[partition]bool
}

// conductor has processes consume, and kills, stops and otherwise disturbs them.
type conductor struct {
	t       *testing.T
	cfg     settings
	rng     *rand.Rand
	feed    *feed
	client  *redis.Client
	h       *history
	slots   [slots]*slot
	child   int
	count   []int32 // by source
	queue   []uint64
	sent    int
	backup  string
	backed  bool             // the backup exists
	looked  time.Time        // when it last looked for snapshots
	damaged int              // snapshots
	struck  time.Time        // when strike was last called
	stuck   int              // partitions that were not consumed
	ended   bool             // no process is started any more
	strike  func(*conductor) // called every 100 ms
}

// newConductor starts the servers and processes of a run.
func newConductor(t *testing.T, cfg settings, seed uint64, plan *plan) *conductor {
	t.Helper()
	server := servertest.Private(t, servertest.KindRedis)
	cfg.Dir, cfg.Redis = t.TempDir(), server.Addr
	c := &conductor{
		t: t, cfg: cfg, rng: rand.New(rand.NewPCG(seed, 1)), feed: newFeed(cfg.Dir),
		backup: filepath.Join(cfg.Dir, "backup"),
		client: redis.NewClient(&redis.Options{Addr: server.Addr}),
		h: &history{batch: cfg.Batch, cap: cfg.Cap, poison: map[uint64]bool{},
			deaths: map[int]int64{}},
	}
	t.Cleanup(func() { _ = c.client.Close() })
	c.cfg.Poison = c.h.poison
	for source := range cfg.Sources {
		s := &cfg.Sources[source]
		c.h.window = append(c.h.window, s.Window)
		c.h.lease, c.h.claim = max(c.h.lease, s.Lease), max(c.h.claim, s.LeaseTTL)
		c.count = append(c.count, s.Partitions)
		c.must(c.feed.setCount(uint8(source), s.Partitions))
		c.must(os.MkdirAll(snapshotDir(c.cfg.Dir, uint8(source)), 0o700))
		c.must(owned.Init(t.Context(), c.client, c.cfg.options(uint8(source))))
	}
	c.invent(plan)
	for i := range c.slots {
		c.slots[i] = &slot{wanted: map[partition]bool{}}
	}
	for _, where := range c.partitions() {
		c.slots[c.rng.IntN(slots)].wanted[where] = true
	}
	t.Cleanup(c.killAll)
	for _, s := range c.slots {
		c.start(s)
	}
	return c
}

func (c *conductor) must(err error) {
	c.t.Helper()
	require.NoError(c.t, err)
}

// partitions are all partitions of all sources.
func (c *conductor) partitions() (all []partition) {
	for source, n := range c.count {
		for part := range n {
			all = append(all, partition{uint8(source), uint16(part)})
		}
	}
	return all
}

// invent makes keys, each of which is sent one to four times, and the order in which they are.
func (c *conductor) invent(p *plan) {
	type sending struct {
		at  float64
		key uint64
	}
	var all []sending
	for n := range p.keys {
		key := uint64(n%len(c.cfg.Sources))<<56 | uint64(n)
		at := float64(n) / float64(p.keys)
		all = append(all, sending{at, key})
		c.h.sent = append(c.h.sent, key)
		for range c.rng.IntN(4) {
			// Sent again soon, as by a producer that retries, or at any later time.
			all = append(all, sending{at + c.rng.Float64()*[]float64{0.0005, 0.02,
				1 - at}[c.rng.IntN(3)], key})
		}
	}
	slices.SortStableFunc(all, func(a, b sending) int {
		switch {
		case a.at < b.at:
			return -1
		case a.at > b.at:
			return 1
		}
		return 0
	})
	for _, s := range all {
		c.queue = append(c.queue, s.key)
	}
	for range p.poison {
		// The key is of the last source, whose window does not pass. After a window its attempts
		// would be counted from zero.
		n := (p.keys/10 + c.rng.IntN(p.keys/2)) / len(c.cfg.Sources) * len(c.cfg.Sources)
		c.h.poison[c.h.sent[n+len(c.cfg.Sources)-1]] = true
	}
}

// produce sends the keys that are due when this share of the time is over.
func (c *conductor) produce(share float64) {
	due := min(len(c.queue), int(share*float64(len(c.queue))))
	keys := map[partition][]uint64{}
	for _, key := range c.queue[c.sent:max(due, c.sent)] {
		source := uint8(key >> 56)
		where := partition{source, partitionOf(key, c.count[source])}
		keys[where] = append(keys[where], key)
	}
	c.sent = max(due, c.sent)
	now := time.Now().UnixNano()
	for where, some := range keys {
		for _, key := range some {
			c.h.sendings = append(c.h.sendings, sending{key, where, now})
		}
		c.must(c.feed.produce(where, some))
	}
}

// start starts a process in a slot.
func (c *conductor) start(s *slot) {
	c.t.Helper()
	c.child++
	cfg := c.cfg
	cfg.Child = c.child
	text, err := json.Marshal(cfg)
	c.must(err)
	p := &process{child: c.child, ended: make(chan error, 1)}
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	p.cmd.Stderr = &p.errors
	p.commands, err = p.cmd.StdinPipe()
	c.must(err)
	c.must(p.cmd.Start())
	go func() { p.ended <- p.cmd.Wait() }()
	s.now = p
	for where := range s.wanted {
		c.say(s, "want", where)
	}
}

// say sends a command to the process of a slot. If there is none, start sends the wanted partitions
// to the next process.
func (c *conductor) say(s *slot, what string, where partition) {
	if s.now != nil {
		_, _ = fmt.Fprintln(s.now.commands, what, where.source, where.part)
	}
}

func (c *conductor) want(s *slot, where partition) {
	if !s.wanted[where] {
		s.wanted[where] = true
		c.say(s, "want", where)
	}
}

func (c *conductor) drop(s *slot, where partition) {
	if s.wanted[where] {
		delete(s.wanted, where)
		c.say(s, "drop", where)
	}
}

// look removes the processes that have died, wakes those that were stopped for long enough, and
// starts those that are due.
func (c *conductor) look() {
	c.t.Helper()
	c.backUp()
	for _, s := range c.slots {
		if s.now == nil {
			if !c.ended && time.Now().After(s.again) {
				c.start(s)
			}
			continue
		}
		if s.now.stopped > 0 && time.Now().After(s.now.resume) {
			c.wake(s)
		}
		select {
		case err := <-s.now.ended:
			c.buried(s, err)
		default:
		}
	}
}

// buried looks at how a process has ended.
func (c *conductor) buried(s *slot, err error) {
	c.t.Helper()
	var exit *exec.ExitError
	var status syscall.WaitStatus
	if errors.As(err, &exit) {
		status, _ = exit.Sys().(syscall.WaitStatus)
	}
	killed, finished := status.Signaled() && status.Signal() == syscall.SIGKILL,
		c.ended && err == nil
	assert.False(c.t, !killed && !finished, "process %d ended with %v", s.now.child, err)
	if text := s.now.errors.String(); text != "" {
		c.t.Logf("process %d said: %.2000s", s.now.child, text)
	}
	s.now, s.again = nil, time.Now().Add(time.Duration(c.rng.IntN(250))*time.Millisecond)
}

func (c *conductor) wake(s *slot) {
	c.h.pauses = append(c.h.pauses, pause{s.now.child, s.now.stopped, time.Now().UnixNano()})
	s.now.stopped = 0
	_ = s.now.cmd.Process.Signal(syscall.SIGCONT)
	for _, where := range sorted(s.wanted) {
		if c.others(s, where) > 0 && c.rng.IntN(2) == 0 {
			c.drop(s, where)
		}
	}
}

// others counts the other slots that want a partition.
func (c *conductor) others(s *slot, where partition) (n int) {
	for _, other := range c.slots {
		if other != s && other.wanted[where] {
			n++
		}
	}
	return n
}

func sorted(all map[partition]bool) (some []partition) {
	for where := range all {
		some = append(some, where)
	}
	slices.SortFunc(some, func(a, b partition) int {
		return int(a.source)<<16 + int(a.part) - int(b.source)<<16 - int(b.part)
	})
	return some
}

// running is a random slot whose process runs; nil when there is none.
func (c *conductor) running() *slot {
	var some []*slot
	for _, s := range c.slots {
		if s.now != nil && s.now.stopped == 0 {
			some = append(some, s)
		}
	}
	if len(some) == 0 {
		return nil
	}
	return some[c.rng.IntN(len(some))]
}

// other is a random slot that is not this one.
func (c *conductor) other(s *slot) *slot {
	for {
		if o := c.slots[c.rng.IntN(slots)]; o != s {
			return o
		}
	}
}

func (c *conductor) killAll() {
	c.ended = true
	for _, s := range c.slots {
		if s != nil && s.now != nil {
			_ = s.now.cmd.Process.Kill()
			<-s.now.ended
			s.now = nil
		}
	}
}
