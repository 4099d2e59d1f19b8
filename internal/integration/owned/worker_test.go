package owned_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/bloom"
	"github.com/onceward/onceward/contrib/owned"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/redisadapter"
)

// settings are what conductor and processes agree on.
type settings struct {
	Dir     string
	Redis   string
	Child   int // number of the process: none is used twice
	Sources []sourceSettings
	Batch   int
	Cap     uint32
	Poison  map[uint64]bool // keys whose handler kills its process
	// One key in this number is slow, fails, or dawdles.
	Slow, Failing, Dawdling uint64
}

// sourceSettings are those of one source, which has a Store of its own.
type sourceSettings struct {
	Partitions     int32
	Window, Hold   time.Duration
	Slices         int
	Lease          time.Duration
	LeaseTTL       time.Duration
	ExpectedKeys   int
	MaxBytes       int64
	FalsePositives float64
	Snapshots      bool
}

func prefixOf(source uint8) string { return fmt.Sprintf("torture%d", source) }

const (
	childEnv = "ONCEWARD_TORTURE_CHILD"
	secret   = "sixteen bytes and some more"
)

// TestMain runs a process of the torture if the environment says so.
func TestMain(m *testing.M) {
	text := os.Getenv(childEnv)
	if text == "" {
		os.Exit(m.Run())
	}
	var cfg settings
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		panic(err)
	}
	if err := work(&cfg, os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "process", cfg.Child, "ended:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// die is what kill -9 does.
func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// worker is one process.
type worker struct {
	cfg    *settings
	ledger *ledger
	wire   *wire
	feed   *feed
	stores []*witness
	dedup  []*dedup.Deduper
	// verdicts: new, maybe, unknown, and unknown because the filter is too full
	said [4]atomic.Uint64

	wanted map[partition]context.CancelFunc
	tends  sync.WaitGroup
	going  sync.WaitGroup // effects that run on after their partition was released
}

// options are those of a source's Store.
func (s *settings) options(source uint8) owned.Options {
	c := &s.Sources[source]
	o := owned.Options{
		Prefix: prefixOf(source), Secret: []byte(secret), Window: c.Window, Hold: c.Hold,
		Lease: c.Lease, Slices: c.Slices,
		ExpectedKeys: c.ExpectedKeys, MaxBytes: c.MaxBytes, FalsePositives: c.FalsePositives,
		InFlight: 2 * s.Batch,
	}
	if c.Snapshots {
		o.Snapshots = owned.Dir(snapshotDir(s.Dir, source))
	}
	return o
}

// countedSnapshots notes what is written and read.
type countedSnapshots struct {
	owned.Snapshots
	ledger *ledger
}

func (s countedSnapshots) Load(ctx context.Context, name string) (io.ReadCloser, error) {
	r, err := s.Snapshots.Load(ctx, name)
	if err == nil {
		s.ledger.write(record{kind: loaded})
	}
	return r, err
}

func (s countedSnapshots) Store(ctx context.Context, name string, keep time.Duration,
	r io.Reader) error {
	err := s.Snapshots.Store(ctx, name, keep, r)
	if err == nil {
		s.ledger.write(record{kind: saved})
	}
	return err
}

func snapshotDir(dir string, source uint8) string {
	return fmt.Sprintf("%s/snapshots-%d", dir, source)
}

func work(cfg *settings, commands io.Reader) error {
	l, err := openLedger(cfg.Dir, cfg.Child)
	if err != nil {
		return err
	}
	w := &worker{cfg: cfg, ledger: l, feed: newFeed(cfg.Dir),
		wanted: map[partition]context.CancelFunc{}}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := w.open(ctx); err != nil {
		return err
	}
	done := make(chan struct{})
	go w.report(ctx, done)
	err = w.obey(ctx, commands)
	for _, drop := range w.wanted {
		drop()
	}
	w.tends.Wait()
	w.going.Wait()
	cancel()
	<-done
	return errors.Join(err, w.close())
}

// open makes a Store and a Deduper per source.
func (w *worker) open(ctx context.Context) error {
	var prefixes []string
	for source := range w.cfg.Sources {
		prefixes = append(prefixes, prefixOf(uint8(source)))
	}
	w.wire = newWire(w.ledger, prefixes)
	client := redis.NewClient(&redis.Options{Addr: w.cfg.Redis})
	client.AddHook(w.wire)
	for source := range w.cfg.Sources {
		inner, err := redisadapter.New(ctx,
			client, redisadapter.Options{Prefix: prefixOf(uint8(source)) + "-inner",
				WrappedBy: owned.Name})
		if err != nil {
			return err
		}
		opts := w.cfg.options(uint8(source))
		seen := newWitness(nil, w.ledger)
		opts.Observer.Filtered = func(e dedup.Event) {
			w.filtered(e)
			seen.filtered(&e)
		}
		opts.Logger = slog.New(slog.NewTextHandler(os.Stderr,
			&slog.HandlerOptions{Level: slog.LevelError}))
		if opts.Snapshots != nil {
			opts.Snapshots = countedSnapshots{opts.Snapshots, w.ledger}
		}
		store, err := owned.New(ctx, client, inner, opts)
		if err != nil {
			return err
		}
		seen.Store = store
		c := &w.cfg.Sources[source]
		d, err := dedup.New(seen, dedup.Config{
			Namespace: "torture", Window: c.Window, Hold: c.Hold, LeaseTTL: c.LeaseTTL,
			SeenOnly: true, StoreTimeout: c.LeaseTTL * 2 / 3,
		})
		if err != nil {
			return err
		}
		w.stores, w.dedup = append(w.stores, seen), append(w.dedup, d)
	}
	return nil
}

func (w *worker) filtered(e dedup.Event) {
	switch e.FilterAnswer {
	case "new":
		w.said[0].Add(1)
	case "maybe":
		w.said[1].Add(1)
	default:
		w.said[2].Add(1)
		if e.Reason == bloom.Saturated.String() {
			w.said[3].Add(1)
		}
	}
}

// report records the filters' answers until ctx ends.
func (w *worker) report(ctx context.Context, done chan<- struct{}) {
	defer close(done)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		r := record{kind: verdicts, key: w.said[0].Swap(0), epoch: w.said[1].Swap(0),
			seq: w.said[2].Swap(0)}
		r.attempt = uint32(w.said[3].Swap(0))
		if r.key+r.epoch+r.seq > 0 {
			w.ledger.write(r)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// obey does what the conductor says, until it says nothing more.
func (w *worker) obey(ctx context.Context, commands io.Reader) error {
	lines := bufio.NewScanner(commands)
	for lines.Scan() {
		var what string
		var a, b int
		if _, err := fmt.Sscan(lines.Text(), &what, &a, &b); err != nil {
			return fmt.Errorf("%q: %w", lines.Text(), err)
		}
		where := partition{uint8(a), uint16(b)}
		switch what {
		case "want":
			w.want(ctx, where)
		case "drop":
			if drop := w.wanted[where]; drop != nil {
				drop()
				delete(w.wanted, where)
			}
		case "remap":
			w.wire.remaps.Store(int64(a))
		default:
			return fmt.Errorf("%q is no command", lines.Text())
		}
	}
	return lines.Err()
}

func (w *worker) want(ctx context.Context, where partition) {
	if w.wanted[where] != nil {
		return
	}
	ctx, w.wanted[where] = context.WithCancel(ctx)
	w.tends.Go(func() { w.tend(ctx, where) })
}

// close releases everything in good order.
func (w *worker) close() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for i := range w.stores {
		err = errors.Join(err, w.dedup[i].Close(ctx), w.stores[i].Close(ctx))
	}
	return err
}

// pause waits for a while, or until ctx ends.
func pauseFor(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
