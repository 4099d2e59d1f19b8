package drivertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
)

const (
	orders   = "orders"
	payments = "payments"
	group    = "g"
	readers  = "letters" // the group of scene.readDeadLetters
	idHeader = "message-id"

	// patience is long because the machine may be busy: only a row that fails waits that long.
	patience = time.Minute
)

var errBroken = errors.New("broken")

// position is a partition of a topic, as one group sees it unless group is empty.
type position struct {
	group, topic string
	partition    int32
}

// scene has what a row needs: brokers, a store, a ledger of effects, and an oracle that checks
// every commit.
type scene struct {
	*testing.T
	d       Driver
	mode    Mode
	cluster Cluster
	store   dedup.Store
	lease   time.Duration

	mu         sync.Mutex
	names      map[string]string     // of topics, by their UUIDs
	log        map[position][]string // the id at every offset, in no group
	last       map[position]int64    // committed
	effects    map[string]int
	total      int
	commits    int
	byID       bool            // commits name topics by their UUIDs
	parked     map[string]bool // ids that have no record
	violations []string
	early      bool // offsets are committed that no member has handled
	notes      map[string]int
	errs       []error // of the group
}

func newScene(t *testing.T, d Driver, mode Mode) *scene {
	t.Helper()
	s := &scene{T: t, d: d, mode: mode, store: dedup.Memory(1 << 20), lease: 30 * time.Second,
		names: map[string]string{}, log: map[position][]string{}, last: map[position]int64{},
		effects: map[string]int{}, parked: map[string]bool{}, notes: map[string]int{}}
	s.cluster = d.Cluster(t)
	s.cluster.OnCommit(s.committing)
	t.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		assert.Empty(t, s.violations, "bad commits")
	})
	return s
}

// topic makes a topic.
func (s *scene) topic(name string, partitions int32) {
	s.Helper()
	require.NoError(s, s.cluster.CreateTopic(name, partitions, nil))
	uuid := s.cluster.TopicID(name)
	require.NotEmpty(s, uuid, "the UUID of %s", name)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names[uuid] = name
}

// replace deletes a topic and creates it again, with one partition.
func (s *scene) replace(name string) {
	s.Helper()
	require.NoError(s, s.cluster.DeleteTopic(name))
	s.mu.Lock()
	clear(s.names) // an offset of the old topic counts for no topic
	for at := range s.log {
		if at.topic == name {
			delete(s.log, at)
		}
	}
	for at := range s.last {
		if at.topic == name {
			delete(s.last, at)
		}
	}
	s.mu.Unlock()
	s.topic(name, 1)
}

// free turns the oracle off, for a row that commits what no member has handled.
func (s *scene) free() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.early = true
}

// committing is the oracle: it checks that every offset below a commit has a record in the store.
func (s *scene) committing(c Commit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commits++
	s.byID = s.byID || c.Topic == ""
	topic := c.Topic
	if topic == "" {
		topic = s.names[c.TopicID]
	}
	if topic == "" || s.early || c.Group == readers {
		return
	}
	bad := func(format string, args ...any) {
		s.violations = append(s.violations, fmt.Sprintf("%s/%d@%d in %s ", topic, c.Partition,
			c.Offset, c.Group)+fmt.Sprintf(format, args...))
	}
	at := position{c.Group, topic, c.Partition}
	if c.Offset < s.last[at] {
		bad("goes back from %d", s.last[at])
	}
	s.last[at] = c.Offset
	log := s.log[position{"", topic, c.Partition}]
	if c.Offset > int64(len(log)) {
		bad("is beyond the %d messages there", len(log))
		return
	}
	for offset, id := range log[:max(c.Offset, 0)] {
		if state := s.stateOf(c.Group, topic, id); id != "" && !s.parked[id] &&
			state != driver.StateSucceeded && state != driver.StateFailed {
			bad("passes %s at %d, which is %v", id, offset, state)
		}
	}
}

func (s *scene) stateOf(group, topic, id string) driver.State {
	key, err := driver.NewID("t", kafkaadapter.ScopeOf(group, topic), id)
	if err != nil {
		return driver.StateAbsent
	}
	return s.store.Lookup(context.Background(), []driver.ID{key})[0].Record.State
}

// message is a message to send, with the id as its key and value.
func message(topic string, partition int32, id string) *kafkaadapter.Message {
	m := &kafkaadapter.Message{Topic: topic, Partition: partition, Key: []byte(id),
		Value: []byte(id)}
	m.SetHeaders(kafkaadapter.Headers{{Key: idHeader, Value: []byte(id)}})
	return m
}

func number(n int) string { return fmt.Sprintf("evt_%06d", n) }

// produce appends n messages to a partition of orders, numbered from a start on.
func (s *scene) produce(partition int32, from, n int) {
	s.Helper()
	all := make([]*kafkaadapter.Message, n)
	for i := range all {
		all[i] = message(orders, partition, number(from+i))
	}
	s.send(all...)
}

func (s *scene) send(all ...*kafkaadapter.Message) {
	s.Helper()
	s.mu.Lock()
	for _, m := range all {
		at := position{"", m.Topic, m.Partition}
		s.log[at] = append(s.log[at], m.Header(idHeader))
	}
	s.mu.Unlock()
	require.NoError(s, s.cluster.Produce(s.Context(), all...))
}

// affect performs the effect of a message.
func (s *scene) affect(m *kafkaadapter.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.effects[m.Scope+" "+m.ID]++
	s.total++
}

func (s *scene) note(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notes[what]++
}

func (s *scene) noted(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.notes[what]
}

func (s *scene) totalEffects() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

func (s *scene) groupErrors() []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.errs)
}

func (s *scene) lastError() error {
	if all := s.groupErrors(); len(all) > 0 {
		return all[len(all)-1]
	}
	return nil
}

// affected waits until there are n effects.
func (s *scene) affected(n int) {
	s.Helper()
	s.eventually(func() (bool, string) {
		total := s.totalEffects()
		return total >= n, fmt.Sprintf("%d of %d effects; %v", total, n, s.lastError())
	})
}

// once checks that there are n effects, each of them once.
func (s *scene) once(n int) {
	s.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	assert.Equal(s, n, s.total, "effects")
	assert.Len(s, s.effects, n, "messages with an effect")
}

// committed waits until everything is committed.
func (s *scene) committed() {
	s.Helper()
	s.committedBy(group)
}

// committedBy waits until a group has committed everything.
func (s *scene) committedBy(by string) {
	s.Helper()
	s.eventually(func() (bool, string) {
		missing := s.missing(by)
		return missing == "", missing
	})
}

// missing says what a group has not committed; it is empty when the group has committed everything.
func (s *scene) missing(by string) string {
	s.mu.Lock()
	logs := maps.Clone(s.log)
	s.mu.Unlock()
	for at, log := range logs {
		if to, _ := s.cluster.Committed(by, at.topic, at.partition); to != int64(len(log)) {
			return fmt.Sprintf("%s/%d is committed to %d of %d; %v", at.topic, at.partition, to,
				len(log), s.lastError())
		}
	}
	return ""
}

// committedTo waits until partition 0 of orders is committed up to an offset.
func (s *scene) committedTo(offset int64) {
	s.Helper()
	s.eventually(func() (bool, string) {
		to, _ := s.cluster.Committed(group, orders, 0)
		return to == offset, fmt.Sprintf("committed to %d, not to %d", to, offset)
	})
}

// members waits until the group has n members and each has a partition.
func (s *scene) members(n int) {
	s.Helper()
	s.eventually(func() (bool, string) {
		all, settled := s.cluster.Members(group)
		return settled && len(all) == n && !slices.Contains(all, 0),
			fmt.Sprint("partitions of members: ", all, settled)
	})
}

func (s *scene) eventually(cond func() (bool, string)) {
	s.Helper()
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
			require.FailNow(s, "not after "+patience.String(), state)
		}
	}
}

// joined waits until the group knows n members, whether or not it rebalances.
func (s *scene) joined(n int) {
	s.Helper()
	s.eventually(func() (bool, string) {
		known, _ := s.cluster.Members(group)
		return len(known) == n, fmt.Sprint("partitions of members: ", known)
	})
}
