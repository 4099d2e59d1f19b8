// Package drivertest proves that a driver of kafkaadapter keeps what kafkaadapter promises.
//
// [Run] is the conformance suite: call it from a test of your own driver. Each of its rows starts
// brokers, runs members of a group on a store in memory, and checks every commit before the brokers
// make it: all messages below the offset must be on record, or parked.
//
// It imports testing; import it from tests only.
package drivertest

import (
	"cmp"
	"context"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/kafkaadapter"
)

// Mode is a way in which a group rebalances. A driver may have other modes than these.
type Mode string

// Modes that the suite knows.
const (
	Eager       Mode = "eager"       // all partitions are given up in a rebalance
	Cooperative Mode = "cooperative" // partitions that stay with their member are kept
	ServerSide  Mode = "KIP-848"     // the coordinator assigns them, and members have epochs
)

// Driver tells [Run] how to reach the driver under test. All fields except Rows and Lacks are
// required.
type Driver struct {
	// Cluster starts brokers without topics, and ends them with t.Cleanup. It is called once for
	// each row and mode. The brokers must allow sessions of 2 s. In the mode ServerSide they must
	// ask members for a heartbeat every 100 ms, and expel a silent member after some 10 s.
	Cluster func(t testing.TB) Cluster
	// New makes a consumer that does not run yet. Its client looks for new topics and partitions at
	// least every second, and sends heartbeats every 100 ms.
	New func(m Member) (Consumer, error)
	// Producer makes a producer that gives a letter up after about 5 s, and is closed with
	// t.Cleanup. A letter of more than limit bytes is too large for it. A limit of 0 allows any
	// size.
	Producer func(t testing.TB, brokers []string, limit int) kafkaadapter.Producer
	// Code returns the protocol's error code in an error of the client, and 0 if there is none.
	Code func(err error) int16
	// Modes of the driver. Rows in which partitions move run in each mode, the others only in the
	// first.
	Modes []Mode

	// Rows limits the suite to rows whose names begin with it. Default: all.
	Rows string
	// Lacks names rows that the driver cannot run, or "row/mode", with the reason. They are logged.
	Lacks map[string]string
}

// Member describes a consumer that [Driver].New makes.
type Member struct {
	// Brokers, Group and Topics say where it is a member.
	Brokers []string
	Group   string
	Topics  []string
	// Mode is one of Driver.Modes.
	Mode Mode
	// Session is how long the member may be silent, and Rebalance how long a rebalance waits for
	// it. In a mode that leaves one of them to the brokers, it is not used.
	Session, Rebalance time.Duration
	// Instance makes it a static member, unless it is empty.
	Instance string
	// FetchBytes bounds a fetch of one partition. 0 means the client's default.
	FetchBytes int
	// Dial makes its connections. A driver whose client has no such setting ignores it, and has
	// "members/crash" in Lacks.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Config of the consumer.
	Config kafkaadapter.Config
}

// Consumer has the methods that every driver's consumer has.
type Consumer interface {
	// Run consumes until ctx ends, and returns nil after its partitions have been drained.
	Run(ctx context.Context) error
	// Progress returns a reading of every partition that the member has, in order.
	Progress() []kafkaadapter.Progress
}

// Cluster controls the brokers of one row. Its methods are safe for concurrent use.
type Cluster interface {
	// ListenAddrs are the addresses of the brokers.
	ListenAddrs() []string
	// CreateTopic makes a topic.
	CreateTopic(topic string, partitions int32, configs map[string]string) error
	// DeleteTopic deletes a topic.
	DeleteTopic(topic string) error
	// TopicID is a topic's UUID as Kafka's tools write it, empty where there is no such topic.
	TopicID(topic string) string
	// AddPartitions raises the number of a topic's partitions to partitions.
	AddPartitions(ctx context.Context, topic string, partitions int32) error
	// DeleteRecords deletes the messages before an offset.
	DeleteRecords(topic string, partition int32, before int64) error
	// Produce appends messages to their partitions, in order, with their timestamps.
	Produce(ctx context.Context, messages ...*kafkaadapter.Message) error
	// Committed is the group's committed offset, -1 if there is none, and its metadata.
	Committed(group, topic string, partition int32) (offset int64, metadata string)
	// Commit commits like a client that is not in the group.
	Commit(ctx context.Context, group, topic string, offset int64, metadata string) error
	// Members returns how many partitions each member of the group has. The result is settled when
	// the group does not rebalance.
	Members(group string) (partitions []int, settled bool)
	// Expel ends the membership of all members that have partitions of the group, if the protocol
	// has a request for that.
	Expel(ctx context.Context, group string) error
	// OnCommit calls f for each partition of each commit, before the commit is made.
	OnCommit(f func(Commit))
	// Fail makes requests fail.
	Fail(f Failure) Fault
}

// Commit is one offset that is about to be committed.
type Commit struct {
	// Group is the group that commits. Topic is empty where the request has TopicID, in the form of
	// Cluster.TopicID.
	Group, Topic, TopicID string
	Partition             int32
	Offset                int64
}

// Failure makes the brokers answer the next Count requests of one kind with an error.
type Failure struct {
	// API is the key of the requests in Kafka's protocol, such as 8 for OffsetCommit.
	API int16
	// Topic is the topic whose partitions fail. Empty: the whole request fails.
	Topic string
	// Code is the code of the error in Kafka's protocol.
	Code int16
	// Count is the number of requests.
	Count int
}

// Fault is a [Failure] at work.
type Fault interface {
	// Hits is how many requests have failed.
	Hits() int
	// Remove ends it.
	Remove()
}

// Run runs the suite as parallel subtests of t. A row that fails logs what the row prevents. Run it
// with -race.
func Run(t *testing.T, d Driver) {
	t.Helper()
	require.NotNil(t, d.Cluster, "drivertest: Driver.Cluster")
	require.NotNil(t, d.New, "drivertest: Driver.New")
	require.NotNil(t, d.Producer, "drivertest: Driver.Producer")
	require.NotNil(t, d.Code, "drivertest: Driver.Code")
	require.NotEmpty(t, d.Modes, "drivertest: Driver.Modes")
	unknown := maps.Clone(d.Lacks)
	for _, r := range rows() {
		for _, m := range r.modes(d) {
			delete(unknown, r.name)
			delete(unknown, r.in(m))
		}
	}
	require.True(t, len(unknown) == 0 || d.Rows != "",
		"drivertest: Driver.Lacks has unknown rows: %v", unknown)
	for _, r := range rows() {
		for _, m := range r.modes(d) {
			if why := cmp.Or(d.Lacks[r.name], d.Lacks[r.in(m)]); why != "" {
				t.Logf("left out: %s: %s", r.in(m), why)
				continue
			}
			r.run(t, d, m)
		}
	}
}

// row is one requirement for every driver.
type row struct {
	name string
	// prevents says what a driver that fails the row does to its users.
	prevents string
	// each is set for rows in which partitions move, because their result may depend on the mode.
	each  bool
	story func(s *scene)
}

// modes returns the modes in which the row runs: an empty one stands for the first.
func (r row) modes(d Driver) []Mode {
	switch {
	case !strings.HasPrefix(r.name, d.Rows):
		return nil
	case r.each && len(d.Modes) > 1:
		return slices.Clone(d.Modes)
	}
	return []Mode{""}
}

// in returns the name of the row in a mode.
func (r row) in(m Mode) string { return strings.TrimSuffix(r.name+"/"+string(m), "/") }

func (r row) run(t *testing.T, d Driver, m Mode) {
	t.Helper()
	t.Run(r.in(m), func(t *testing.T) {
		t.Parallel()
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("prevents: %s", r.prevents)
			}
		})
		if m == "" {
			m = d.Modes[0]
		}
		r.story(newScene(t, d, m))
	})
}
