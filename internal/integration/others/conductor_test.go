package others_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/redisproxy"
	"github.com/onceward/onceward/internal/servertest"
)

// process is a worker. A slot has another one after each death.
type process struct {
	child  int
	cmd    *exec.Cmd
	in     io.WriteCloser
	errors bytes.Buffer
	ready  bool
	going  map[uint64]*item // by the id of its copy
	given  map[uint64]time.Time
	since  time.Time // stopped, or zero
}

// event is a line that a process has printed, or its end.
type event struct {
	slot, child int
	line        string
	ended       bool
	err         error
}

// conductor has processes handle the messages that the source delivers, and causes the faults of a
// scenario.
type conductor struct {
	t        *testing.T
	rival    *rival
	scenario *scenario
	cfg      settings
	size     size
	source   *source
	slots    []*process
	events   chan event
	child    int
	ended    bool
	stops    map[int]bool // processes that were stopped
	faults   map[string]int
	refused  map[string]int
	said     []string

	redis  *servertest.Server
	client *redis.Client
	proxy  *redisproxy.Proxy

	out       map[uint32]int       // deliveries of a message that are under way
	owned     map[uint32]time.Time // when the last of them ended that may have been an owner
	ownerless map[uint32]bool
	messages  map[uint32]int // copies that are not acknowledged
}

// size is how many messages there are, and in how many of them one meets the scenario's fate.
type size struct {
	messages int
	every    uint32
	quiet    time.Duration // after which, without an acknowledgement, the rest is stuck
}

func newConductor(t *testing.T, r *rival, s *scenario, seed uint64, of size) *conductor {
	t.Helper()
	processes := s.slots
	if r.alone {
		processes = 1
	}
	c := &conductor{
		t: t, rival: r, scenario: s, size: of,
		source: newSource(seed, of.messages, s.copies, s.order), slots: make([]*process, processes),
		events: make(chan event, 1024), stops: map[int]bool{}, faults: map[string]int{},
		refused: map[string]int{},
		out:     map[uint32]int{}, owned: map[uint32]time.Time{}, ownerless: map[uint32]bool{},
		messages: map[uint32]int{},
		cfg: settings{Dir: t.TempDir(), Rival: r.name, Prefix: servertest.Prefix(t), Fate: s.fate,
			Every: of.every},
	}
	for m := range uint32(of.messages) {
		c.messages[m] = s.copies
	}
	t.Cleanup(c.killAll)
	return c
}

func (c *conductor) must(err error) {
	c.t.Helper()
	require.NoError(c.t, err)
}

// serve starts what the rival needs.
func (c *conductor) serve() {
	c.t.Helper()
	if c.rival.servers&onRedis != 0 {
		c.redis = servertest.Private(c.t, servertest.KindRedis)
		c.client = redis.NewClient(&redis.Options{Addr: c.redis.Addr})
		c.t.Cleanup(func() { _ = c.client.Close() })
		c.cfg.Redis = c.redis.Addr
		if c.scenario.restarts > 0 {
			c.keepNothing()
		}
		if c.scenario.reply {
			c.proxy = redisproxy.Start(c.t, c.redis.Addr)
			c.proxy.SetRules(redisproxy.Rule{Match: c.rival.claims, Action: redisproxy.DropReply,
				Probability: 0.1, Seed: 1})
			c.cfg.Redis = c.proxy.Addr()
		}
	}
	if c.rival.servers&onPostgres != 0 {
		c.cfg.Postgres = servertest.Postgres(c.t)
		c.makeTables()
	}
}

func (c *conductor) keepNothing() {
	c.t.Helper()
	c.must(c.client.ConfigSet(context.WithoutCancel(c.t.Context()), "appendonly", "no").Err())
}

// run delivers until all copies are acknowledged, or none was for size.quiet.
func (c *conductor) run() {
	c.t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	last, left, restarted := time.Now(), c.source.left, 0
	for c.source.left > 0 && time.Since(last) < c.size.quiet {
		if c.source.left != left || c.rises() {
			last, left = time.Now(), c.source.left
		}
		done := c.size.messages*c.scenario.copies - c.source.left
		if restarted < c.scenario.restarts &&
			done > (restarted+1)*c.size.messages*c.scenario.copies/(c.scenario.restarts+2) {
			restarted++
			c.faults["restarts"]++
			c.redis.Kill(1)
			c.redis.Start(1)
			c.keepNothing()
		}
		c.tend()
		c.deliver()
		select {
		case e := <-c.events:
			c.hear(e)
		case <-tick.C:
		}
	}
	c.finish()
}

// rises reports whether a process is starting, or stopped: then acknowledgements may take longer.
func (c *conductor) rises() bool {
	for _, p := range c.slots {
		if p == nil || !p.ready || !p.since.IsZero() {
			return true
		}
	}
	return false
}

// tend starts a process in each empty slot, and wakes those that were stopped for long enough.
func (c *conductor) tend() {
	for i, p := range c.slots {
		switch {
		case p == nil:
			c.start(i)
		case !p.since.IsZero() && time.Since(p.since) >= 2*lease:
			c.wake(p)
		}
	}
}

func (c *conductor) wake(p *process) {
	p.since = time.Time{}
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
}

// start starts a process in a slot.
func (c *conductor) start(slot int) {
	c.t.Helper()
	c.child++
	cfg := c.cfg
	cfg.Child = c.child
	text, err := json.Marshal(cfg)
	c.must(err)
	p := &process{child: c.child, going: map[uint64]*item{}, given: map[uint64]time.Time{}}
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	p.cmd.Stderr = &p.errors
	p.in, err = p.cmd.StdinPipe()
	c.must(err)
	out, err := p.cmd.StdoutPipe()
	c.must(err)
	c.must(p.cmd.Start())
	c.slots[slot] = p
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			c.events <- event{slot: slot, child: p.child, line: lines.Text()}
		}
		c.events <- event{slot: slot, child: p.child, ended: true, err: p.cmd.Wait()}
	}()
}

// deliver gives processes as many copies as they have room for, one process after the other, so
// that neighboring copies go to different processes.
func (c *conductor) deliver() {
	for room := true; room; {
		room = false
		for _, p := range c.slots {
			if p == nil || !p.ready || !p.since.IsZero() || len(p.going) >= c.scenario.capacity {
				continue
			}
			next := c.source.next(time.Now())
			if next == nil {
				return
			}
			if p.going[next.id] != nil { // it got this copy before it was stopped
				c.source.refused(next)
				continue
			}
			p.going[next.id], p.given[next.id] = next, time.Now()
			c.out[next.message]++
			_, _ = fmt.Fprintf(p.in, "DELIVER %d %d\n", next.id, next.message)
			room = true
		}
	}
}

// hear handles an event of a process.
func (c *conductor) hear(e event) {
	c.t.Helper()
	p := c.slots[e.slot]
	if p == nil || p.child != e.child {
		return
	}
	if e.ended {
		c.buried(e.slot, e.err)
		return
	}
	what, rest, _ := strings.Cut(e.line, " ")
	switch what {
	case "READY":
		p.ready = true
		return
	case "STOPPED":
		p.since = time.Now()
		c.stops[p.child] = true
		c.faults["stops"]++
		for _, it := range p.going { // another process is given it
			c.source.refused(it)
		}
		return
	}
	var id uint64
	_, err := fmt.Sscan(rest, &id)
	if !assert.False(c.t, err != nil || p.going[id] == nil, "process %d said %q", e.child, e.line) {
		return
	}
	it, given := p.going[id], p.given[id]
	delete(p.going, id)
	c.out[it.message]--
	switch what {
	case "ACK":
		if c.source.acked(it) {
			c.messages[it.message]--
		}
		c.owned[it.message] = time.Now()
	case "BUSY":
		if last, had := c.owned[it.message]; had && c.out[it.message] == 0 &&
			given.Sub(last) > lease+grace {
			c.ownerless[it.message] = true
		}
		c.source.refused(it)
	default:
		_, why, _ := strings.Cut(rest, " ")
		c.refused[why]++
		c.owned[it.message] = time.Now()
		c.source.refused(it)
	}
}

// buried gives the copies that a process had to others.
func (c *conductor) buried(slot int, err error) {
	c.t.Helper()
	p := c.slots[slot]
	var exit *exec.ExitError
	var status syscall.WaitStatus
	if errors.As(err, &exit) {
		status, _ = exit.Sys().(syscall.WaitStatus)
	}
	killed := status.Signaled() && status.Signal() == syscall.SIGKILL
	if killed {
		c.faults["kills"]++
	} else {
		assert.True(c.t, c.ended && err == nil, "process %d ended with %v: %.1000s", p.child, err,
			p.errors.String())
	}
	if text := p.errors.String(); text != "" {
		c.said = append(c.said, fmt.Sprintf("process %d said: %.1000s", p.child, text))
	}
	for _, it := range p.going {
		c.out[it.message]--
		c.owned[it.message] = time.Now()
		c.source.refused(it)
	}
	c.slots[slot] = nil
}

// finish has all processes end in good order.
func (c *conductor) finish() {
	c.t.Helper()
	c.ended = true
	left := 0
	for _, p := range c.slots {
		if p == nil {
			continue
		}
		left++
		if !p.since.IsZero() {
			c.wake(p)
		}
		_ = p.in.Close()
	}
	for limit := time.After(time.Minute); left > 0; {
		select {
		case e := <-c.events:
			if e.ended {
				left--
			}
			if e.line == "STOPPED" {
				_ = c.slots[e.slot].cmd.Process.Signal(syscall.SIGCONT)
			}
			c.hear(e)
		case <-limit:
			c.t.Error("not all processes ended in good order")
			c.killAll()
			return
		}
	}
}

func (c *conductor) killAll() {
	c.ended = true
	for i, p := range c.slots {
		if p == nil {
			continue
		}
		_ = p.cmd.Process.Kill()
		for e := range c.events {
			if e.ended && e.child == p.child {
				break
			}
		}
		c.slots[i] = nil
	}
}
