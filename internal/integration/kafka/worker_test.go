package kafka_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/sqladapter"
)

// workerEnv makes the test binary a consumer process: a real one, that can be killed.
const workerEnv = "ONCEWARD_TEST_WORKER"

// workerConfig is the configuration of a consumer process.
type workerConfig struct {
	Brokers      []string
	Group, Topic string
	Driver, DSN  string
	Prefix       string // of the tables
	Hold         bool   // stop inside an effect, for the kill

	// Of a process that keeps a fence instead of marks; see fencedWorker.
	Client string // sarama or franz
	Freeze bool   // stop the whole process before a transaction

	// Of a process that owns its partitions; see ownedWorker.
	Redis   string // its address
	Effects string // the file that says what happened

	// Of a process that reports its spans; see tracedMember. It has Redis, too.
	By       string // its name
	Instance string // makes it a static member

	// Of a process under random faults; see faultedWorker. It has Redis and Effects, too.
	Flavor string // a name in faultedFlavors
}

// membership of the process in its group.
func (c *workerConfig) membership() *membership {
	return &membership{brokers: c.Brokers, group: c.Group, topics: []string{c.Topic}}
}

func TestMain(m *testing.M) {
	if text := os.Getenv(workerEnv); text != "" {
		if err := beWorker(text); err != nil {
			fmt.Println("ERROR", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	waitTogether()
	os.Exit(m.Run())
}

// waitTogether lets more tests run at the same time than there are processors, unless -parallel
// is given: they mostly wait for sessions and leases to end.
func waitTogether() {
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(4*runtime.GOMAXPROCS(0))) // the flag exists
	}
}

// beWorker consumes until it is told to end.
func beWorker(text string) error {
	var cfg workerConfig
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if cfg.Flavor != "" {
		return workFaulted(ctx, cfg)
	}
	if cfg.By != "" {
		return workTraced(ctx, cfg)
	}
	if cfg.Redis != "" {
		return workOwned(ctx, cfg)
	}
	db, err := sql.Open(cfg.Driver, cfg.DSN)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if cfg.Client != "" {
		return workFenced(ctx, cfg, db)
	}
	return work(ctx, cfg, db)
}

// work consumes in the Atomic composition.
func work(ctx context.Context, cfg workerConfig, db *sql.DB) error {
	db.SetMaxOpenConns(8)
	if cfg.Driver == "sqlite" {
		// one writer at a time anyway, and no polling for its lock in this process
		db.SetMaxOpenConns(1)
	}
	marks, err := newMarks(cfg)
	if err != nil {
		return err
	}
	w := &worker{cfg: cfg, db: db, marks: marks}
	return cfg.membership().consume(ctx, "sarama", kafkaadapter.Config{
		Unclaimed: true, Handler: w.handle,
		Attempts: kafkaadapter.Attempts{RetryBase: 20 * time.Millisecond, RetryMax: time.Second},
		Tuning: kafkaadapter.Tuning{Workers: 8, Drain: 2 * time.Second,
			CommitEvery: 100 * time.Millisecond},
		Observer: kafkaadapter.Observer{Delivered: sayDelivered, Handled: w.handled,
			Revoked: w.revoked},
	})
}

func newMarks(cfg workerConfig) (*sqladapter.Ledger, error) {
	dialect := sqladapter.Postgres
	if cfg.Driver == "sqlite" {
		dialect = sqladapter.SQLite
	}
	return sqladapter.New(sqladapter.Config{Dialect: dialect, Namespace: "webhooks",
		Table: cfg.Prefix + "marks"})
}

// worker is the process's state.
type worker struct {
	cfg   workerConfig
	db    *sql.DB
	marks *sqladapter.Ledger

	mu   sync.Mutex
	done int
	held *kafkaadapter.Message
	said bool
	// free ends the hold of a message if its partition is revoked before the parent was told: no
	// later message of the partition would be finished here.
	free chan struct{}
}

// handle has the effect and marks the message, in one transaction.
func (w *worker) handle(ctx context.Context, m *kafkaadapter.Message) error {
	// SQLite has one writer: a transaction that is held open would stop all others. With SQLite the
	// handler waits before its transaction, if its message has had no effect yet.
	if w.cfg.Driver == "sqlite" && w.isNew(ctx, m) {
		if held := w.mayHold(m); held != nil {
			<-held
			return errHeldTaken
		}
	}
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	mark, err := w.marks.MarkTx(ctx, tx, m.ID)
	if err != nil {
		return err
	}
	if mark.Outcome == dedup.Duplicate {
		return nil
	}
	if !mark.First() {
		return fmt.Errorf("mark: %v, %w", mark.Outcome, mark.Err)
	}
	insert := "INSERT INTO " + w.cfg.Prefix + "effects (id, bytes, worker) VALUES ($1, $2, $3)"
	if _, err := tx.ExecContext(ctx, insert, m.ID, len(m.Value), os.Getpid()); err != nil {
		return err
	}
	if w.cfg.Driver != "sqlite" {
		if held := w.mayHold(m); held != nil {
			<-held // inside the effect, until the process is killed
			return errHeldTaken
		}
	}
	return tx.Commit()
}

func (w *worker) isNew(ctx context.Context, m *kafkaadapter.Message) bool {
	var n int
	err := w.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+w.cfg.Prefix+"effects WHERE id = $1",
		m.ID).Scan(&n)
	return err == nil && n == 0
}

var errHeldTaken = errors.New("the partition was taken")

// mayHold returns nil, or a channel if m is to be inside its effect when the process is killed. The
// channel is closed if the partition is revoked before.
func (w *worker) mayHold(m *kafkaadapter.Message) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.cfg.Hold || w.held != nil || w.done < 100 {
		return nil
	}
	w.held, w.free = m, make(chan struct{})
	return w.free
}

// sayDelivered reports a delivered message to the parent.
func sayDelivered(m *kafkaadapter.Message) {
	fmt.Printf("DELIVERED %d %d\n", m.Partition, m.Offset)
}

// handled tells the parent when to kill: one effect is under way, and a later message of the same
// partition is finished. That message cannot be committed yet.
func (w *worker) handled(m *kafkaadapter.Message, _ time.Duration, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		return
	}
	w.done++
	if w.held != nil && !w.said && m.Partition == w.held.Partition && m.Offset > w.held.Offset {
		w.said = true
		fmt.Printf("HOLDING %d@%d, finished %d@%d\n", w.held.Partition, w.held.Offset,
			m.Partition, m.Offset)
	}
}

func (w *worker) revoked(_ string, partition int32, returned, abandoned int) {
	fmt.Printf("REVOKED %d %d %d\n", partition, returned, abandoned)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held != nil && !w.said && w.held.Partition == partition {
		close(w.free)
		w.held = nil
	}
}

// process is a consumer process as its parent sees it.
type process struct {
	cmd     *exec.Cmd
	holding chan string
	ended   chan error

	mu        sync.Mutex
	delivered map[string]int
	ranges    []fencedRange
	last      []string
}

func spawn(t *testing.T, cfg workerConfig) *process {
	t.Helper()
	text, err := json.Marshal(cfg)
	require.NoError(t, err)
	p := &process{cmd: exec.Command(os.Args[0]), holding: make(chan string, 1),
		ended: make(chan error, 1), delivered: map[string]int{}}
	p.cmd.Env = append(os.Environ(), workerEnv+"="+string(text))
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	p.cmd.Stderr = os.Stderr
	require.NoError(t, p.cmd.Start())
	go func() {
		p.read(out)
		p.ended <- p.cmd.Wait()
	}()
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	return p
}

func (p *process) read(out io.Reader) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		line := lines.Text()
		p.mu.Lock()
		if position, ok := strings.CutPrefix(line, "DELIVERED "); ok {
			p.delivered[position]++
		} else if r, ok := readRange(line); ok {
			p.ranges = append(p.ranges, r)
		} else {
			p.last = append(p.last, line)
		}
		p.mu.Unlock()
		if strings.HasPrefix(line, "HOLDING ") {
			p.holding <- line
		}
	}
}

// positions adds what was delivered to this process to all.
func (p *process) positions(all map[string]int) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for position, times := range p.delivered {
		all[position] += times
		n += times
	}
	return n
}

// rangesDone returns the ranges that the process has reported.
func (p *process) rangesDone() []fencedRange {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.ranges)
}

// foundDone is how many messages the process was given that were done already.
func (p *process) foundDone() (n int64) {
	for _, r := range p.rangesDone() {
		n += r.start - r.from
	}
	return n
}

// lines returns all other lines of the process.
func (p *process) lines() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.last)
}

func (p *process) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.last, "; ")
}
