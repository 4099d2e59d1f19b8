package kafka_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/kafkaadapter"
)

// records returns the ids that are not on record as done, each with its state.
type records func(ids []string) (missing []string)

// recordsOf reads store directly, without the troubles that a test puts in front of it.
func recordsOf(store dedup.Store) records {
	return func(ids []string) (missing []string) {
		keys := make([]driver.ID, len(ids))
		for i, id := range ids {
			key, err := driver.NewID("t", sceneScope, id)
			if err != nil {
				panic(err) // ids of the tests fit
			}
			keys[i] = key
		}
		for i, ans := range store.Lookup(context.Background(), keys) {
			if s := ans.Record.State; ans.Err != nil ||
				s != driver.StateSucceeded && s != driver.StateFailed {
				missing = append(missing, fmt.Sprintf("%s is %v (error: %v)", ids[i], s, ans.Err))
			}
		}
		return missing
	}
}

// oracle sees every commit request at the broker and checks that every offset below it
// has a record in the store at that moment.
type oracle struct {
	records    records
	ids        map[int32][]string // "" where there is no message
	committing chan struct{}      // closed by the first commit, after its check

	first       sync.Once
	mu          sync.Mutex
	checked     map[int32]int64
	last        map[int32]int64
	generations map[int32]bool
	commits     int
	rewinds     int // commits below the one before
	violations  []string
}

func newOracle(recs records) *oracle {
	return &oracle{records: recs, committing: make(chan struct{}), checked: map[int32]int64{},
		last: map[int32]int64{}, generations: map[int32]bool{}}
}

// attach makes the oracle see the commits of a cluster. A restarted cluster is attached again.
func (o *oracle) attach(c *kfake.Cluster) {
	c.ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		commit := req.(*kmsg.OffsetCommitRequest)
		for _, topic := range commit.Topics {
			if topic.Topic != "" && topic.Topic != sceneTopic { // newer requests have an id alone
				continue
			}
			for _, p := range topic.Partitions {
				o.commit(commit.Generation, p.Partition, p.Offset)
			}
		}
		return nil, nil, false
	})
}

// expect tells the oracle which id lies at every position.
func (o *oracle) expect(ids map[int32][]string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ids = maps.Clone(ids)
}

// restart tells the oracle that the topic is a new one.
func (o *oracle) restart() {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.checked)
	clear(o.last)
}

// skip tells the oracle that a partition begins late.
func (o *oracle) skip(partition int32, offset int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.checked[partition] = offset
}

func (o *oracle) commit(generation, partition int32, offset int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.commits++
	o.generations[generation] = true
	if offset < o.last[partition] {
		o.rewinds++
	}
	o.last[partition] = offset
	defer o.first.Do(func() { close(o.committing) })
	from := o.checked[partition]
	if offset <= from || o.ids == nil {
		return
	}
	if offset > int64(len(o.ids[partition])) {
		o.violations = append(o.violations,
			fmt.Sprintf("commit %d of partition %d is beyond the %d messages there", offset,
				partition, len(o.ids[partition])))
		return
	}
	var ids []string
	for _, id := range o.ids[partition][from:offset] {
		if id != "" {
			ids = append(ids, id)
		}
	}
	for _, m := range o.records(ids) {
		o.violations = append(o.violations,
			fmt.Sprintf("commit %d of partition %d: %s", offset, partition, m))
	}
	o.checked[partition] = offset
}

// stream returns n messages on random partitions, and the number of their ids. Every fifth message
// repeats an earlier id.
func stream(rnd *rand.Rand, n, partitions int) (records []record, unique int) {
	for i := range n {
		id := idOf(unique)
		if i > 0 && i%5 == 0 {
			id = idOf(rnd.IntN(unique))
		} else {
			unique++
		}
		p := partitionsOf(partitions, rnd.IntN(partitions))
		records = append(records, record{id: id, partition: p, key: fmt.Sprint("k", rnd.IntN(500)),
			value: []byte(id)})
	}
	return records, unique
}

// Under crashes and rebalances nothing is committed before its record, and nothing is lost. Every
// crash hits a member that runs handlers, and every rebalance moves partitions of such members.
func TestCommitsNeverRunAheadOfRecords(t *testing.T) {
	const messages, partitions, rounds, atWork = 12_000, 6, 5, 30
	seed := uint64(time.Now().UnixNano()) // a seed
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0)) // a test
	s := newScene(t, 3, partitions)
	records, unique := stream(rnd, messages, partitions)
	more := func() { // a part of the stream, so that there is work at every moment
		n := min(messages/(2*rounds), len(records))
		s.produce(records[:n]...)
		records = records[n:]
	}
	var delivered, revoked atomic.Int64
	join := func() *member {
		return s.join(func(ctx context.Context, m *kafkaadapter.Message) error {
			// so that crashes hit it
			return backoff.Sleep(ctx, time.Duration(5+m.Offset%10)*time.Millisecond)
		}, func(mc *memberConfig) {
			mc.Observer.Delivered = func(*kafkaadapter.Message) { delivered.Add(1) }
			mc.Observer.Revoked = func(string, int32, int, int) { revoked.Add(1) }
		})
	}
	members := []*member{join(), join()}
	for round := range rounds {
		s.wantMembers(len(members))
		victim := rnd.IntN(len(members))
		crashed := members[victim].crashAtWork(atWork)
		more()
		assert.NotZero(t, waitFor(t, crashed, "the member to crash is not at work"),
			"round %d: the member that crashed was idle", round)
		members[victim] = join()
		extra := join() // causes a rebalance
		s.wantMembers(len(members) + 1)
		working := extra.after(atWork)
		more()
		waitFor(t, working, "the member that has joined gets nothing to do")
		extra.leave(t) // causes another one
	}
	s.wantCommittedToEnd(60 * time.Second)
	for _, m := range members {
		m.leave(t)
	}

	doubled := s.totalEffects() - unique
	s.oracle.mu.Lock()
	defer s.oracle.mu.Unlock()
	t.Logf("%d messages, %d ids, %d deliveries, %d effects doubled by %d crashes, %d commits in %d generations, %d partitions revoked",
		messages, unique, delivered.Load(), doubled, rounds, s.oracle.commits,
		len(s.oracle.generations), revoked.Load())
	assert.Len(t, s.effects, unique, "ids that had an effect")
	assert.Empty(t, records, "messages that were not sent")
	assert.Greater(t, delivered.Load(), int64(messages),
		"nothing was redelivered: the crashes hit nothing")
	assert.Greater(t, len(s.oracle.generations), rounds, "generations that have committed")
}

func waitFor[T any](t *testing.T, c <-chan T, otherwise string) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(30 * time.Second):
		t.Fatal(otherwise)
	}
	return v
}
