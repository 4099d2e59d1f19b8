package kafka_test

import (
	"context"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/internal/backoff"
)

// plainLoop is a consumer as one writes it without the library.
type plainLoop struct {
	lines   *faultLines
	options []kgo.Opt
	// before and after are called ahead of a batch and behind it, to commit. Both may be nil.
	before, after func(context.Context, *kgo.Client, ...*kgo.Record) error
	// ahead says that its commits run ahead of its effects.
	ahead   bool
	effects atomic.Int64
	held    atomic.Bool
}

// run consumes until ctx ends. If hold is not zero, it stops in the middle of a batch, after that
// many effects, so that a kill interrupts the batch on a slow machine too.
func (l *plainLoop) run(ctx context.Context, hold int64, opts ...kgo.Opt) {
	client, err := kgo.NewClient(append(opts, l.options...)...)
	if err != nil {
		panic(err) // the options of this file are right
	}
	defer client.CloseAllowingRebalance()
	for ctx.Err() == nil {
		fetched := client.PollRecords(ctx, 20).Records()
		if l.before != nil && l.before(ctx, client, fetched...) != nil {
			return
		}
		for i, r := range fetched {
			if hold > 0 && i > 0 && l.effects.Load() >= hold {
				l.held.Store(true)
				<-ctx.Done()
				return
			}
			id := string(r.Headers[0].Value)
			l.lines.say("delivered", id, r.Topic, r.Partition, r.Offset)
			l.lines.say("begun", id, r.Topic, r.Partition, r.Offset)
			if backoff.Sleep(ctx, 10*time.Millisecond) != nil {
				return
			}
			l.lines.say("effect", id, r.Topic, r.Partition, r.Offset)
			l.effects.Add(1)
		}
		if l.after != nil && l.after(ctx, client, fetched...) != nil {
			return
		}
	}
}

func commitAll(ctx context.Context, client *kgo.Client, records ...*kgo.Record) error {
	return client.CommitRecords(ctx, records...)
}

// plainResult kills a loop inside a batch and starts it again. told is the judge's result. untold
// is the result of a judge that does not know of the kill.
func plainResult(t *testing.T, loop *plainLoop) (told, untold *faultResult) {
	t.Helper()
	const messages = 200
	cluster := embeddedNodes(t, 1)
	brokers := cluster.ListenAddrs()
	require.NoError(t, cluster.CreateTopic(sceneTopic, 1, nil))
	log := produce(t, brokers, sceneTopic, numbered(0, 0, messages))
	watch := newCommitWatch(brokers, sceneTopic, sceneGroup, 1)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		watch.watch(ctx, 5*time.Millisecond)
	}()
	name := filepath.Join(t.TempDir(), "lines")
	lines, err := openFaultLines(name)
	require.NoError(t, err)
	t.Cleanup(func() { _ = lines.file.Close() })
	loop.lines = lines
	start := func(pid int, dialer *cutDialer, hold int64) func() {
		lines.pid = pid
		life, end := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			loop.run(life, hold, kgo.SeedBrokers(brokers...), kgo.ConsumerGroup(sceneGroup),
				kgo.ConsumeTopics(sceneTopic), kgo.SessionTimeout(4*time.Second),
				kgo.HeartbeatInterval(200*time.Millisecond), kgo.Dialer(dialer.DialContext),
				kgo.FetchMaxWait(50*time.Millisecond))
		}()
		return func() { end(); <-done }
	}
	first := &cutDialer{conns: map[net.Conn]bool{}}
	kill := start(1, first, 50)
	eventually(t, time.Minute, func() (bool, string) {
		offset := watch.offset(0)
		return loop.held.Load() && offset > 0 && (!loop.ahead || offset > loop.effects.Load()),
			"it does not work"
	})
	from := time.Now()
	first.cut()
	kill()
	killed := faultTrouble{"killed", 1, from, time.Now()}
	leave := start(2, &cutDialer{conns: map[net.Conn]bool{}}, 0)
	eventually(t, 30*time.Second, func() (bool, string) {
		return watch.offset(0) == messages, "it does not commit to the end"
	})
	last := loop.effects.Load() // the last effects may come after their commit
	eventually(t, 10*time.Second, func() (bool, string) {
		was := last
		last = loop.effects.Load()
		return was == last, "its effects do not end"
	})
	leave()
	stop()
	<-watching
	all, err := readFaultLines(name)
	require.NoError(t, err)
	judge := &faultJudge{log: log, lines: all, commits: watch.commits()}
	untold = judge.judge()
	judge.troubles = []faultTrouble{killed}
	return judge.judge(), untold
}

// The judge of TestRandomFaults finds the errors of a loop that commits before the effect.
func TestJudgeConvictsCommitBeforeEffect(t *testing.T) {
	t.Parallel()
	v, _ := plainResult(t, &plainLoop{options: []kgo.Opt{kgo.DisableAutoCommit()},
		before: commitAll, ahead: true})
	t.Log(v)
	assert.NotEmpty(t, v.lost)
	assert.NotEmpty(t, v.ahead)
}

// The judge finds the errors of a loop that commits every 100 ms what it has polled.
func TestJudgeConvictsCommitByTheClock(t *testing.T) {
	t.Parallel()
	v, _ := plainResult(t, &plainLoop{options: []kgo.Opt{kgo.GreedyAutoCommit(),
		kgo.AutoCommitInterval(100 * time.Millisecond)}, ahead: true})
	t.Log(v)
	assert.NotEmpty(t, v.lost)
	assert.NotEmpty(t, v.ahead)
}

// A loop commits after the effect. The judge finds nothing lost, and it excuses the doubled effects
// if it knows of the kill.
func TestJudgeAcquitsCommitAfterEffect(t *testing.T) {
	t.Parallel()
	v, untold := plainResult(t, &plainLoop{options: []kgo.Opt{kgo.DisableAutoCommit()},
		after: commitAll})
	t.Log(v)
	assert.Empty(t, v.lost)
	assert.Empty(t, v.ahead)
	assert.Empty(t, v.unexplained)
	assert.NotZero(t, v.doubled)
	assert.Len(t, untold.unexplained, v.doubled)
}

// The judge excuses a doubled effect only if something happened to its process, or to Redis, before
// the effect was recorded.
func TestJudgeWantsTheRightReason(t *testing.T) {
	zero := time.Now()
	at := func(s int) time.Time { return zero.Add(time.Duration(s) * time.Second) }
	line := func(what string, s, pid int) faultLine {
		return faultLine{what: what, at: at(s), pid: pid, id: "a"}
	}
	lines := []faultLine{line("begun", 10, 1), line("effect", 11, 1), line("recorded", 12, 1),
		line("begun", 30, 2), line("effect", 31, 2), line("recorded", 32, 2)}
	// process 1 is stopped between its begin and its effect
	late := []faultLine{line("begun", 10, 1), line("begun", 30, 2), line("effect", 31, 2),
		line("recorded", 32, 2), line("effect", 40, 1), line("lost", 40, 1)}
	v := (&faultJudge{log: map[int32][]string{0: {"a"}}, lines: late,
		commits:  []seenCommit{{0, 1, at(33)}},
		troubles: []faultTrouble{{"stopped", 1, at(11), at(39)}}}).judge()
	assert.Empty(t, v.unexplained)
	assert.Empty(t, v.ahead)
	for name, c := range map[string]struct {
		trouble faultTrouble
		excuses bool
	}{
		"none":                    {},
		"killed at work":          {faultTrouble{"killed", 1, at(11), at(11)}, true},
		"stopped at work":         {faultTrouble{"stopped", 1, at(9), at(15)}, true},
		"killed after the record": {faultTrouble{"killed", 1, at(20), at(20)}, false},
		"another was killed":      {faultTrouble{"killed", 2, at(11), at(11)}, false},
		"killed before":           {faultTrouble{"killed", 1, at(5), at(5)}, false},
		"Redis was frozen":        {faultTrouble{"Redis frozen", 0, at(8), at(11)}, true},
		"a broker was killed":     {faultTrouble{"broker killed", 0, at(8), at(20)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := (&faultJudge{log: map[int32][]string{0: {"a"}}, lines: lines,
				troubles: []faultTrouble{c.trouble}}).judge()
			assert.Equal(t, 1, v.doubled)
			assert.Len(t, v.unexplained, map[bool]int{true: 0, false: 1}[c.excuses])
		})
	}
}
