package kafka_test

import (
	"context"
	"fmt"
	"net"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
)

// kafkaMessage is a message as the handlers of scenarios see it, whatever client it came
// through.
type kafkaMessage struct {
	Topic      string
	Partition  int32
	Offset     int64
	Key, Value []byte
	ID         string
	Attempt    int
}

// handler has the effect of a message; its contract is that of kafkaadapter.Handler.
type handler = func(ctx context.Context, m *kafkaMessage) error

// observer has the hooks of an adapter's Observer that scenarios look at. Every hook may be
// nil, and is called concurrently.
type observer struct {
	Delivered  func(m *kafkaMessage) // before its ID is known
	Skipped    func(m *kafkaMessage, cause driver.Cause)
	Waiting    func(m *kafkaMessage)
	Parked     func(m *kafkaMessage, reason error)
	Committing func(topic string, partition int32, offset int64)
	Revoked    func(topic string, partition int32, returned, abandoned int)
	Paused     func(topic string, partition int32, paused bool)
	GroupError func(err error)
}

// memberConfig is what a member needs to know. Broker addresses, group, topic, handler and
// link are required. What else is zero has the harness's default.
type memberConfig struct {
	brokers  []string
	group    string
	topic    string
	link     *mortal // to its store; see scene.join for what an unclaimed member has
	handler  handler
	observer observer

	// Settings of the adapter, by the names that they have there.
	unclaimed           bool
	fingerprint         bool
	unordered           bool
	park                func(ctx context.Context, m *kafkaMessage, reason error) error
	deadTopic           string // parks there
	workers             int
	highWater, lowWater int
	drain, timeout      time.Duration
	ranges              func(ctx context.Context, r stretch) error // in place of handler

	// Settings of the Deduper.
	lease    time.Duration // default 1 s
	seenOnly bool
	resolve  func(ctx context.Context, key string, rec dedup.Record) (dedup.Resolution, error)

	// Settings of the client.
	instance  string        // makes the member a static one
	session   time.Duration // timeout; default 1.5 s
	rebalance time.Duration // timeout; default 5 s
	fetch     int32         // bytes fetched at once of a partition
	refresh   time.Duration // between two looks at the topics
	bug       bug           // planted

	// Settings of the sarama flavors alone, for tests that are about sarama.
	adapter func(*kafkaadapter.Config)
	client  func(*sarama.Config)
	wrap    func(sarama.ConsumerGroup) sarama.ConsumerGroup // between sarama and the adapter
}

// stretch is a range as scenarios see it.
type stretch struct {
	topic, topicID string
	partition      int32
	from, to       int64
	since          func(offset int64) []*kafkaMessage
}

// newDeduper makes the member's own.
func (mc *memberConfig) newDeduper() (*dedup.Deduper, error) {
	lease := time.Second
	if mc.lease > 0 {
		lease = mc.lease
	}
	return dedup.New(mc.link, dedup.Config{
		Namespace: "t", Window: time.Hour, LeaseTTL: lease, Hold: time.Minute, Resolve: mc.resolve,
		SeenOnly: mc.seenOnly,
	})
}

// member is one consumer of a group that can leave, or crash.
type member struct {
	name   string // its client id, unlike any other's
	dialer *cutDialer
	link   *mortal
	dedup  *dedup.Deduper // nil when unclaimed
	close  func() error   // closes the client; again is harmless
	cancel context.CancelFunc
	done   chan error // Run's

	began, running atomic.Int64 // handlers
	alarm          atomic.Pointer[alarm]
}

// members counts them, in all tests.
var members atomic.Int64

// newMember makes a member that does not run yet. The client must dial with its dialer,
// and its handlers must be counted.
func newMember(t *testing.T, mc *memberConfig) *member {
	t.Helper()
	m := &member{name: fmt.Sprint("member-", members.Add(1)), link: mc.link,
		dialer: &cutDialer{conns: map[net.Conn]bool{}}, done: make(chan error, 1)}
	if mc.unclaimed {
		return m
	}
	var err error
	if m.dedup, err = mc.newDeduper(); err != nil {
		t.Fatal(err)
	}
	return m
}

// run starts the member. Its goroutines carry the name of the test, see wantNoGoroutines.
func (m *member) run(t *testing.T, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	m.cancel = cancel
	go func() {
		pprof.SetGoroutineLabels(pprof.WithLabels(ctx, pprof.Labels(sceneLabel, t.Name())))
		m.done <- run(ctx)
	}()
}

// alarm goes off when so many handlers have begun.
type alarm struct {
	at   int64
	once sync.Once
	do   func() // by the last of them, before it goes on
}

// after returns a channel that is closed when n more handlers have begun, by the last of
// them: it is running then.
func (m *member) after(n int64) <-chan struct{} {
	off := make(chan struct{})
	m.alarm.Store(&alarm{at: m.began.Load() + n, do: func() { close(off) }})
	return off
}

// count notes how many handlers began and how many are running.
func (m *member) count(h handler) handler {
	return func(ctx context.Context, msg *kafkaMessage) error {
		m.running.Add(1)
		defer m.running.Add(-1)
		n := m.began.Add(1)
		if a := m.alarm.Load(); a != nil && n >= a.at {
			a.once.Do(a.do)
		}
		return h(ctx, msg)
	}
}

// leave stops the member as a deployment would.
func (m *member) leave(t *testing.T) {
	t.Helper()
	m.cancel()
	if err := <-m.done; err != nil {
		t.Errorf("Run: %v", err)
	}
	_ = m.close()
}

// crash cuts the member off from broker and store, in the middle of whatever it does.
// It cannot leave the group, complete or release anything.
func (m *member) crash() {
	m.link.kill()
	m.dialer.cut()
	m.abandon()
}

// freeze stops the member as SIGSTOP would, as far as anybody else can tell: it says
// nothing to the broker, and what it has to say to the store waits for thaw. Its handlers
// are for the scenario to stop.
func (m *member) freeze() (thaw func()) {
	thaw = m.link.freeze()
	m.dialer.cut()
	return thaw
}

// abandon ends a member that cannot reach the broker, without waiting for it.
func (m *member) abandon() {
	m.cancel()
	go func() {
		<-m.done
		_ = m.close()
	}()
}

// crashAtWork crashes the member as soon as n more handlers have begun, and tells how
// many of them were running then.
func (m *member) crashAtWork(n int64) <-chan int64 {
	crashed := make(chan int64, 1)
	m.alarm.Store(&alarm{at: m.began.Load() + n, do: func() {
		running := m.running.Load()
		m.crash()
		crashed <- running
	}})
	return crashed
}
