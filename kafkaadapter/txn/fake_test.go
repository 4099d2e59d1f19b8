package txn

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const topic = "orders"

// fakeCluster is a partition's committed offset, the output topic and one transactional id,
// with sarama's rules for what a producer may do after what. Faults are taken from a script.
type fakeCluster struct {
	t *testing.T

	mu        sync.Mutex
	calls     []string           // in order
	script    map[string][]fault // by call
	epoch     int                // of the latest producer
	offset    int64
	stamp     string   // metadata of the offset
	uuid      string   // of the topic
	looks     int      // at it
	onLook    func()   // runs once, after a look at the topic
	outputs   []string // committed
	member    error    // the answer to a heartbeat
	clients   int      // open
	producers int      // open
	zombie    func()   // runs once, when a producer is asked for, before it is there
	weather   func(call string) fault
}

// fault is what a call does instead of what it should.
type fault struct {
	err    error
	status sarama.ProducerTxnStatusFlag // of the producer afterwards; 0 leaves it
	landed bool                         // it was done anyway
}

const (
	abortable = sarama.ProducerTxnFlagInError | sarama.ProducerTxnFlagAbortableError
	fatal     = sarama.ProducerTxnFlagInError | sarama.ProducerTxnFlagFatalError
)

func newFakeCluster(t *testing.T) *fakeCluster {
	return &fakeCluster{t: t, script: map[string][]fault{}, offset: -1, uuid: "first"}
}

func (f *fakeCluster) dial() (broker, error) {
	if fault, ok := f.call("dial"); ok {
		return nil, fault.err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.clients++
	return &fakeBroker{f}, nil
}

// call notes a call and takes its fault.
func (f *fakeCluster) call(name string) (fault, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, name)
	queue := f.script[name]
	if f.weather != nil {
		queue = []fault{f.weather(name)}
	}
	if len(queue) == 0 {
		return fault{}, false
	}
	f.script[name] = queue[1:]
	return queue[0], queue[0] != fault{}
}

func (f *fakeCluster) log() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.calls, " ")
}

func (f *fakeCluster) committedOutputs() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.outputs)
}

type fakeBroker struct{ *fakeCluster }

func (b *fakeBroker) member(*sarama.ConsumerGroupMetadata) error {
	if fault, ok := b.call("member"); ok {
		return fault.err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fakeCluster.member
}

func (b *fakeBroker) producer() (producer, error) {
	if fault, ok := b.call("init"); ok {
		return nil, fault.err
	}
	if b.zombie != nil {
		b.zombie()
		b.zombie = nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.epoch++
	b.producers++
	return &fakeProducer{fakeCluster: b.fakeCluster, epoch: b.epoch,
		status: sarama.ProducerTxnFlagReady, next: -1}, nil
}

func (b *fakeBroker) committed(string, int32) (int64, string, error) {
	if fault, ok := b.call("committed"); ok {
		return 0, "", fault.err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.offset, b.stamp, nil
}

func (b *fakeBroker) topic(string) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.looks++
	uuid := b.uuid
	if then := b.onLook; then != nil {
		b.onLook = nil
		then()
	}
	return uuid, nil
}

func (b *fakeBroker) oldest(string, int32) (int64, error) { return 0, nil }

func (b *fakeBroker) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.clients--
}

// fakeProducer follows sarama's transaction manager.
type fakeProducer struct {
	*fakeCluster
	epoch  int
	status sarama.ProducerTxnStatusFlag
	open   []string
	next   int64
	stamp  string
	closed bool
}

// do runs a call of the producer. A fenced producer can only be closed.
func (p *fakeProducer) do(name string, f func()) error {
	if fault, ok := p.call(name); ok {
		p.mu.Lock()
		defer p.mu.Unlock()
		if fault.landed && p.epoch == p.fakeCluster.epoch {
			f()
		}
		if fault.status != 0 {
			p.status = fault.status
		}
		return fault.err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.epoch != p.fakeCluster.epoch {
		p.status = fatal
		return sarama.ErrProducerFenced
	}
	f()
	return nil
}

func (p *fakeProducer) BeginTxn() error {
	assert.Equal(p.t, sarama.ProducerTxnFlagReady, p.status, "the state at BeginTxn")
	return p.do("begin", func() { p.status = sarama.ProducerTxnFlagInTransaction })
}

func (p *fakeProducer) SendMessages(msgs []*sarama.ProducerMessage) error {
	return p.do("send", func() {
		for _, m := range msgs {
			value, _ := m.Value.Encode()
			p.open = append(p.open, string(value))
		}
	})
}

func (p *fakeProducer) AddOffsetsToTxnWithGroupMetadata(
	offsets map[string][]*sarama.PartitionOffsetMetadata,
	group *sarama.ConsumerGroupMetadata) error {
	one := offsets[topic][0]
	assert.True(p.t, group.MemberID == "m" && group.GenerationID == 7 && group.GroupID == "g",
		"%+v", group)
	assert.Equal(p.t, int32(-1), one.LeaderEpoch)
	return p.do("offsets", func() { p.next, p.stamp = one.Offset, *one.Metadata })
}

func (p *fakeProducer) CommitTxn() error {
	assert.Equal(p.t, sarama.ProducerTxnFlagInTransaction, p.status, "the state at CommitTxn")
	return p.do("commit", func() {
		p.offset, p.fakeCluster.stamp, p.outputs = p.next, p.stamp, append(p.outputs, p.open...)
		p.open, p.status = nil, sarama.ProducerTxnFlagReady
	})
}

func (p *fakeProducer) AbortTxn() error {
	assert.NotZero(p.t,
		p.status&(sarama.ProducerTxnFlagInTransaction|sarama.ProducerTxnFlagAbortableError),
		"AbortTxn in state %v", p.status)
	return p.do("abort", func() { p.open, p.status = nil, sarama.ProducerTxnFlagReady })
}

func (p *fakeProducer) TxnStatus() sarama.ProducerTxnStatusFlag { return p.status }

func (p *fakeProducer) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	assert.False(p.t, p.closed, "a producer was closed twice")
	p.closed = true
	p.producers--
	return nil
}

// message is an input; value is its offset, too.
func message(offset int64) *sarama.ConsumerMessage {
	return &sarama.ConsumerMessage{Topic: topic, Partition: 3, Offset: offset,
		Value: fmt.Append(nil, "v", offset)}
}

// upper is a handler with one output per input.
func upper(_ context.Context, m *sarama.ConsumerMessage) ([]*sarama.ProducerMessage, error) {
	return []*sarama.ProducerMessage{{Topic: "out",
		Value: sarama.StringEncoder(strings.ToUpper(string(m.Value)))}}, nil
}

// outputsOf is what upper makes of the offsets from..to-1.
func outputsOf(from, to int64) []string {
	var all []string
	for o := from; o < to; o++ {
		all = append(all, fmt.Sprint("V", o))
	}
	return all
}

// config is one that New accepts, with changes.
func config(change ...func(*Config)) Config {
	client := sarama.NewConfig()
	client.Version = sarama.V2_8_0_0
	c := Config{
		Brokers: []string{"127.0.0.1:1"}, Client: client, Group: "g", Handler: PerMessage(upper),
		BatchMax: 4, BatchWait: time.Millisecond, Drain: 10 * time.Second,
	}
	for _, f := range change {
		f(&c)
	}
	return c
}

// fakeSession is a session that its test ends.
type fakeSession struct {
	sarama.ConsumerGroupSession
	ctx context.Context
}

func (s *fakeSession) Context() context.Context { return s.ctx }
func (s *fakeSession) MemberID() string         { return "m" }
func (s *fakeSession) GenerationID() int32      { return 7 }

type fakeClaim struct {
	sarama.ConsumerGroupClaim
	messages chan *sarama.ConsumerMessage
	initial  int64 // committed when the session began; 0: nothing
}

// InitialOffset implements sarama.ConsumerGroupClaim.
func (c *fakeClaim) InitialOffset() int64 {
	if c.initial > 0 {
		return c.initial
	}
	return sarama.OffsetOldest
}

func (c *fakeClaim) Topic() string                            { return topic }
func (c *fakeClaim) Partition() int32                         { return 3 }
func (c *fakeClaim) Messages() <-chan *sarama.ConsumerMessage { return c.messages }

// rig is a claim on a fake cluster.
type rig struct {
	t         *testing.T
	cluster   *fakeCluster
	processor *Processor
	claim     *fakeClaim
	end       context.CancelFunc // of the session
	done      chan error
}

// start begins a claim in a synctest bubble.
func start(t *testing.T, cluster *fakeCluster, change ...func(*Config)) *rig {
	t.Helper()
	p, err := New(config(change...))
	require.NoError(t, err)
	p.dial = func(id string) (broker, error) {
		assert.Equal(t, "onceward/g/orders/3", id, "the transactional id")
		return cluster.dial()
	}
	r := &rig{t: t, cluster: cluster, processor: p,
		claim: &fakeClaim{messages: make(chan *sarama.ConsumerMessage), initial: cluster.offset},
		done:  make(chan error, 1)}
	var ctx context.Context
	ctx, r.end = context.WithCancel(t.Context())
	t.Cleanup(r.end)
	go func() { r.done <- p.ConsumeClaim(&fakeSession{ctx: ctx}, r.claim) }()
	return r
}

// feed delivers the offsets from..to-1.
func (r *rig) feed(from, to int64) {
	for o := from; o < to; o++ {
		r.claim.messages <- message(o)
	}
}

// leave ends the session and returns what the claim returned.
func (r *rig) leave() error {
	r.end()
	return <-r.done
}

// recreate deletes the topic, with its offset, and creates another one; f.mu is held.
func (f *fakeCluster) recreate() { f.uuid, f.offset, f.stamp = "second", -1, "" }

// wantClosed requires that clients and producers are closed.
func (f *fakeCluster) wantClosed() {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	assert.Zero(f.t, f.clients, "clients that are left open")
	assert.Zero(f.t, f.producers, "producers that are left open")
}
