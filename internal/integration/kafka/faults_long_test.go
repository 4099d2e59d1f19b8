//go:build long

package kafka_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/internal/servertest"
)

const (
	// faultsTimeEnv says how long the faults last, such as 12m. faultsSeedEnv is their seed.
	// faultsFlavorsEnv lists the flavors, separated by commas.
	faultsTimeEnv    = "ONCEWARD_KAFKA_FAULTS"
	faultsSeedEnv    = "ONCEWARD_KAFKA_FAULTS_SEED"
	faultsFlavorsEnv = "ONCEWARD_KAFKA_FAULTS_FLAVORS"
	// faultsOlderEnv is the test program of this package from an older commit. One member of each
	// group runs it then, so that two versions share the group, its records and its offsets.
	faultsOlderEnv = "ONCEWARD_KAFKA_FAULTS_OLDER"
	faultsTime     = 12 * time.Minute

	faultedPartitions = 4
	faultedMembers    = 2 // of each flavor
)

// faultsRun is a run of TestRandomFaults.
type faultsRun struct {
	t       *testing.T
	rnd     *rand.Rand // of the servers' faults
	kafka   *servertest.Server
	redis   *servertest.Server
	groups  []*faultedGroup
	started time.Time

	mu       sync.Mutex
	troubles []faultTrouble
	counts   map[string]int
	older    map[int]bool // processes of the older version
}

// faultedGroup is the members of one flavor.
type faultedGroup struct {
	cfg     workerConfig
	watch   *commitWatch
	members [faultedMembers]*faultedSlot
	sent    atomic.Int64
}

// faultedSlot is the place of a member. After a kill it has a new process.
type faultedSlot struct {
	mu      sync.Mutex // held while a fault is under way
	process *faultedProcess
}

// The test uses Apache Kafka with three nodes, and a Redis that keeps what it has acknowledged. It
// kills, stops and cuts off processes of every flavor at random, kills brokers and Redis, and stops
// Redis for a while. Then the faults end. No message is lost, no commit was ahead of an effect, and
// every doubled effect has a reason. With faultsOlderEnv both versions have effects.
func TestRandomFaults(t *testing.T) {
	r := newFaultsRun(t)
	ctx, stop := context.WithCancel(t.Context())
	var work, produce sync.WaitGroup
	producing, enough := context.WithCancel(ctx)
	for _, g := range r.groups {
		work.Go(func() { g.watch.watch(ctx, 150*time.Millisecond) })
		produce.Go(func() { r.produce(producing, g) })
	}
	over := time.Now().Add(r.length())
	faulting, calm := context.WithDeadline(ctx, over)
	members := rand.New(rand.NewPCG(r.rnd.Uint64(), 1)) //nolint:gosec // a test
	work.Go(func() { r.memberFaults(faulting, members) })
	r.serverFaults(faulting)
	calm()
	t.Logf("healed after %v", time.Since(r.started).Round(time.Second))
	enough()
	produce.Wait()
	r.awaitDrained()
	stop()
	work.Wait()
	r.endAll()
	r.judge()
}

func newFaultsRun(t *testing.T) *faultsRun {
	t.Helper()
	seed := uint64(time.Now().UnixNano()) //nolint:gosec // a seed
	if text := os.Getenv(faultsSeedEnv); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("%s=%d", faultsSeedEnv, seed)
	r := &faultsRun{t: t, rnd: rand.New(rand.NewPCG(seed, 0)), //nolint:gosec // a test
		kafka: servertest.Private(t, servertest.KindKafka3),
		redis: servertest.Private(t, servertest.KindRedis), started: time.Now(),
		counts: map[string]int{}, older: map[int]bool{}}
	r.keepWhatIsAcknowledged()
	dir, err := os.MkdirTemp("", "onceward-faults-")
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("what the processes said is in ", dir)
			return
		}
		_ = os.RemoveAll(dir)
	})
	names := flavorNames()
	if some := os.Getenv(faultsFlavorsEnv); some != "" {
		names = strings.Split(some, ",")
	}
	for _, name := range names {
		r.addGroup(name, filepath.Join(dir, name))
	}
	return r
}

func (r *faultsRun) length() time.Duration {
	long, err := time.ParseDuration(cmp.Or(os.Getenv(faultsTimeEnv), faultsTime.String()))
	require.NoError(r.t, err)
	return long
}

// keepWhatIsAcknowledged has Redis sync before it answers: with everysec a kill can lose records,
// and their effects would rightly happen again.
func (r *faultsRun) keepWhatIsAcknowledged() {
	r.t.Helper()
	client := redis.NewClient(&redis.Options{Addr: r.redis.Addr})
	defer func() { _ = client.Close() }()
	require.NoError(r.t, client.ConfigSet(r.t.Context(), "appendfsync", "always").Err())
}

func (r *faultsRun) addGroup(flavor, effects string) {
	r.t.Helper()
	g := &faultedGroup{cfg: workerConfig{Brokers: r.kafka.Addrs, Topic: flavor,
		Group: flavor + "-group", Flavor: flavor, Redis: r.redis.Addr, Prefix: flavor,
		Effects: effects}}
	createTopic(r.t, r.kafka.Addrs, g.cfg.Topic, faultedPartitions, 3)
	if flavor == "franz-share" {
		for name, value := range map[string]string{"share.auto.offset.reset": "earliest",
			"share.record.lock.duration.ms": "15000",
			"share.delivery.count.limit":    strconv.Itoa(faultedDeliveries)} {
			require.NoError(r.t, setGroup(r.t, r.kafka.Addrs, g.cfg.Group, name, value), name)
		}
	}
	g.watch = newCommitWatch(r.kafka.Addrs, g.cfg.Topic, g.cfg.Group, faultedPartitions)
	for i := range g.members {
		program := os.Args[0]
		if i == 0 {
			program = cmp.Or(os.Getenv(faultsOlderEnv), program)
		}
		g.members[i] = &faultedSlot{process: r.spawn(program, g.cfg)}
	}
	r.groups = append(r.groups, g)
}

func (r *faultsRun) spawn(program string, cfg workerConfig) *faultedProcess {
	text, err := json.Marshal(cfg)
	if err != nil {
		panic(err) // it can be marshaled
	}
	p := &faultedProcess{cfg: cfg, cmd: exec.Command(program), ended: make(chan error, 1)}
	p.cmd.Env = append(os.Environ(), workerEnv+"="+string(text))
	out, err := os.OpenFile(cfg.Effects+".out", os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err == nil {
		p.cmd.Stdout, p.cmd.Stderr = out, out
		defer func() { _ = out.Close() }()
		p.orders, err = p.cmd.StdinPipe()
	}
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		r.t.Error(err)
		panic(err) // the machine has no processes left
	}
	if program != os.Args[0] {
		r.mu.Lock()
		r.older[p.pid()] = true
		r.mu.Unlock()
	}
	go func() { p.ended <- p.cmd.Wait() }()
	r.t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	return p
}

// note keeps a trouble.
func (r *faultsRun) note(what string, pid int, from, to time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[what]++
	r.troubles = append(r.troubles, faultTrouble{what, pid, from, to})
}

// produce sends some 40 messages a second; every fifth has an earlier id.
func (r *faultsRun) produce(ctx context.Context, g *faultedGroup) {
	client, err := kgo.NewClient(kgo.SeedBrokers(g.cfg.Brokers...),
		kgo.DefaultProduceTopic(g.cfg.Topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if !assert.NoError(r.t, err) {
		return
	}
	defer client.Close()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for next := 0; ; {
		select {
		case <-ctx.Done():
			assert.NoError(r.t, client.Flush(context.WithoutCancel(ctx)))
			return
		case <-tick.C:
		}
		for range 4 {
			n := next
			if rand.IntN(5) == 0 && next > 0 { //nolint:gosec // a test
				n = max(0, next-1-rand.IntN(200)) //nolint:gosec // a test
			} else {
				next++
			}
			id := idOf(n)
			client.Produce(context.WithoutCancel(ctx), &kgo.Record{
				Partition: rand.Int32N(faultedPartitions), //nolint:gosec // a test
				Key:       fmt.Append(nil, "k", n%50), Value: []byte(id),
				Headers: []kgo.RecordHeader{{Key: "message-id", Value: []byte(id)}},
			}, func(_ *kgo.Record, err error) {
				assert.NoError(r.t, err, g.cfg.Topic)
			})
			g.sent.Add(1)
		}
	}
}

// memberFaults does something to a member about once a second.
func (r *faultsRun) memberFaults(ctx context.Context, rnd *rand.Rand) {
	var all sync.WaitGroup
	defer all.Wait()
	for {
		if !pause(ctx, between(rnd, 400*time.Millisecond, 1600*time.Millisecond)) {
			return
		}
		g := r.groups[rnd.IntN(len(r.groups))]
		slot := g.members[rnd.IntN(len(g.members))]
		if !slot.mu.TryLock() {
			continue // another fault is under way there
		}
		do := r.memberFault(rnd)
		all.Go(func() {
			defer slot.mu.Unlock()
			do(slot)
		})
	}
}

// memberFault chooses what to do to a member.
func (r *faultsRun) memberFault(rnd *rand.Rand) func(*faultedSlot) {
	long := context.WithoutCancel(r.t.Context()) // a fault that has begun is also undone
	switch n := rnd.IntN(100); {
	case n < 30:
		after := between(rnd, 100*time.Millisecond, 2*time.Second)
		return func(s *faultedSlot) { r.kill(long, s, after) }
	case n < 60:
		span := between(rnd, 100*time.Millisecond, 2*time.Second)
		if n < 40 { // beyond lease and session
			span = between(rnd, 5*time.Second, 9*time.Second)
		}
		return func(s *faultedSlot) { r.stop(long, s.process, span) }
	case n < 82:
		return r.cut("broker", between(rnd, 0, 4*time.Second))
	default:
		return r.cut("redis", between(rnd, 0, 4*time.Second))
	}
}

func (r *faultsRun) kill(ctx context.Context, s *faultedSlot, after time.Duration) {
	from := time.Now()
	_ = s.process.cmd.Process.Kill()
	<-s.process.ended
	r.note("killed", s.process.pid(), from, time.Now())
	pause(ctx, after)
	s.process = r.spawn(s.process.cmd.Path, s.process.cfg)
}

func (r *faultsRun) stop(ctx context.Context, p *faultedProcess, span time.Duration) {
	from := time.Now()
	_ = p.cmd.Process.Signal(syscall.SIGSTOP)
	pause(ctx, span)
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	what := "stopped"
	if span > faultedLease {
		what = "stopped beyond lease and session"
	}
	r.note(what, p.pid(), from, time.Now())
}

func (r *faultsRun) cut(whom string, span time.Duration) func(*faultedSlot) {
	return func(s *faultedSlot) {
		from := time.Now()
		s.process.order(whom, span)
		pause(context.WithoutCancel(r.t.Context()), span)
		r.note("cut from "+whom, s.process.pid(), from, time.Now())
	}
}

// serverFaults kills a broker, or kills or freezes Redis, a few times a minute.
func (r *faultsRun) serverFaults(ctx context.Context) {
	for pause(ctx, between(r.rnd, 5*time.Second, 15*time.Second)) {
		from, long := time.Now(), context.WithoutCancel(ctx)
		switch r.rnd.IntN(3) {
		case 0:
			node := 1 + r.rnd.IntN(3)
			r.kafka.Kill(node)
			pause(long, between(r.rnd, 0, 5*time.Second))
			r.kafka.Start(node)
			r.note("broker killed", 0, from, time.Now())
		case 1:
			r.redis.Kill(1)
			pause(long, between(r.rnd, 0, 4*time.Second))
			r.redis.Start(1)
			r.keepWhatIsAcknowledged()
			r.note("Redis killed", 0, from, time.Now())
		default:
			r.redis.Stop(1)
			pause(long, between(r.rnd, 500*time.Millisecond, 6*time.Second))
			r.redis.Cont(1)
			r.note("Redis frozen", 0, from, time.Now())
		}
	}
}

// awaitDrained waits until the groups have committed everything, and the share group, which has no
// offsets, has had its effects.
func (r *faultsRun) awaitDrained() {
	r.t.Helper()
	began := time.Now()
	for _, g := range r.groups {
		log := readIDs(r.t, g.cfg.Brokers, g.cfg.Topic)
		deadline := time.Now().Add(3 * time.Minute)
		for {
			state := g.undrained(r.t, log)
			if state == "" {
				r.t.Logf("%s: drained %v after", g.cfg.Topic, time.Since(began).Round(time.Second))
				break
			}
			if !assert.False(r.t, time.Now().After(deadline), "%s: not drained after 3 minutes: %s",
				g.cfg.Topic, state) {
				break
			}
			pause(r.t.Context(), 500*time.Millisecond)
		}
	}
}

func (g *faultedGroup) undrained(t *testing.T, log map[int32][]string) string {
	t.Helper()
	if g.cfg.Flavor != "franz-share" {
		for p, ids := range log {
			if at := g.watch.offset(p); at != int64(len(ids)) {
				return fmt.Sprintf("partition %d is committed to %d of %d", p, at, len(ids))
			}
		}
		return ""
	}
	lines, err := readFaultLines(g.cfg.Effects)
	require.NoError(t, err)
	if v := (&faultJudge{log: log, lines: lines}).judge(); len(v.lost) > 0 {
		return fmt.Sprintf("%d have had no effect, first: %s", len(v.lost), v.lost[0])
	}
	return ""
}

// endAll has the members leave.
func (r *faultsRun) endAll() {
	r.t.Helper()
	for _, g := range r.groups {
		for _, s := range g.members {
			_ = s.process.cmd.Process.Signal(syscall.SIGTERM)
		}
	}
	for _, g := range r.groups {
		for _, s := range g.members {
			select {
			case err := <-s.process.ended:
				assert.NoError(r.t, err, "a member of %s has left", g.cfg.Topic)
			case <-time.After(time.Minute):
				r.t.Errorf("a member of %s, %d, does not leave", g.cfg.Topic, s.process.pid())
				_ = s.process.cmd.Process.Signal(syscall.SIGQUIT)
				<-s.process.ended
			}
		}
	}
}

func (r *faultsRun) judge() {
	r.t.Helper()
	var topics []string
	for _, g := range r.groups {
		topics = append(topics, g.cfg.Topic)
	}
	written := readCommits(r.t, r.kafka.Addrs, topics)
	r.t.Logf("faults: %v", r.counts)
	for _, g := range r.groups {
		lines, err := readFaultLines(g.cfg.Effects)
		require.NoError(r.t, err)
		v := (&faultJudge{log: readIDs(r.t, g.cfg.Brokers, g.cfg.Topic), lines: lines,
			commits:  slices.Concat(g.watch.commits(), written[g.cfg.Group]),
			troubles: r.troubles}).judge()
		r.t.Logf("%s: %v (%d commits were seen while it ran)", g.cfg.Topic, v,
			len(g.watch.commits()))
		r.judgeVersions(g.cfg.Topic, lines)
		for what, found := range map[string][]string{"lost": v.lost, "commits ahead": v.ahead,
			"doubled without a reason": v.unexplained} {
			assert.Empty(r.t, first5(found), "%s: %s: %d", g.cfg.Topic, what, len(found))
		}
		for _, err := range first5(v.ended) {
			r.t.Logf("%s: a consumer ended with %s", g.cfg.Topic, err)
		}
		if g.cfg.Flavor != "franz-share" {
			assert.Zero(r.t, v.parked, "%s: parked", g.cfg.Topic)
			assert.NotEmpty(r.t, written[g.cfg.Group], "%s: commits in the log", g.cfg.Topic)
		}
	}
}

// judgeVersions requires effects of both versions, if there are two.
func (r *faultsRun) judgeVersions(topic string, lines []faultLine) {
	r.t.Helper()
	if os.Getenv(faultsOlderEnv) == "" {
		return
	}
	older, newer := 0, 0
	for _, l := range lines {
		switch {
		case l.what != "effect":
		case r.older[l.pid]:
			older++
		default:
			newer++
		}
	}
	r.t.Logf("%s: %d effects of the older version, %d of this one", topic, older, newer)
	assert.Positive(r.t, older, "%s: effects of the older version", topic)
	assert.Positive(r.t, newer, "%s: effects of this version", topic)
}

func between(rnd *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(rnd.Int64N(int64(most-least)))
}
