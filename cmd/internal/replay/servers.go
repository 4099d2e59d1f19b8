package replay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkafranz"
	"github.com/onceward/onceward/lease"
	"github.com/onceward/onceward/redisadapter"
)

const (
	// maxMessage is so large that only the brokers limit the size of a message, because a message
	// that came from a topic should fit into that topic again.
	maxMessage = 64 << 20
	// tries is how often the run sends a message, or commits an offset, before it gives up.
	tries     = 5
	retryTime = 200 * time.Millisecond
	// lockTTL is how long the lock of a killed run keeps the next run away.
	lockTTL = 30 * time.Second
	// hold is how long after a key was freed its former owner is kept from writing.
	hold = time.Hour
)

// homePartitioner sends a message to the partition that it came from, because the other messages of
// its key are there, whatever hash chose it. If there is no such partition, the key chooses one.
// The client waits for a partition that is down.
func homePartitioner() kgo.Partitioner {
	byKey := kgo.StickyKeyPartitioner(nil)
	return kgo.BasicConsistentPartitioner(func(topic string) func(*kgo.Record, int) int {
		other := byKey.ForTopic(topic)
		return func(r *kgo.Record, n int) int {
			home := kafkafranz.Message(r).Header(kafkaadapter.HeaderPartition)
			if p, err := strconv.ParseUint(home, 10, 31); err == nil && int(p) < n {
				return int(p)
			}
			return other.Partition(r, n)
		}
	})
}

// openKafka connects.
func (r *run) openKafka(ctx context.Context) (err error) {
	r.client, err = r.Kafka.Open(ctx, "onceward-replay",
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(100*time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.ProducerBatchMaxBytes(maxMessage),
		kgo.RecordPartitioner(homePartitioner()),
		// A second copy of a message is a duplicate anyway. Because the writes are not idempotent,
		// the command does not need the right to make idempotent writes.
		kgo.DisableIdempotentWrite(),
		kgo.RecordRetries(tries), kgo.RecordDeliveryTimeout(messageTime/2),
		kgo.MetadataMinAge(retryTime), // each try waits for new metadata
		kgo.RequestRetries(tries), kgo.RetryBackoffFn(func(int) time.Duration { return retryTime }),
	)
	if err != nil {
		return err
	}
	r.closers = append(r.closers, r.client.Close)
	r.admin = kadm.NewClient(r.client)
	r.producer, err = kafkafranz.Producer(r.client)
	return err
}

// part is a partition of the dead-letter topic.
type part struct {
	number   int32
	position int64 // the next offset to look at
	end      int64 // where the partition ended when the command began
	done     finished
}

// findParts finds where each partition begins and ends.
func (r *run) findParts(ctx context.Context) error {
	oldest, err := r.admin.ListStartOffsets(ctx, r.Topic)
	newest, failed := r.admin.ListEndOffsets(ctx, r.Topic)
	if err = errors.Join(err, failed, oldest.Error(), newest.Error()); err != nil {
		return fmt.Errorf("--topic %q: %w", r.Topic, err)
	}
	committed, err := r.committed(ctx)
	if err != nil {
		return fmt.Errorf("--group %q: %w", r.Group, err)
	}
	for _, n := range slices.Sorted(maps.Keys(newest[r.Topic])) {
		p := &part{number: n, end: newest[r.Topic][n].Offset, done: finished{{}}}
		if at, ok := committed.Lookup(r.Topic, n); ok && at.At >= 0 {
			if p.done, err = parseFinished(at.At, at.Metadata); err != nil {
				return fmt.Errorf("%s/%d: %w", r.Topic, n, err)
			}
		}
		if next := p.done.next(); next > p.end {
			return fmt.Errorf(
				"%s/%d: offset %d is committed, and the partition ends at %d: it is another topic by now; choose another --group", r.Topic, n, next, p.end)
		}
		// skip what retention has deleted
		p.done = p.done.with(0, oldest[r.Topic][n].Offset)
		p.position = p.done.next()
		r.parts = append(r.parts, p)
	}
	return nil
}

// committed returns the offsets of the group. It refuses a group with members, because the offsets
// belong to these members.
func (r *run) committed(ctx context.Context) (kadm.OffsetResponses, error) {
	described, err := r.admin.DescribeGroups(ctx, r.Group)
	if err != nil {
		return nil, err
	}
	if len(described[r.Group].Members) > 0 {
		return nil, errors.New("has members: it must be this command's own")
	}
	all, err := r.admin.FetchOffsets(ctx, r.Group)
	if errors.Is(err, kerr.GroupIDNotFound) { // the group has never committed
		return nil, nil
	}
	return all, errors.Join(err, all.Error())
}

// commit returns when the broker has stored which offsets of a partition are done. Brokers refuse
// the commit if the group has members.
func (r *run) commit(ctx context.Context, l *deadLetter, done finished) error {
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: l.Topic, Partition: l.Partition, At: done.next(),
		LeaderEpoch: -1, Metadata: done.text()})
	if err := r.admin.CommitAllOffsets(ctx, r.Group, offsets); err != nil {
		return fmt.Errorf("%s: the offset cannot be committed: %w", l.view.At, err)
	}
	return nil
}

// openStore opens the consumer's Deduper. It writes nothing.
func (r *run) openStore(ctx context.Context) error {
	opened, err := r.Open(ctx)
	if err != nil {
		return err
	}
	r.closers = append(r.closers, opened.Close)
	if err := opened.TakeWindow(&r.Window); err != nil {
		return err
	}
	r.redis = opened.Redis
	if r.DryRun {
		opened.Store = unchanged{opened.Store}
	}
	r.dedup, err = dedup.New(opened.Store, dedup.Config{
		Namespace: r.Namespace, Window: r.Window, Hold: hold, LeaseTTL: min(time.Minute, r.Window),
		SeenOnly: opened.Layout == redisadapter.Compact,
	})
	return err
}

// acquire keeps other runs away from the topic. With two runs at once, one run could free a key
// right after the other run's message has succeeded under that key. A dry run needs
// no lock: it frees no key.
func (r *run) acquire(ctx context.Context) error {
	if r.DryRun {
		return nil
	}
	leases, err := lease.New(r.redis, lease.Options{})
	if err != nil {
		return err
	}
	l, err := leases.Acquire(ctx, "onceward replay "+r.Prefix+" "+r.Namespace+" "+r.Topic, lockTTL)
	if errors.Is(err, lease.ErrHeld) {
		return fmt.Errorf(
			"--topic: another run is replaying %q, or was killed less than %v ago: %w", r.Topic,
			lockTTL, err)
	}
	if err != nil {
		return fmt.Errorf("--redis: %w", err)
	}
	var stop func()
	r.lock, stop = l.KeepAlive(r.lock)
	r.closers = append(r.closers, func() {
		stop()
		// also if the run has been interrupted
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = l.Release(last) // otherwise it lapses
	})
	return nil
}

// unchanged is a store that a dry run cannot change. Its Forget changes nothing, and returns what
// the store's Forget would return.
type unchanged struct{ dedup.Store }

// Forget implements dedup.Store.
func (u unchanged) Forget(ctx context.Context, ids []driver.ID, _ time.Duration) []error {
	errs := make([]error, len(ids))
	for i, a := range u.Lookup(ctx, ids) {
		errs[i] = a.Err
		if a.Record.State == driver.StateInProgress && a.Record.Remaining > 0 {
			errs[i] = dedup.ErrInFlight
		}
	}
	return errs
}
