package kafkaconfluent

import (
	"context"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
)

const (
	orders   = "orders"
	payments = "payments" // for stories of two topics
	group    = "g"
)

// mode is a way in which a group rebalances.
type mode struct {
	name   string
	config kafka.ConfigMap
}

var (
	eager       = mode{"eager", kafka.ConfigMap{"partition.assignment.strategy": "range"}}
	cooperative = mode{"cooperative",
		kafka.ConfigMap{"partition.assignment.strategy": "cooperative-sticky"}}
	nextGen = mode{"KIP-848", kafka.ConfigMap{"group.protocol": "consumer"}}
)

// eachMode runs a story in every mode, at the same time.
func eachMode(t *testing.T, story func(t *testing.T, m mode)) {
	t.Helper()
	inModes(t, []mode{eager, cooperative, nextGen}, story)
}

func inModes(t *testing.T, modes []mode, story func(t *testing.T, m mode)) {
	t.Helper()
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			story(t, m)
		})
	}
}

// rig is an embedded broker with a topic, a store, a ledger of effects, and an oracle that
// looks at every commit.
type rig struct {
	t       *testing.T
	mode    mode
	cluster *kfake.Cluster
	store   dedup.Store
	client  *kgo.Client // to produce with

	mu         sync.Mutex
	log        map[int32][]string // the id at every position
	effects    map[string]int
	total      int
	commits    int
	parked     map[string]bool // with no record
	last       map[int32]int64 // committed
	epochs     map[int32]bool  // leader epochs that were committed
	violations []string
	early      bool           // commits are meant to run ahead
	notes      map[string]int // whatever a story counts
}

func newRig(t *testing.T, m mode, partitions int32) *rig {
	t.Helper()
	cluster, err := kfake.NewCluster(
		kfake.NumBrokers(2), kfake.SeedTopics(partitions, orders), kfake.SeedTopics(1, payments),
		kfake.GroupMinSessionTimeout(200*time.Millisecond),
		kfake.BrokerConfigs(map[string]string{
			"group.consumer.heartbeat.interval.ms": "100",
			"group.consumer.session.timeout.ms":    "30000",
		}))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	r := &rig{
		t: t, mode: m, cluster: cluster, store: dedup.Memory(1 << 20), log: map[int32][]string{},
		effects: map[string]int{}, last: map[int32]int64{}, epochs: map[int32]bool{},
		notes: map[string]int{}, parked: map[string]bool{},
	}
	r.client = r.newClient(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	r.watch()
	t.Cleanup(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !r.early {
			assert.Empty(t, r.violations, "bad commits")
		}
	})
	return r
}

func (r *rig) newClient(opts ...kgo.Opt) *kgo.Client {
	r.t.Helper()
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(r.cluster.ListenAddrs()...))...)
	require.NoError(r.t, err)
	r.t.Cleanup(cl.Close)
	return cl
}

// watch checks at the broker that every offset below a commit has a record in the store.
func (r *rig) watch() {
	r.cluster.ControlKey(int16(kmsg.OffsetCommit),
		func(req kmsg.Request) (kmsg.Response, error, bool) {
			r.cluster.KeepControl()
			for _, topic := range req.(*kmsg.OffsetCommitRequest).Topics {
				for _, p := range topic.Partitions {
					r.committing(p.Partition, p.Offset, p.LeaderEpoch)
				}
			}
			return nil, nil, false
		})
}

func (r *rig) committing(partition int32, offset int64, epoch int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.commits++
	r.epochs[epoch] = true
	if offset < r.last[partition] {
		r.violations = append(r.violations,
			fmt.Sprintf("%d@%d goes back from %d", partition, offset, r.last[partition]))
	}
	r.last[partition] = offset
	log := r.log[partition]
	if offset > int64(len(log)) {
		r.violations = append(r.violations,
			fmt.Sprintf("%d@%d is beyond the %d messages there", partition, offset, len(log)))
		return
	}
	for at, id := range log[:offset] {
		if s := r.stateOf(id); id != "" && !r.parked[id] && s != driver.StateSucceeded &&
			s != driver.StateFailed {
			r.violations = append(r.violations,
				fmt.Sprintf("%d@%d: %s at %d is %v", partition, offset, id, at, s))
		}
	}
}

func (r *rig) stateOf(id string) driver.State {
	key, err := driver.NewID("t", kafkaadapter.ScopeOf(group, orders), id)
	if err != nil {
		return driver.StateAbsent
	}
	return r.store.Lookup(context.Background(), []driver.ID{key})[0].Record.State
}

// produce appends n messages to a partition, numbered from a number on.
func (r *rig) produce(partition int32, from, n int) {
	r.t.Helper()
	records := make([]*kgo.Record, n)
	for i := range records {
		id := fmt.Sprintf("evt_%06d", from+i)
		records[i] = &kgo.Record{
			Topic: orders, Partition: partition, Key: []byte(id), Value: []byte(id),
			Headers: []kgo.RecordHeader{{Key: "message-id", Value: []byte(id)}},
		}
	}
	r.send(records...)
}

// send produces records; those without an id are nobody's to look for.
func (r *rig) send(records ...*kgo.Record) {
	r.t.Helper()
	r.mu.Lock()
	for _, rec := range records {
		if rec.Topic == orders {
			r.log[rec.Partition] = append(r.log[rec.Partition], headerOf(rec))
		}
	}
	r.mu.Unlock()
	require.NoError(r.t, r.client.ProduceSync(r.t.Context(), records...).FirstErr())
}

func headerOf(rec *kgo.Record) string {
	for _, h := range rec.Headers {
		if h.Key == "message-id" {
			return string(h.Value)
		}
	}
	return ""
}

// affect is the effect of a message.
func (r *rig) affect(m *kafkaadapter.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.effects[m.ID]++
	r.total++
}

func (r *rig) note(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes[what]++
}

func (r *rig) noted(what string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.notes[what]
}

func (r *rig) totalEffects() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.total
}

// member is a consumer that runs.
type member struct {
	r        *rig
	consumer *Consumer
	cancel   context.CancelFunc
	done     chan error
}

// deduper makes one on a store.
func (r *rig) deduper(store dedup.Store) *dedup.Deduper {
	r.t.Helper()
	d, err := dedup.New(store, dedup.Config{Namespace: "t", Window: time.Hour,
		LeaseTTL: 30 * time.Second,
		Hold:     time.Minute, Labels: true})
	require.NoError(r.t, err)
	return d
}

// config is a member's, with limits that suit a test.
func (r *rig) config(l dedup.Store, handle kafkaadapter.Handler) kafkaadapter.Config {
	r.t.Helper()
	if handle == nil {
		handle = func(context.Context, *kafkaadapter.Message) error { return nil }
	}
	return kafkaadapter.Config{
		Deduper: r.deduper(l),
		Tuning:  kafkaadapter.Tuning{Drain: time.Second, CommitEvery: 50 * time.Millisecond},
		Attempts: kafkaadapter.Attempts{RetryBase: 20 * time.Millisecond,
			RetryMax: 300 * time.Millisecond},
		Handler: func(ctx context.Context, m *kafkaadapter.Message) error {
			if err := handle(ctx, m); err != nil {
				return err
			}
			r.affect(m)
			return nil
		},
		Observer: kafkaadapter.Observer{
			Skipped: func(*kafkaadapter.Message, driver.Cause, time.Duration) { r.note("skipped") },
			Revoked: func(string, int32, int, int) { r.note("revoked") },
		},
	}
}

// properties are those of a member's client.
func (r *rig) properties(more kafka.ConfigMap) kafka.ConfigMap {
	all := kafka.ConfigMap{"bootstrap.servers": strings.Join(r.cluster.ListenAddrs(), ","),
		"max.poll.interval.ms": 60000}
	if d := os.Getenv("RDEBUG"); d != "" {
		all["debug"] = d
	}
	if r.mode.name != nextGen.name {
		all["session.timeout.ms"] = int(sessionTimeout.Milliseconds())
		all["heartbeat.interval.ms"] = 100
	}
	maps.Copy(all, r.mode.config)
	maps.Copy(all, more)
	return all
}

// sessionTimeout is that of classic members.
const sessionTimeout = 6 * time.Second

// expire expires the members that have anything, once all is not committed after so long. A fault
// says that they are gone, while the broker still knows them; they may have joined again when
// their client is closed. kfake never expires a member whose connection has ended before its join
// is answered.
func (r *rig) expire(after time.Duration) {
	deadline := time.Now().Add(after)
	r.eventually(func() (bool, string) {
		all, state := r.allCommitted()
		return all || time.Now().After(deadline), state
	})
	if all, _ := r.allCommitted(); all {
		return
	}
	for _, m := range r.cluster.GroupInfo(group).Members {
		if m.NumAssigned() == 0 {
			continue
		}
		leave := kmsg.NewPtrLeaveGroupRequest()
		leave.Group = group
		gone := kmsg.NewLeaveGroupRequestMember()
		gone.MemberID = m.MemberID
		leave.Members = append(leave.Members, gone)
		_, err := leave.RequestWith(r.t.Context(), r.client)
		assert.NoError(r.t, err)
	}
}

// join starts a member.
func (r *rig) join(handle kafkaadapter.Handler, change func(*kafkaadapter.Config),
	more kafka.ConfigMap) *member {
	r.t.Helper()
	m := &member{r: r, done: make(chan error, 1)}
	cfg := r.config(r.store, handle)
	if change != nil {
		change(&cfg)
	}
	c, err := New(group, cfg)
	require.NoError(r.t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	m.consumer, m.cancel = c, cancel
	go func() {
		m.done <- c.Run(ctx, r.properties(more), []string{orders})
		if cfg.Deduper != nil {
			_ = cfg.Deduper.Close(context.WithoutCancel(ctx))
		}
	}()
	r.t.Cleanup(cancel)
	return m
}

// leave ends a member as a deployment would.
func (m *member) leave() {
	m.r.t.Helper()
	m.cancel()
	assert.NoError(m.r.t, m.wait(), "Run")
}

// wait returns what Run has returned.
func (m *member) wait() error {
	m.r.t.Helper()
	select {
	case err := <-m.done:
		return err
	case <-time.After(patience):
		require.FailNow(m.r.t, "Run does not return")
		return nil
	}
}

// committed waits until everything is committed.
func (r *rig) committed() {
	r.t.Helper()
	r.eventually(r.allCommitted)
}

func (r *rig) allCommitted() (bool, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	info := r.cluster.GroupInfo(group)
	for p, log := range r.log {
		if info == nil || info.Commits[orders][p].Offset != int64(len(log)) {
			return false, fmt.Sprintf("partition %d is not committed to %d: %v",
				p, len(log), info)
		}
	}
	return true, ""
}

// members waits until the group has n members that all have something.
func (r *rig) members(n int) {
	r.t.Helper()
	r.eventually(func() (bool, string) {
		info := r.cluster.GroupInfo(group)
		if info == nil || info.State != "Stable" || len(info.Members) != n {
			return false, fmt.Sprint(info)
		}
		for i := range info.Members {
			if info.Members[i].NumAssigned() == 0 {
				return false, fmt.Sprint(info)
			}
		}
		return true, ""
	})
}

// once wants n effects, each of them once.
func (r *rig) once(n int) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	assert.Equal(r.t, n, r.total, "effects")
	assert.Len(r.t, r.effects, n, "messages with an effect")
}

// patience is for a busy machine: only a test that fails waits for so long.
const patience = time.Minute

func (r *rig) eventually(cond func() (bool, string)) {
	r.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, state := cond()
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			require.FailNow(r.t, "not after "+patience.String(), state)
		}
	}
}
