package others_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// The constants that all rivals share.
const (
	lease  = time.Second      // how long a claim, a lock or "in progress" lasts
	window = 10 * time.Minute // how long "done" is remembered: longer than any run
	grace  = 250 * time.Millisecond
)

// settings are what the conductor passes to a worker.
type settings struct {
	Dir      string // of the ledgers
	Child    int    // number of the process, from 1; no number is used twice
	Rival    string
	Redis    string // host:port, perhaps of a proxy
	Postgres string // URL
	Prefix   string // of names on servers
	Fate     fate
	Every    uint32 // one message in Every meets the fate
}

// fate is what happens in the first run of a handler.
type fate uint8

const (
	live fate = iota
	killedBefore
	killedIn
	killedAfter
	stopped
	fails
	replyLost // PostgreSQL; for Redis a proxy loses the reply
)

const childEnv = "ONCEWARD_OTHERS_WORKER"

// TestMain runs a worker if the environment says so.
func TestMain(m *testing.M) {
	text := os.Getenv(childEnv)
	if text == "" {
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

var (
	// errBusy says that another process runs the message, so this copy must be redelivered.
	errBusy = errors.New("in flight elsewhere")
	// errHandler is the error of a handler that could not do any of its work.
	errHandler = errors.New("the downstream refused")
)

// handle runs a message's effect, or finds that it has happened: nil acknowledges the message.
type handle func(ctx context.Context, message uint32) error

// worker is one process.
type worker struct {
	cfg    *settings
	ledger *ledger
	handle handle
	mu     sync.Mutex // of out
	out    io.Writer
	cut    atomic.Bool // the next reply of PostgreSQL that counts is lost
}

func work(cfg *settings, in io.Reader, out io.Writer) error {
	l, err := openLedger(cfg.Dir, cfg.Child)
	if err != nil {
		return err
	}
	w := &worker{cfg: cfg, ledger: l, out: out}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r := rivalNamed(cfg.Rival)
	if r == nil {
		return fmt.Errorf("there is no %q", cfg.Rival)
	}
	var end func() error
	for tries := 0; ; tries++ { // a server that is being started comes back
		if w.handle, end, err = r.open(ctx, w); err == nil {
			break
		}
		if tries == 50 {
			return err
		}
		<-time.After(100 * time.Millisecond)
	}
	go w.watch(ctx)
	w.say("READY")
	return errors.Join(w.obey(ctx, in), end())
}

// obey takes deliveries until there are no more, and waits for them.
func (w *worker) obey(ctx context.Context, in io.Reader) error {
	var going sync.WaitGroup
	defer going.Wait()
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var id uint64
		var message uint32
		if _, err := fmt.Sscanf(lines.Text(), "DELIVER %d %d", &id, &message); err != nil {
			return fmt.Errorf("%q: %w", lines.Text(), err)
		}
		going.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			switch err := w.handle(ctx, message); {
			case err == nil:
				w.say(fmt.Sprintf("ACK %d", id))
			case errors.Is(err, errBusy):
				w.say(fmt.Sprintf("BUSY %d", id))
			default:
				w.say(fmt.Sprintf("NAK %d %.100q", id, err))
			}
		})
	}
	return lines.Err()
}

// say sends the conductor a line.
func (w *worker) say(line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, _ = fmt.Fprintln(w.out, line)
}

// key is the message's name on servers.
func (w *worker) key(message uint32) string { return fmt.Sprintf("%s:%d", w.cfg.Prefix, message) }

// effect must happen once, and it has two halves. It ignores contexts, because a handler need not
// check its context.
func (w *worker) effect(message uint32, write func() error) error {
	meets := live
	if w.fated(message) {
		meets = w.cfg.Fate
	}
	switch meets {
	case fails:
		return errHandler
	case killedBefore:
		w.die()
	}
	w.ledger.write(begun, message)
	if err := write(); err != nil {
		return err
	}
	switch meets {
	case killedIn:
		w.die()
	case stopped:
		w.say("STOPPED")
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	}
	<-time.After(time.Duration(rand.IntN(1000)) * time.Microsecond)
	w.ledger.write(ended, message)
	if meets == killedAfter {
		w.die()
	}
	return nil
}

// nothing is the write of an effect that does not write a row.
func nothing() error { return nil }

// fated reports whether a message meets its fate now. Some messages do, once, in whichever process
// is first.
func (w *worker) fated(message uint32) bool {
	if w.cfg.Every == 0 || message%w.cfg.Every != 0 {
		return false
	}
	f, err := os.OpenFile(filepath.Join(w.cfg.Dir, fmt.Sprintf("fate-%d", message)),
		os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return false
	}
	return f.Close() == nil
}

// die does what kill -9 does.
func (w *worker) die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// watch records when the process did not get to run, for whatever reason.
func (w *worker) watch(ctx context.Context) {
	tick := time.NewTicker(lease / 20)
	defer tick.Stop()
	for last := time.Now(); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if time.Since(last) > lease/20+lease/3 {
			w.ledger.write(stalled, 0)
		}
		last = time.Now()
	}
}
