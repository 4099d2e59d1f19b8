package kafka_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/sqladapter"
)

// fencedWorker is a process that writes the effects of a range and moves the fence in one
// transaction.
type fencedWorker struct {
	cfg   workerConfig
	db    *sql.DB
	fence *sqladapter.Fence

	mu   sync.Mutex
	done map[int32]int // ranges of each partition since it was assigned
	held bool
	// Every transaction holds open for reading, and the goroutine that stops the process holds it
	// for writing: the locks of a stopped transaction would block the other processes.
	open sync.RWMutex
}

func newFence(cfg workerConfig) (*sqladapter.Fence, error) {
	return sqladapter.NewFence(sqladapter.FenceConfig{Dialect: sqladapter.Postgres,
		Group: cfg.Group, Table: cfg.Prefix + "fence"})
}

// workFenced consumes ranges. A process that is to be killed does not commit to Kafka before, so
// that all it has done is delivered again.
func workFenced(ctx context.Context, cfg workerConfig, db *sql.DB) error {
	fence, err := newFence(cfg)
	if err != nil {
		return err
	}
	w := &fencedWorker{cfg: cfg, db: db, fence: fence, done: map[int32]int{}}
	every := 100 * time.Millisecond
	if cfg.Hold {
		every = time.Hour
	}
	return cfg.membership().consume(ctx, cfg.Client, kafkaadapter.Config{
		Unclaimed: true, Order: kafkaadapter.ByPartition, RangeHandler: w.handle,
		Attempts: kafkaadapter.Attempts{RetryBase: 20 * time.Millisecond, RetryMax: time.Second},
		// BatchMax is small, so that a process has done some ranges before it is killed.
		Tuning: kafkaadapter.Tuning{Workers: 8, BatchMax: 16, Drain: time.Second,
			CommitEvery: every, CommitCount: 1 << 30},
		Observer: kafkaadapter.Observer{Revoked: w.revoked},
	})
}

// handle writes the effects of those messages of a range that the fence has not passed.
func (w *fencedWorker) handle(ctx context.Context, r *kafkaadapter.Range) error {
	if w.cfg.Freeze && w.due(r.Partition) {
		w.freeze(fmt.Sprintf("%d %d %d", r.Partition, r.From, r.To))
		ctx = context.WithoutCancel(ctx) // it ignores that its context ends
	}
	w.open.RLock()
	defer w.open.RUnlock()
	p := sqladapter.Position{Topic: r.Topic, TopicID: r.TopicID, Partition: r.Partition}
	found, err := w.fence.Do(ctx, w.db, p, r.From, r.To,
		func(ctx context.Context, tx *sql.Tx, start int64) error {
			for _, m := range r.Since(start) {
				insert := "INSERT INTO " + w.cfg.Prefix + "effects (part, pos) VALUES ($1, $2)"
				if _, err := tx.ExecContext(ctx, insert, p.Partition, m.Offset); err != nil {
					return err
				}
			}
			if w.cfg.Hold && w.due(p.Partition) {
				fmt.Println("HOLDING", p.Partition, r.From, r.To)
				<-make(chan struct{}) // until the process is killed
			}
			return nil
		})
	if err != nil {
		return err
	}
	fmt.Println(fencedRange{p.Partition, r.From, found.Start, r.To})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done[p.Partition]++
	return nil
}

// due returns true once, when three or more ranges of the partition are done.
func (w *fencedWorker) due(partition int32) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held || w.done[partition] < 3 {
		return false
	}
	w.held = true
	return true
}

// freeze stops the whole process until it gets SIGCONT.
func (w *fencedWorker) freeze(what string) {
	w.open.Lock()
	defer w.open.Unlock()
	thawed := make(chan os.Signal, 1)
	signal.Notify(thawed, syscall.SIGCONT)
	defer signal.Stop(thawed)
	fmt.Println("HOLDING", what)
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	<-thawed
}

// revoked resets the count of the partition: its ranges are committed, or will be delivered to
// another member.
func (w *fencedWorker) revoked(_ string, partition int32, _, _ int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done[partition] = 0
}

// fencedRange is a range of which this process had the effects from start on.
type fencedRange struct {
	partition       int32
	from, start, to int64
}

func (r fencedRange) String() string {
	return fmt.Sprintf("RANGE %d %d %d %d", r.partition, r.from, r.start, r.to)
}

// readRange reads what String has written.
func readRange(line string) (r fencedRange, ok bool) {
	n, err := fmt.Sscanf(line, "RANGE %d %d %d %d", &r.partition, &r.from, &r.start, &r.to)
	return r, n == 4 && err == nil
}
