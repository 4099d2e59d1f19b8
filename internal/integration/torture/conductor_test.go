package torture_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	slots    = 3 // processes at a time
	capacity = 8 // deliveries that a process has at a time, unless the row says more
)

// process is a worker process. After each death its slot gets another one.
type process struct {
	child  int
	cmd    *exec.Cmd
	in     io.WriteCloser
	errors bytes.Buffer
	ready  bool
	going  map[uint64]*item
	since  int64 // when it was stopped, or 0
	resume int64
}

// event is a line that a process has printed, or its end.
type event struct {
	slot  int
	child int
	line  string
	ended bool
	err   error
}

// conductor hands the source's deliveries to processes. It starts processes, wakes those that
// stopped themselves, and gives the deliveries of dead ones to others.
type conductor struct {
	t       *testing.T
	row     *row
	cfg     settings
	rng     *rand.Rand
	source  *source
	times   int // how often each message is delivered
	ledger  *ledger
	slots   [slots]*process
	again   [slots]int64 // when each slot gets its next process
	events  chan event
	slow    atomic.Int64                      // answers of servers that took too long
	probes  []func(ctx context.Context) error // of servers
	child   int
	ended   bool
	said    []string // lines on stderr, for a test that fails
	nemesis []*nemesis
	used    time.Duration  // processor time of the workers
	stuck   int            // deliveries that did not come through in time
	refused map[string]int // by reason
	counted map[string]int // faults that are not strikes, by name

	versions map[string]string // of servers
	mostLeft int               // goroutines of a process that were left after it had closed all
	mostHeap int               // KiB, at a process's end
}

func newConductor(t *testing.T, r *row, cfg settings, size size) *conductor {
	t.Helper()
	cfg.Dir = t.TempDir()
	l, err := openLedger(cfg.Dir, 0)
	require.NoError(t, err)
	c := &conductor{
		t: t, row: r, cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 1)),
		source: newSource(cfg.Seed, size.messages, size.times),
		times:  size.times, ledger: l, events: make(chan event, 1024), refused: map[string]int{},
		counted: map[string]int{}, versions: map[string]string{},
	}
	t.Cleanup(func() { c.killAll(); _ = l.file.Close() })
	return c
}

func (c *conductor) must(err error) {
	c.t.Helper()
	require.NoError(c.t, err)
}

// run has everything delivered within limit, and ends all processes.
func (c *conductor) run(limit time.Duration) {
	c.t.Helper()
	deadline := now() + int64(limit)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for c.source.left() > 0 || c.striking() {
		at := now()
		if at > deadline {
			c.stuck = c.source.left()
			c.t.Errorf("%d deliveries were not acknowledged within %v: %v", c.stuck,
				limit, c.some())
			break
		}
		c.tend(at)
		c.strike(at)
		c.deliver(at)
		select {
		case e := <-c.events:
			c.hear(e)
			for more := true; more; {
				select {
				case e := <-c.events:
					c.hear(e)
				default:
					more = false
				}
			}
		case <-tick.C:
		}
	}
	c.finish()
}

// some describes a few of the deliveries that are left.
func (c *conductor) some() (all []string) {
	for _, i := range c.source.out {
		all = append(all, fmt.Sprintf("message %d, delivery %d, is out", i.message, i.number))
	}
	for _, i := range c.source.again {
		all = append(all, fmt.Sprintf("message %d was refused %d times", i.message, i.tries))
	}
	return all[:min(len(all), 8)]
}

// tend starts the processes that are due, and wakes those that have been stopped for long
// enough.
func (c *conductor) tend(at int64) {
	for i, p := range c.slots {
		switch {
		case p == nil && at >= c.again[i] && !c.ended:
			c.start(i)
		case p != nil && p.since > 0 && at >= p.resume:
			c.wake(p)
		}
	}
}

func (c *conductor) wake(p *process) {
	c.ledger.write(record{kind: paused, arg: int64(p.child), run: uint64(p.since)})
	p.since = 0
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
	p := &process{child: c.child, going: map[uint64]*item{}}
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

// deliver gives each process as many deliveries as it has room for.
func (c *conductor) deliver(at int64) {
	for room := true; room; {
		room = false
		for _, i := range c.rng.Perm(slots) {
			p := c.slots[i]
			if p == nil || !p.ready || p.since > 0 ||
				len(p.going) >= max(capacity, c.row.capacity) {
				continue
			}
			next := c.source.next(at)
			if next == nil {
				return
			}
			p.going[next.id] = next
			_, _ = fmt.Fprintf(p.in, "DELIVER %d %d %d\n", next.id, next.message, next.number)
			room = true
		}
	}
}

// hear handles a line that a process has printed.
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
	var id uint64
	switch what {
	case "READY":
		p.ready = true
		return
	case "LEAVES":
		var left, heap int
		_, err := fmt.Sscan(rest, &left, &heap)
		assert.NoError(c.t, err, "process %d said %q", e.child, e.line)
		c.mostLeft, c.mostHeap = max(c.mostLeft, left), max(c.mostHeap, heap)
		return
	case "STOPPED":
		p.since = now()
		p.resume = p.since + int64(2*c.cfg.Lease)
		return
	}
	_, err := fmt.Sscan(rest, &id)
	if !assert.False(c.t, err != nil || what != "ACK" && what != "NAK", "process %d said %q",
		e.child, e.line) {
		return
	}
	i := p.going[id]
	if !assert.NotNil(c.t, i, "process %d answers for delivery %d, which it was not given", e.child,
		id) {
		return
	}
	if what == "ACK" && c.cfg.Fates.of(c.cfg.Seed, i.message, i.number) == uncommitted {
		return // the process dies now, and the source has not committed the ack
	}
	delete(p.going, id)
	if what == "ACK" {
		c.source.acked(id)
		return
	}
	_, why, _ := strings.Cut(rest, " ")
	c.refused[why]++
	c.source.refused(id)
}

// buried gives the deliveries of a dead process to others.
func (c *conductor) buried(slot int, err error) {
	c.t.Helper()
	p := c.slots[slot]
	var exit *exec.ExitError
	var status syscall.WaitStatus
	if errors.As(err, &exit) {
		status, _ = exit.Sys().(syscall.WaitStatus)
	}
	if state := p.cmd.ProcessState; state != nil {
		c.used += state.UserTime() + state.SystemTime()
	}
	killed, finished := status.Signaled() && status.Signal() == syscall.SIGKILL,
		c.ended && err == nil
	assert.False(c.t, !killed && !finished && (!c.row.bearsErrors || p.ready),
		"process %d ended with %v", p.child, err)
	if text := p.errors.String(); text != "" {
		c.said = append(c.said, fmt.Sprintf("process %d said: %.1000s", p.child, text))
	}
	if killed {
		c.ledger.write(record{kind: died, arg: int64(p.child)})
	}
	for id := range p.going {
		c.source.refused(id)
	}
	c.slots[slot], c.again[slot] = nil, now()+int64(time.Duration(c.rng.IntN(30))*time.Millisecond)
}

// finish ends all processes in good order.
func (c *conductor) finish() {
	c.t.Helper()
	c.ended = true
	for _, n := range c.nemesis {
		if n.since > 0 {
			c.endStrike(n)
		}
	}
	left := 0
	for _, p := range c.slots {
		if p == nil {
			continue
		}
		left++
		if p.since > 0 {
			c.wake(p)
		}
		_ = p.in.Close()
	}
	for limit := time.After(20 * time.Second); left > 0; {
		select {
		case e := <-c.events:
			if e.line == "STOPPED" { // too late to matter
				_ = c.slots[e.slot].cmd.Process.Signal(syscall.SIGCONT)
				continue
			}
			if e.ended {
				left--
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
		if p != nil {
			_ = p.cmd.Process.Kill()
			for e := range c.events {
				if e.ended && e.child == p.child {
					break
				}
			}
			c.slots[i] = nil
		}
	}
}
