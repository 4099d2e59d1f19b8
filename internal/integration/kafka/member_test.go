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
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
)

// memberConfig is all that a member needs to know. The link is required. Any other field that is
// zero has the harness's default.
type memberConfig struct {
	kafkaadapter.Config // all but Deduper
	membership

	link      *mortal // to its store; see scene.join for what an unclaimed member has
	deadTopic string  // the topic for its dead letters

	// Settings of the Deduper.
	lease    time.Duration // default 1 s
	seenOnly bool
	resolve  func(ctx context.Context, key string, rec dedup.Record) (dedup.Resolution, error)

	// Settings of the sarama flavors alone, for tests that are about sarama.
	client func(*sarama.Config)
	bug    bug // planted
}

// newDeduper makes the member's Deduper.
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
	close  func() error   // closes the client; may be called again
	cancel context.CancelFunc
	done   chan error // Run's

	began, running atomic.Int64 // handlers
	alarm          atomic.Pointer[alarm]
}

// members counts the members of all tests.
var members atomic.Int64

// newMember makes a member that does not run yet, and completes its configuration: its client
// dials with its dialer, and its handlers are counted.
func newMember(t *testing.T, mc *memberConfig) *member {
	t.Helper()
	m := &member{name: fmt.Sprint("member-", members.Add(1)), link: mc.link,
		dialer: &cutDialer{conns: map[net.Conn]bool{}}, done: make(chan error, 1)}
	mc.name, mc.dialer = m.name, m.dialer
	if mc.Handler != nil {
		mc.Handler = m.count(mc.Handler)
	}
	if mc.Unclaimed {
		return m
	}
	var err error
	m.dedup, err = mc.newDeduper()
	require.NoError(t, err)
	mc.Deduper = m.dedup
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

// alarm calls do once, when the number of handlers that have begun reaches at.
type alarm struct {
	at   int64
	once sync.Once
	do   func() // the last of these handlers calls it before it works
}

// after returns a channel that is closed when n more handlers have begun. The last of them closes
// it before it works, so that one is running then.
func (m *member) after(n int64) <-chan struct{} {
	off := make(chan struct{})
	m.alarm.Store(&alarm{at: m.began.Load() + n, do: func() { close(off) }})
	return off
}

// count notes how many handlers began and how many are running.
func (m *member) count(h kafkaadapter.Handler) kafkaadapter.Handler {
	return func(ctx context.Context, msg *kafkaadapter.Message) error {
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
	assert.NoError(t, <-m.done, "Run")
	_ = m.close()
}

// crash cuts the member off from broker and store, in the middle of whatever it does.
// It cannot leave the group, complete or release anything.
func (m *member) crash() {
	m.link.kill()
	m.dialer.cut()
	m.abandon()
}

// freeze stops the member as SIGSTOP would, as others see it: the member sends nothing to the
// broker, and its calls of the store wait for thaw. The scenario has to stop the handlers itself.
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

// crashAtWork crashes the member as soon as n more handlers have begun, and returns
// how many of them were running then.
func (m *member) crashAtWork(n int64) <-chan int64 {
	crashed := make(chan int64, 1)
	m.alarm.Store(&alarm{at: m.began.Load() + n, do: func() {
		running := m.running.Load()
		m.crash()
		crashed <- running
	}})
	return crashed
}
