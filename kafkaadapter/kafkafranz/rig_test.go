package kafkafranz

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver/drivertest"
)

const (
	orders   = "orders"
	payments = "payments" // for stories of two topics
	group    = "g"
)

// rig is an embedded broker with a topic, a store, and a ledger of effects.
type rig struct {
	t       *testing.T
	cluster *kfake.Cluster
	store   dedup.Store
	lease   time.Duration
	client  *kgo.Client // to produce with

	mu      sync.Mutex
	log     map[int32][]string // the id at every position
	effects map[string]int
	total   int
	notes   map[string]int // whatever a story counts
}

func newRig(t *testing.T, partitions int32) *rig {
	t.Helper()
	r := rigOn(t, newBrokers(t).Cluster)
	require.NoError(t, r.cluster.CreateTopic(orders, partitions, nil))
	return r
}

func rigOn(t *testing.T, cluster *kfake.Cluster) *rig {
	t.Helper()
	r := &rig{t: t, cluster: cluster, store: dedup.Memory(1 << 20),
		lease: 30 * time.Second, log: map[int32][]string{},
		effects: map[string]int{}, notes: map[string]int{}}
	r.client = r.newClient(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	return r
}

func (r *rig) newClient(opts ...kgo.Opt) *kgo.Client {
	r.t.Helper()
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(r.cluster.ListenAddrs()...))...)
	require.NoError(r.t, err)
	r.t.Cleanup(cl.Close)
	return cl
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

// send produces records. It notes the ids of those of orders, by their positions.
func (r *rig) send(records ...*kgo.Record) {
	r.t.Helper()
	r.mu.Lock()
	for _, rec := range records {
		if rec.Topic == orders {
			r.log[rec.Partition] = append(r.log[rec.Partition], Message(rec).Header("message-id"))
		}
	}
	r.mu.Unlock()
	require.NoError(r.t, r.client.ProduceSync(r.t.Context(), records...).FirstErr())
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
	line     *line
	link     *link
	cancel   context.CancelFunc
	done     chan error
}

// deduper makes one on a store.
func (r *rig) deduper(store dedup.Store) *dedup.Deduper {
	r.t.Helper()
	d, err := dedup.New(store, dedup.Config{Namespace: "t", Window: time.Hour, LeaseTTL: r.lease,
		Hold: time.Minute, Labels: true})
	require.NoError(r.t, err)
	return d
}

// config is a member's, with limits that suit a test.
func (r *rig) config(l *link, handle kafkaadapter.Handler) kafkaadapter.Config {
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

// options are those of a member's client.
func (r *rig) options(l *line, more ...kgo.Opt) []kgo.Opt {
	opts := append([]kgo.Opt{
		kgo.SeedBrokers(r.cluster.ListenAddrs()...), kgo.Dialer(l.dial),
		kgo.ConsumeTopics(orders),
		kgo.HeartbeatInterval(100 * time.Millisecond),
		kgo.RebalanceTimeout(5 * time.Second), kgo.FetchMaxWait(100 * time.Millisecond),
	}, balancers[drivertest.Cooperative]...)
	return append(opts, more...)
}

// join starts a member.
func (r *rig) join(handle kafkaadapter.Handler, change func(*kafkaadapter.Config),
	more ...kgo.Opt) *member {
	r.t.Helper()
	m := &member{r: r, line: newLine(), link: &link{Store: r.store}, done: make(chan error, 1)}
	cfg := r.config(m.link, handle)
	if change != nil {
		change(&cfg)
	}
	c, err := New(group, cfg)
	require.NoError(r.t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	m.consumer, m.cancel = c, cancel
	go func() {
		m.done <- c.Run(ctx, r.options(m.line, more...)...)
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

// crash cuts a member off from broker and store.
func (m *member) crash() {
	m.link.cut()
	m.line.cut()
	m.cancel()
}

// committed waits until everything is committed.
func (r *rig) committed() {
	r.t.Helper()
	r.eventually(func() (bool, string) {
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

// line is the network of one member.
type line struct {
	mu    sync.Mutex
	conns map[net.Conn]bool
	dead  bool
}

func newLine() *line { return &line{conns: map[net.Conn]bool{}} }

var errCut = errors.New("cut")

func (l *line) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		_ = conn.Close()
		return nil, errCut
	}
	l.conns[conn] = true
	return conn, nil
}

func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
	for conn := range l.conns {
		_ = conn.Close()
	}
}

// link is a member's way to the store.
type link struct {
	dedup.Store
	mu   sync.RWMutex
	dead bool
}

func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
}

// alive reports whether the store can be reached; the link is not cut before done is called.
func (l *link) alive() (done func(), ok bool) {
	l.mu.RLock()
	return l.mu.RUnlock, !l.dead
}

func unreachable(n int) []driver.Answer {
	answers := make([]driver.Answer, n)
	for i := range answers {
		answers[i].Err = errCut
	}
	return answers
}

func (l *link) Claim(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	done, ok := l.alive()
	defer done()
	if !ok {
		return unreachable(len(reqs))
	}
	return l.Store.Claim(ctx, reqs)
}

func (l *link) Renew(ctx context.Context, renewals []driver.Renewal) []driver.Answer {
	done, ok := l.alive()
	defer done()
	if !ok {
		return unreachable(len(renewals))
	}
	return l.Store.Renew(ctx, renewals)
}

func (l *link) Finish(ctx context.Context, changes []driver.Finish) []driver.Answer {
	done, ok := l.alive()
	defer done()
	if !ok {
		return unreachable(len(changes))
	}
	return l.Store.Finish(ctx, changes)
}
