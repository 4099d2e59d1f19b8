package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// ErrTracked is returned by [Committer.Add] for a partition that it has already.
var ErrTracked = errors.New("pipeline: the partition has a tracker already")

// finalCommits is how often at most the last commit of a claim is sent while the broker does not
// confirm it. The first one may go to a coordinator that has moved, and makes the client forget it;
// the second one then finds the new coordinator.
const finalCommits = 2

// CommitterConfig has the two halves of a client's commit, Mark and Commit.
type CommitterConfig struct {
	// Interval between two looks at the watermarks. Required.
	Interval time.Duration
	// Count of finished messages, over all partitions, after which the committer does
	// not wait for the interval. Required.
	Count int
	// Repeat is for how long after the last mark Commit is repeated at every interval, at least
	// twice, if Confirmed is nil. It should be longer than the session timeout: a member that has
	// not reached the group's coordinator by then has lost its partitions.
	Repeat time.Duration
	// Mark notes the next offset to commit of a partition with the client. Required.
	Mark func(topic string, partition int32, next int64)
	// Commit sends the marked offsets and returns when the attempt is over. It may fail without
	// saying so. Required. Calls never overlap.
	Commit func()
	// Confirmed, if set, returns the offset that the broker is known to have, and
	// ok == false when that is not known. Commit is then repeated, without end, until
	// the broker has the offset that was marked.
	Confirmed func(topic string, partition int32) (next int64, ok bool)
}

// Committer commits the watermarks of a consumer group session on its own goroutine, so that a
// commit holds up no message: it may wait for a whole long poll, because sarama takes the same lock
// for both.
//
// It commits again while in doubt. Sarama's Commit makes one attempt, returns nothing, and is
// silent about a coordinator that moved or is loading; its mark stays dirty, but nobody sends it
// again. Without a repetition the last messages before a silence stay uncommitted forever. A
// repetition with nothing dirty sends nothing.
//
// One Committer serves one session with all its claims, because a commit is one
// request for all of them. All methods are safe for concurrent use. Mark and Confirmed
// are called under the committer's lock: they must answer from memory and must not
// call back.
type Committer struct {
	cfg      CommitterConfig
	repeats  int // intervals in Repeat
	finished atomic.Int64
	kick     chan struct{} // holds one wish for a round
	stopping chan struct{}
	done     chan struct{} // closed when the goroutine has ended
	start    sync.Once
	stop     sync.Once

	mu     sync.Mutex
	claims map[partition]*claim
	quiet  int // repetitions that are still due, if Confirmed is nil
	stats  CommitStats
}

type partition struct {
	topic string
	id    int32
}

// claim is the entry of a partition between Add and Remove.
type claim struct {
	tracker *Tracker
	marked  int64         // offset given to Mark last, -1 before
	leaving chan struct{} // set by Remove, closed after the last commit
}

// NewCommitter returns a Committer that has not been started. It returns an error if
// Mark or Commit is missing; the rest of cfg is not checked.
func NewCommitter(cfg CommitterConfig) (*Committer, error) {
	if cfg.Mark == nil || cfg.Commit == nil {
		return nil, errors.New("pipeline: Committer needs Mark and Commit")
	}
	return &Committer{
		cfg:      cfg,
		repeats:  max(2, int(cfg.Repeat/cfg.Interval)),
		kick:     make(chan struct{}, 1),
		stopping: make(chan struct{}),
		done:     make(chan struct{}),
		claims:   make(map[partition]*claim),
	}, nil
}

// Start starts the goroutine, which [Committer.Stop] ends. Only the first call does
// anything. It must not be called after Stop.
func (c *Committer) Start() {
	c.start.Do(func() { go c.run() })
}

// Stop marks and commits a last time and ends the goroutine. It waits for that until ctx ends. If a
// commit is still under way then, it returns an error that wraps [context.Cause] of ctx, and the
// goroutine ends when that commit returns. Later calls wait for the same end. Without a Start there
// is nothing to commit and Stop returns nil.
func (c *Committer) Stop(ctx context.Context) error {
	c.start.Do(func() { close(c.done) })
	c.stop.Do(func() { close(c.stopping) })
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("pipeline: the last commit did not end: %w", context.Cause(ctx))
	}
}

// Add begins to commit the watermark of a partition. It returns [ErrTracked] if the
// partition was added and not removed.
func (c *Committer) Add(topic string, id int32, t *Tracker) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := partition{topic, id}
	if c.claims[p] != nil {
		return fmt.Errorf("%w: %s/%d", ErrTracked, topic, id)
	}
	c.claims[p] = &claim{tracker: t, marked: -1}
	return nil
}

// Finished counts n more messages towards an early commit. It never blocks and costs an atomic
// addition.
func (c *Committer) Finished(n int) {
	before := c.finished.Add(int64(n)) - int64(n)
	if limit := int64(c.cfg.Count); before < limit && before+int64(n) >= limit {
		c.wake()
	}
}

// Remove commits a partition's watermark a last time and forgets the partition. It waits for the
// commit until ctx ends and then returns an error that wraps [context.Cause] of ctx; the partition
// is forgotten anyway. After Remove has returned, Mark is not called for this claim again, which
// matters when the partition may belong to another member by then. Removing a partition that is not
// there does nothing. Remove needs a committer that was started.
func (c *Committer) Remove(ctx context.Context, topic string, id int32) error {
	left := c.leave(partition{topic, id})
	if left == nil {
		return nil
	}
	select {
	case <-left:
		return nil
	case <-c.done:
		// The goroutine's last round may have included this claim, or may not have seen it.
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-left:
		return nil
	default:
	}
	delete(c.claims, partition{topic, id})
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("pipeline: %s/%d was not committed: %w", topic, id, err)
	}
	return fmt.Errorf("pipeline: %s/%d was not committed: the committer has stopped", topic, id)
}

// leave asks for the last commit of p and returns a channel that is closed after it.
func (c *Committer) leave(p partition) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	cl := c.claims[p]
	if cl == nil {
		return nil
	}
	if cl.leaving == nil {
		cl.leaving = make(chan struct{})
		c.wake()
	}
	return cl.leaving
}

// CommitStats counts what a [Committer] did.
type CommitStats struct {
	// Commits were attempted.
	Commits uint64
	// Repeated is how many of them had no new mark to send.
	Repeated uint64
	// Unconfirmed is how many partitions are marked above the offset that the broker is known to
	// have. Without Confirmed it counts all partitions while Commit is being repeated, and none
	// after that.
	Unconfirmed int
}

// Stats returns a consistent reading.
func (c *Committer) Stats() CommitStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	stats := c.stats
	stats.Unconfirmed = c.unconfirmed()
	return stats
}

func (c *Committer) wake() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}
