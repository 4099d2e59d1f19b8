// Package torture_test kills, stops and starves processes that use the library. From their records
// it judges what happened to every message. See docs/internals/torture.md.
package torture_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/onceward/onceward/dedup/driver"
)

// settings are what the conductor passes to a worker.
type settings struct {
	Dir         string // of the ledgers
	Seed        uint64
	Child       int // number of the process, from 1; no number is used twice
	Composition string
	Redis       string // host:port, perhaps of a proxy
	Postgres    string // URL
	MariaDB     string // DSN
	Prefix      string // of names on servers
	Fates       fates
	Lease       time.Duration
	Cut         int           // COMMITs to cut, in a thousand
	Timeout     time.Duration // of a command
}

const (
	childEnv  = "ONCEWARD_TORTURE_WORKER"
	namespace = "torture"
	patience  = 90 * time.Second // with servers, at the start
	window    = 24 * time.Hour
	hold      = time.Hour
)

// atOnce is how many rows run at once: they mostly wait for leases and servers.
const atOnce = "4"

// TestMain runs a worker if the environment says so.
func TestMain(m *testing.M) {
	text := os.Getenv(childEnv)
	if text == "" {
		flag.Parse()
		if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
			_ = f.Value.Set(atOnce)
		}
		os.Exit(m.Run())
	}
	var cfg settings
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		panic(err)
	}
	if err := work(&cfg, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "worker", cfg.Child, "ended:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// delivery is a message as the worker got it.
type delivery struct {
	id      uint64 // of the source
	message uint32
	number  uint32 // among the deliveries of the message, from 1
	fate    point
	ran     atomic.Bool
}

func (d *delivery) key() string { return keyOf(d.message) }

func keyOf(message uint32) string { return fmt.Sprintf("m%d", message) }

// handle runs a message's effect, or finds that it has happened: nil acknowledges the message.
type handle func(ctx context.Context, d *delivery) error

// worker is one process.
type worker struct {
	cfg    *settings
	ledger *ledger
	handle handle
	close  func(ctx context.Context) error

	mu    sync.Mutex
	out   io.Writer
	going map[driver.ID]*delivery // by key; a request for a key may follow the end of its delivery
	dying sync.Once
}

func work(cfg *settings, in io.Reader, out io.Writer) error {
	l, err := openLedger(cfg.Dir, cfg.Child)
	if err != nil {
		return err
	}
	w := &worker{cfg: cfg, ledger: l, out: out, going: map[driver.ID]*delivery{}}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	made, known := compositions[cfg.Composition]
	if !known {
		return fmt.Errorf("there is no composition %q", cfg.Composition)
	}
	var before int
	for limit := now() + int64(patience); ; { // a server that is busy or down comes back
		before = runtime.NumGoroutine() // goroutines of a failed try are not counted
		if w.handle, w.close, err = made.open(ctx, w); err == nil {
			break
		}
		if now() > limit {
			return err
		}
		<-time.After(100 * time.Millisecond)
	}
	go w.watch(ctx)
	w.say("READY")
	err = w.obey(ctx, in)
	end, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	err = errors.Join(err, w.close(end))
	cancel()
	w.leaves(before)
	return err
}

// leaves reports how many goroutines are left after all was closed, and how much memory is used.
// It waits a while for goroutines that are about to end.
func (w *worker) leaves(before int) {
	left := runtime.NumGoroutine() - before
	for limit := now() + int64(5*time.Second); left > 0 &&
		now() < limit; left = runtime.NumGoroutine() - before {
		<-time.After(5 * time.Millisecond)
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	w.say(fmt.Sprintf("LEAVES %d %d", max(left, 0), m.HeapAlloc>>10))
	if left > 0 {
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
	}
}

// obey takes deliveries until there are no more, and waits for them.
func (w *worker) obey(ctx context.Context, in io.Reader) error {
	var going sync.WaitGroup
	defer going.Wait()
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		d := &delivery{}
		if _, err := fmt.Sscanf(lines.Text(), "DELIVER %d %d %d", &d.id, &d.message,
			&d.number); err != nil {
			return fmt.Errorf("%q: %w", lines.Text(), err)
		}
		d.fate = w.cfg.Fates.of(w.cfg.Seed, d.message, d.number)
		going.Go(func() { w.deliver(ctx, d) })
	}
	return lines.Err()
}

func (w *worker) deliver(ctx context.Context, d *delivery) {
	id, err := driver.NewID(namespace, "", d.key())
	if err != nil {
		panic(err)
	}
	w.mu.Lock()
	w.going[id] = d // if two deliveries of a message overlap, one keeps its fate
	w.mu.Unlock()
	w.at(d, delivered)
	err = w.handle(ctx, d)
	if err != nil {
		w.ledger.write(record{kind: refusing, message: d.message, delivery: d.number})
		w.say(fmt.Sprintf("NAK %d %.80q", d.id, err))
		return
	}
	w.at(d, unacked)
	w.ledger.write(record{kind: acking, message: d.message, delivery: d.number})
	w.say(fmt.Sprintf("ACK %d", d.id))
	w.at(d, uncommitted)
}

// of returns the delivery of a key that is under way, or nil.
func (w *worker) of(id driver.ID) *delivery {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.going[id]
}

// say sends the conductor a line.
func (w *worker) say(line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, _ = fmt.Fprintln(w.out, line)
}

// at is called at each point of a delivery's life. If the delivery's fate is this point, the
// process dies or stops, and otherwise it continues.
func (w *worker) at(d *delivery, p point) {
	if d == nil || d.fate != p {
		return
	}
	if p.pauses() {
		w.stop(d)
		return
	}
	w.die(d)
}

// die does what kill -9 does.
func (w *worker) die(d *delivery) {
	w.dying.Do(func() {
		w.ledger.write(record{kind: dying, message: d.message, delivery: d.number,
			code: uint8(d.fate)})
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	})
	select {}
}

// stop freezes the process until the conductor wakes it.
func (w *worker) stop(d *delivery) {
	w.ledger.write(record{kind: stopping, message: d.message, delivery: d.number,
		code: uint8(d.fate)})
	w.say("STOPPED")
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
}

// effect runs the effect that must happen once. It ignores contexts, like the worst handler.
func (w *worker) effect(d *delivery, write func(run uint64) error) error {
	d.ran.Store(true)
	w.at(d, claimed)
	w.at(d, pauseClaimed)
	run := w.ledger.next()
	w.ledger.write(record{kind: effectBegun, run: run, message: d.message, delivery: d.number})
	if err := write(run); err != nil {
		return err
	}
	w.at(d, amidEffect)
	w.at(d, pauseEffect)
	<-time.After(w.effort(d))
	w.ledger.write(record{kind: effectEnded, run: run, message: d.message, delivery: d.number})
	w.at(d, pauseUnmarked)
	w.at(d, effectUnsaid)
	return nil
}

// effort is how long an effect takes. A process that takes over from a stopped one takes so long
// that the stopped one wakes meanwhile.
func (w *worker) effort(d *delivery) time.Duration {
	if d.number > 1 && w.cfg.Fates.of(w.cfg.Seed, d.message, 1).pauses() {
		return w.cfg.Lease * 3 / 2
	}
	return time.Duration(rand.IntN(1000)) * time.Microsecond
}

// leave begins to end in good order, while handlers run, and then dies.
func (w *worker) leave(d *delivery) {
	if d.fate != closing {
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
		defer cancel()
		_ = w.close(ctx)
		w.die(d)
	}()
}

// watch records when the process did not get to run, for whatever reason.
func (w *worker) watch(ctx context.Context) {
	every := w.cfg.Lease / 20
	tick := time.NewTicker(every)
	defer tick.Stop()
	for last := now(); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		at := now()
		if late := at - last - int64(every); late > int64(w.cfg.Lease)/3 {
			w.ledger.write(record{kind: stalled, arg: late, at: at})
		}
		last = at
	}
}
