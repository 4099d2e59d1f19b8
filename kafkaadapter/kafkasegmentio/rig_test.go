package kafkasegmentio

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
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
	orders = "orders"
	group  = "g"
)

// rig is an embedded broker with a topic, a store, a ledger of effects, and an oracle that looks at
// every commit.
type rig struct {
	t       *testing.T
	cluster *kfake.Cluster
	store   dedup.Store
	client  *kgo.Client // to produce with
	lease   time.Duration
	session time.Duration // of members

	mu         sync.Mutex
	log        map[int32][]string // the id at every position
	effects    map[string]int
	total      int
	commits    int
	violations []string
	free       bool // offsets are not those of log
	errs       []error
	notes      map[string]int
}

func newRig(t *testing.T, partitions int32) *rig {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.SeedTopics(partitions, orders),
		kfake.GroupMinSessionTimeout(200*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	r := &rig{t: t, cluster: cluster, store: dedup.Memory(1 << 20), lease: 30 * time.Second,
		session: 5 * time.Second,
		log:     map[int32][]string{}, effects: map[string]int{}, notes: map[string]int{}}
	r.client = r.newClient(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	r.watch()
	t.Cleanup(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		assert.Empty(t, r.violations, "bad commits")
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

// watch checks at the broker that every offset below a commit has a record in the store, and that
// no commit claims a leader epoch.
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
	log := r.log[partition]
	switch {
	case epoch != -1:
		r.violations = append(r.violations, fmt.Sprintf("leader epoch %d", epoch))
	case r.free:
		return
	case offset > int64(len(log)):
		r.violations = append(r.violations,
			fmt.Sprintf("%d@%d is beyond the %d messages there", partition, offset, len(log)))
		return
	}
	for at, id := range log[:offset] {
		if s := r.stateOf(id); s != driver.StateSucceeded {
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

func record(partition int32, id string) *kgo.Record {
	return &kgo.Record{Topic: orders, Partition: partition, Key: []byte(id), Value: []byte(id),
		Headers: []kgo.RecordHeader{{Key: "message-id", Value: []byte(id)}}}
}

// produce appends n messages to a partition, numbered from a number on.
func (r *rig) produce(partition int32, from, n int) {
	r.t.Helper()
	records := make([]*kgo.Record, n)
	r.mu.Lock()
	for i := range records {
		id := fmt.Sprintf("evt_%06d", from+i)
		records[i] = record(partition, id)
		r.log[partition] = append(r.log[partition], id)
	}
	r.mu.Unlock()
	require.NoError(r.t, r.client.ProduceSync(r.t.Context(), records...).FirstErr())
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

// told reports whether Observer.GroupError was told such an error.
func (r *rig) told(target error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, err := range r.errs {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// config is a member's, with limits that suit a test.
func (r *rig) config(store dedup.Store, handle kafkaadapter.Handler) kafkaadapter.Config {
	r.t.Helper()
	d, err := dedup.New(store, dedup.Config{Namespace: "t", Window: time.Hour, LeaseTTL: r.lease,
		Hold: time.Minute})
	require.NoError(r.t, err)
	return kafkaadapter.Config{
		Deduper: d,
		Tuning:  kafkaadapter.Tuning{Drain: time.Second, CommitEvery: 50 * time.Millisecond},
		Attempts: kafkaadapter.Attempts{RetryBase: 20 * time.Millisecond,
			RetryMax: 300 * time.Millisecond},
		Handler: func(ctx context.Context, m *kafkaadapter.Message) error {
			if handle != nil {
				if err := handle(ctx, m); err != nil {
					return err
				}
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.effects[m.ID]++
			r.total++
			return nil
		},
		Observer: kafkaadapter.Observer{
			Skipped: func(*kafkaadapter.Message, driver.Cause, time.Duration) { r.note("skipped") },
			Revoked: func(string, int32, int, int) { r.note("revoked") },
			Assigned: func(string, int32, int32) {
				r.note("assigned")
			},
			Paused: func(_ string, _ int32, on bool) { r.note(fmt.Sprint("paused ", on)) },
			GroupError: func(err error) {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.errs = append(r.errs, err)
			},
		},
	}
}

// runner is a consumer that runs.
type runner struct {
	r        *rig
	consumer *Consumer
	line     *line
	link     *link
	cancel   context.CancelFunc
	done     chan error
}

// join starts a member.
func (r *rig) join(handle kafkaadapter.Handler, change func(*kafkaadapter.Config),
	topics ...string) *runner {
	r.t.Helper()
	m := &runner{r: r, line: newLine(), link: &link{Store: r.store}, done: make(chan error, 1)}
	cfg := r.config(m.link, handle)
	if change != nil {
		change(&cfg)
	}
	if topics == nil {
		topics = []string{orders}
	}
	c, err := New(r.cluster.ListenAddrs(), group, topics, Options{
		Transport:      &kafka.Transport{Dial: m.line.dial},
		SessionTimeout: r.session, HeartbeatInterval: 100 * time.Millisecond,
		RebalanceTimeout: 15 * time.Second}, cfg)
	require.NoError(r.t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	m.consumer, m.cancel = c, cancel
	go func() {
		m.done <- c.Run(ctx)
		if cfg.Deduper != nil {
			_ = cfg.Deduper.Close(context.WithoutCancel(ctx))
		}
	}()
	r.t.Cleanup(cancel)
	return m
}

// leave ends a member as a deployment would.
func (m *runner) leave() {
	m.r.t.Helper()
	m.cancel()
	assert.NoError(m.r.t, m.wait(), "Run")
}

// wait returns what Run has returned.
func (m *runner) wait() error {
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
func (m *runner) crash() {
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
				return false, fmt.Sprintf("partition %d is not committed to %d: %v %v",
					p, len(log), info, r.errs)
			}
		}
		return true, ""
	})
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

// Claim implements dedup.Store.
func (l *link) Claim(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	done, ok := l.alive()
	defer done()
	if !ok {
		return unreachable(len(reqs))
	}
	return l.Store.Claim(ctx, reqs)
}

// Renew implements dedup.Store.
func (l *link) Renew(ctx context.Context, renewals []driver.Renewal) []driver.Answer {
	done, ok := l.alive()
	defer done()
	if !ok {
		return unreachable(len(renewals))
	}
	return l.Store.Renew(ctx, renewals)
}

// Finish implements dedup.Store.
func (l *link) Finish(ctx context.Context, changes []driver.Finish) []driver.Answer {
	done, ok := l.alive()
	defer done()
	if !ok {
		return unreachable(len(changes))
	}
	return l.Store.Finish(ctx, changes)
}
