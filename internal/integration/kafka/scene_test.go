package kafka_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
)

const sceneTopic, sceneGroup = "orders", "g"

// sceneScope is the scope of all keys of a scene, whatever its group and topics are called.
const sceneScope = "scene"

// scene is an embedded broker with a topic, a store, the commit oracle over both, and a
// ledger of effects.
type scene struct {
	brokers
	t        *testing.T
	flavor   flavor // of the members that join
	cluster  *kfake.Cluster
	store    dedup.Store
	newStore func() dedup.Store // makes the store of a member; if nil, it is store
	records  records
	ledger   *sqlLedger // of an Atomic scene
	oracle   *oracle
	log      map[int32][]string  // what will be at every position
	sent     map[int32][]string  // what is
	producer sarama.SyncProducer // of produce; nil before
	early    bool                // commits are meant to run ahead
	immortal bool                // see nobodyDies

	mu      sync.Mutex
	effects map[string]int
	skipped map[driver.Cause]int
	waited  map[string]int
	paused  int
	order   []effect

	groupErrors []error
}

// effect says which message had an effect.
type effect struct {
	id, key   string
	partition int32
	offset    int64
}

// newScene is a scene for tests that are about one client: its members are sarama's.
func newScene(t *testing.T, nodes int, partitions int32) *scene {
	t.Helper()
	return eager.scene(t, nodes, partitions)
}

// scene is a scene whose members are of this flavor.
func (f flavor) scene(t *testing.T, nodes int, partitions int32) *scene {
	t.Helper()
	return f.sceneOn(t, embeddedNodes(t, nodes), partitions, nil)
}

// sceneOn is a scene on these brokers, with these settings of its topic.
func (f flavor) sceneOn(t *testing.T, cluster *kfake.Cluster, partitions int32,
	topic map[string]string) *scene {
	t.Helper()
	require.NoError(t, cluster.CreateTopic(sceneTopic, partitions, topic))
	s := f.sceneAt(t, fakeBrokers{cluster})
	s.cluster = cluster
	s.oracle.attach(cluster)
	return s
}

// brokers are the brokers of a scene, with its topic and its group.
type brokers interface {
	addrs() []string
	topic() string
	group() string
	// committed returns the group's offset of a partition, 0 before a commit.
	committed(partition int32) int64
}

// fakeBrokers are embedded brokers.
type fakeBrokers struct{ *kfake.Cluster }

func (b fakeBrokers) addrs() []string { return b.ListenAddrs() }
func (fakeBrokers) topic() string     { return sceneTopic }
func (fakeBrokers) group() string     { return sceneGroup }

func (b fakeBrokers) committed(partition int32) int64 {
	info := b.GroupInfo(sceneGroup)
	if info == nil {
		return 0
	}
	return info.Commits[sceneTopic][partition].Offset
}

// sceneAt is a scene on brokers that have its topic. The oracle does not see them yet.
func (f flavor) sceneAt(t *testing.T, at brokers) *scene {
	t.Helper()
	s := &scene{
		t: t, brokers: at, flavor: f, store: dedup.Memory(1 << 20), log: map[int32][]string{},
		sent:    map[int32][]string{},
		effects: map[string]int{}, skipped: map[driver.Cause]int{}, waited: map[string]int{},
	}
	s.records = recordsOf(s.store)
	s.oracle = newOracle(func(ids []string) []string { return s.records(ids) })
	t.Cleanup(func() {
		s.oracle.mu.Lock()
		defer s.oracle.mu.Unlock()
		if !s.early {
			assert.Empty(t, s.oracle.violations, "commits that ran ahead")
		}
	})
	return s
}

// nobodyDies is for scenes in which no member dies. In other scenes a session ends after a second
// and a half without a heartbeat, even if the machine is only slow. Here sessions and leases last a
// minute.
func (s *scene) nobodyDies() *scene {
	s.immortal = true
	s.cluster.SetGroupConfigs(sceneGroup, map[string]string{"consumer.session.timeout.ms": "60000"})
	return s
}

// produce appends records and tells the oracle where they will lie before anybody can
// commit them.
func (s *scene) produce(records ...record) {
	s.t.Helper()
	for _, r := range records {
		s.log[r.partition] = append(s.log[r.partition], r.id)
	}
	s.oracle.expect(s.log)
	if s.producer == nil {
		p := newProducer(s.t, s.addrs())
		s.t.Cleanup(func() { _ = p.Close() })
		s.producer = p
	}
	sendAt(s.t, s.producer, s.topic(), s.sent, records)
}

// numbered are n records on one partition, each under a key of its own.
func numbered(partition int32, from, n int) []record {
	var records []record
	for i := range n {
		id := idOf(from + i)
		records = append(records, record{id: id, partition: partition, key: id, value: []byte(id)})
	}
	return records
}

// join adds a member. A nil handler has its effect at once; in an Atomic scene the effect
// and its record are one transaction.
func (s *scene) join(h kafkaadapter.Handler, change ...func(*memberConfig)) *member {
	s.t.Helper()
	link := &mortal{Store: s.store}
	if s.newStore != nil {
		link.Store = s.newStore()
	}
	mc := memberConfig{
		Config: s.config(), link: link,
		membership: membership{brokers: s.addrs(), group: s.group(), topics: []string{s.topic()}},
	}
	mc.Handler = func(ctx context.Context, m *kafkaadapter.Message) error {
		if h != nil {
			if err := h(ctx, m); err != nil {
				return err
			}
		}
		if s.ledger != nil {
			return s.ledger.land(ctx, s, link, m)
		}
		s.affect(m)
		return nil
	}
	if s.immortal {
		mc.session, mc.lease = time.Minute, time.Minute
	}
	for _, f := range change {
		f(&mc)
	}
	return s.flavor.start(s.t, mc)
}

// config returns the configuration of every member, without a handler.
func (s *scene) config() kafkaadapter.Config {
	return kafkaadapter.Config{
		Unclaimed: s.ledger != nil, Scope: sceneScope,
		Observer: kafkaadapter.Observer{
			Skipped: func(_ *kafkaadapter.Message, cause driver.Cause, _ time.Duration) {
				s.note(func() { s.skipped[cause]++ })
			},
			Waiting: func(m *kafkaadapter.Message) { s.note(func() { s.waited[m.ID]++ }) },
			Paused:  func(string, int32, bool) { s.note(func() { s.paused++ }) },
			GroupError: func(err error) {
				s.note(func() { s.groupErrors = append(s.groupErrors, err) })
			},
		},
		Attempts: kafkaadapter.Attempts{RetryBase: 20 * time.Millisecond,
			RetryMax: 500 * time.Millisecond},
		Tuning: kafkaadapter.Tuning{Drain: time.Second, CommitEvery: 50 * time.Millisecond,
			CommitCount: 200},
	}
}

// affect counts the effect of a message.
func (s *scene) affect(m *kafkaadapter.Message) {
	s.note(func() {
		s.effects[m.ID]++
		s.order = append(s.order, effect{id: m.ID, key: string(m.Key), partition: m.Partition,
			offset: m.Offset})
	})
}

func (s *scene) note(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// effectsOf is how often the effect of an id has happened.
func (s *scene) effectsOf(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.effects[id]
}

func (s *scene) totalEffects() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.order)
}

// wantCommittedToEnd waits until every partition is committed to what was produced.
func (s *scene) wantCommittedToEnd(limit time.Duration) {
	s.t.Helper()
	eventually(s.t, limit, s.committedToEnd)
}

// committedToEnd reports whether every partition is committed to what was produced.
func (s *scene) committedToEnd() (bool, string) {
	for p, ids := range s.log {
		if at := s.committed(p); at != int64(len(ids)) {
			return false, fmt.Sprintf("partition %d is committed to %d of %d", p, at, len(ids))
		}
	}
	return true, ""
}

// gone waits until members that have crashed are out of the group: before that, the broker would
// accept a late commit of theirs.
func (s *scene) gone() {
	s.t.Helper()
	eventually(s.t, 10*time.Second, func() (bool, string) {
		left := s.assigned()
		return len(left) == 0, fmt.Sprint("in the group still: ", left)
	})
}

// assigned returns the partitions of each member, as the broker knows them, in no order.
func (s *scene) assigned() [][]int32 {
	var all [][]int32
	if info := s.cluster.GroupInfo(sceneGroup); info != nil {
		for _, m := range info.Members {
			all = append(all, slices.Sorted(slices.Values(m.Assignment[sceneTopic])))
		}
	}
	return all
}

// wantMembers waits until the group is stable with n members that all have partitions.
func (s *scene) wantMembers(n int) {
	s.t.Helper()
	eventually(s.t, 10*time.Second, func() (bool, string) {
		info := s.cluster.GroupInfo(sceneGroup)
		if info == nil {
			return false, "no group"
		}
		all := s.assigned()
		ok := info.State == "Stable" && len(all) == n &&
			!slices.ContainsFunc(all, func(p []int32) bool { return len(p) == 0 })
		return ok, fmt.Sprint(info.State, " ", all)
	})
}
