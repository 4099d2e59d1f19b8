package pipeline_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/kafkaadapter/internal/pipeline"
)

// client behaves like sarama's offset manager: a mark is dirty until a commit arrives, a commit
// without dirty marks sends nothing, and a lost commit reports no error.
type client struct {
	t *testing.T

	mu        sync.Mutex
	marked    map[string]int64
	broker    map[string]int64 // what the group's coordinator has
	marks     int
	commits   int
	lose      int // how many commits that send something are lost
	latency   time.Duration
	hang      chan struct{} // a commit waits until it is closed
	inside    bool
	confirmed bool // answers Confirmed
}

func newClient(t *testing.T) *client {
	return &client{t: t, marked: map[string]int64{}, broker: map[string]int64{}}
}

func name(topic string, id int32) string { return fmt.Sprintf("%s/%d", topic, id) }

func (c *client) Mark(topic string, id int32, next int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.marks++
	assert.Greater(c.t, next, c.marked[name(topic, id)], "marks of %s", name(topic, id))
	c.marked[name(topic, id)] = next
}

func (c *client) Commit() {
	c.mu.Lock()
	defer c.mu.Unlock()
	assert.False(c.t, c.inside, "two commits at a time")
	c.inside = true
	c.commits++
	sent, latency, hang := maps.Clone(c.marked), c.latency, c.hang
	c.mu.Unlock()
	time.Sleep(latency)
	if hang != nil {
		<-hang
	}
	c.mu.Lock()
	c.inside = false
	if maps.Equal(sent, c.broker) {
		return
	}
	if c.lose > 0 {
		c.lose--
		return
	}
	c.broker = sent
}

func (c *client) Confirmed(topic string, id int32) (int64, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next, ok := c.broker[name(topic, id)]
	return next, ok
}

func (c *client) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

func (c *client) counts() (marks, commits int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.marks, c.commits
}

func (c *client) wantBroker(topic string, id int32, want int64) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	assert.Equal(c.t, want, c.broker[name(topic, id)], "what the broker has of %s", name(topic, id))
}

// Settings of the tests that have none of their own.
const (
	commitInterval = 250 * time.Millisecond
	commitRepeat   = time.Minute
)

// start makes a committer on c and starts it. It is stopped at the end of the test.
func (c *client) start(cfg pipeline.CommitterConfig) *pipeline.Committer {
	c.t.Helper()
	cfg.Mark, cfg.Commit = c.Mark, c.Commit
	cfg.Interval = cmp.Or(cfg.Interval, commitInterval)
	cfg.Count = cmp.Or(cfg.Count, 1000)
	cfg.Repeat = cmp.Or(cfg.Repeat, commitRepeat)
	if c.confirmed {
		cfg.Confirmed = c.Confirmed
	}
	com, err := pipeline.NewCommitter(cfg)
	require.NoError(c.t, err)
	com.Start()
	c.t.Cleanup(func() { assert.NoError(c.t, com.Stop(within(c.t, time.Hour)), "Stop") })
	return com
}

func add(t *testing.T, com *pipeline.Committer, topic string, id int32) *pipeline.Tracker {
	t.Helper()
	tr := new(pipeline.Tracker)
	require.NoError(t, com.Add(topic, id, tr))
	return tr
}

func TestCommitterCommitsWhatMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t)
		com := c.start(pipeline.CommitterConfig{})
		a, b := add(t, com, "t", 0), add(t, com, "t", 1)
		add(t, com, "u", 0)
		time.Sleep(time.Minute)
		marks, commits := c.counts()
		assert.Zero(t, marks, "marks of nothing")
		assert.Zero(t, commits, "commits of nothing")
		track(t, a, 4).Done()
		open := track(t, b, 9)
		track(t, b, 10).Done()
		time.Sleep(commitInterval)
		synctest.Wait()
		c.wantBroker("t", 0, 5)
		c.wantBroker("t", 1, 0)
		open.Done()
		time.Sleep(commitInterval)
		synctest.Wait()
		c.wantBroker("t", 1, 11)
		marks, _ = c.counts()
		assert.Equal(t, 2, marks, "one for each move")
	})
}

// sarama reports no error for a commit that went to a coordinator that has moved. After the last
// message only the committer can send that commit again.
func TestLostLastCommitIsRepeated(t *testing.T) {
	for _, confirmed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newClient(t)
			c.lose, c.confirmed = 1, confirmed
			com := c.start(pipeline.CommitterConfig{})
			track(t, add(t, com, "t", 0), 7).Done()
			time.Sleep(commitInterval)
			synctest.Wait()
			c.wantBroker("t", 0, 0)
			time.Sleep(commitInterval) // silence
			synctest.Wait()
			c.wantBroker("t", 0, 8)
		})
	}
}

func TestCommitterOutlastsALongOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t)
		c.lose = 200 // 50 s of a coordinator that is away
		com := c.start(pipeline.CommitterConfig{})
		track(t, add(t, com, "t", 0), 7).Done()
		time.Sleep(commitRepeat)
		c.wantBroker("t", 0, 8)
	})
}

func TestRepetitionEndsWithoutConfirmation(t *testing.T) {
	for _, row := range []struct {
		repeat time.Duration
		want   int // commits after one move: the first and the repetitions
	}{
		{0, 241},
		{10 * time.Second, 41},
		{time.Nanosecond, 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newClient(t)
			com := c.start(pipeline.CommitterConfig{Repeat: row.repeat})
			tr := add(t, com, "t", 0)
			track(t, tr, 7).Done()
			time.Sleep(time.Hour)
			_, commits := c.counts()
			assert.Equal(t, row.want, commits, "commits with Repeat %v", row.repeat)
			want := pipeline.CommitStats{Commits: uint64(row.want), Repeated: uint64(row.want - 1)}
			assert.Equal(t, want, com.Stats())
			// The next move begins anew.
			c.set(func() { c.lose = 1 })
			track(t, tr, 8).Done()
			time.Sleep(time.Second)
			c.wantBroker("t", 0, 9)
		})
	}
}

func TestConfirmationEndsRepetition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t)
		c.confirmed, c.lose = true, 100000
		com := c.start(pipeline.CommitterConfig{})
		track(t, add(t, com, "t", 0), 7).Done()
		add(t, com, "t", 1)
		time.Sleep(time.Hour)
		_, commits := c.counts()
		assert.GreaterOrEqual(t, commits, 14000, "gave up, though nothing was confirmed")
		assert.Equal(t, 1, com.Stats().Unconfirmed)
		c.set(func() { c.lose = 0 })
		time.Sleep(time.Second)
		c.wantBroker("t", 0, 8)
		_, before := c.counts()
		time.Sleep(time.Hour)
		_, commits = c.counts()
		assert.Equal(t, before, commits, "commits after the confirmation")
		assert.Zero(t, com.Stats().Unconfirmed)
	})
}

func TestCommitAfterCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t)
		com := c.start(pipeline.CommitterConfig{Interval: time.Hour, Count: 10})
		tr := add(t, com, "t", 0)
		for offset := range int64(35) {
			track(t, tr, offset).Done()
			com.Finished(1)
			synctest.Wait()
		}
		c.wantBroker("t", 0, 30)
		_, commits := c.counts()
		assert.Equal(t, 3, commits)
		com.Finished(100)
		synctest.Wait()
		c.wantBroker("t", 0, 35)
	})
}

// While one message is stuck, Finished still asks for commits. Repeating a lost commit at that rate
// would flood the coordinator and soon use up the repetitions.
func TestWishesDoNotRepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t)
		c.lose = 100
		com := c.start(pipeline.CommitterConfig{Count: 1})
		tr := add(t, com, "t", 0)
		track(t, tr, 0).Done()
		track(t, tr, 1) // stuck
		for range 1000 {
			com.Finished(1)
			synctest.Wait()
		}
		_, commits := c.counts()
		assert.Equal(t, 1, commits, "commits after the first one")
		time.Sleep(time.Minute)
		c.wantBroker("t", 0, 1)
	})
}

func TestFinishedNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t)
		c.latency = 500 * time.Millisecond // the fetch holds the connection
		com := c.start(pipeline.CommitterConfig{Count: 10})
		tr := add(t, com, "t", 0)
		start := time.Now()
		for offset := range int64(1000) {
			track(t, tr, offset).Done()
			com.Finished(1)
		}
		assert.Zero(t, time.Since(start), "the message path waited for commits")
		time.Sleep(2 * time.Second)
		c.wantBroker("t", 0, 1000)
	})
}

func TestAddTwice(t *testing.T) {
	c := newClient(t)
	com := c.start(pipeline.CommitterConfig{})
	add(t, com, "t", 0)
	add(t, com, "t", 1)
	add(t, com, "u", 0)
	err := com.Add("t", 0, new(pipeline.Tracker))
	require.ErrorIs(t, err, pipeline.ErrTracked)
	assert.ErrorContains(t, err, "t/0")
}

func TestCommitterConfig(t *testing.T) {
	mark, commit := func(string, int32, int64) {}, func() {}
	for _, row := range []struct {
		name string
		cfg  pipeline.CommitterConfig
		want string
	}{
		{"no mark", pipeline.CommitterConfig{Commit: commit}, "Mark"},
		{"no commit", pipeline.CommitterConfig{Mark: mark}, "Commit"},
	} {
		t.Run(row.name, func(t *testing.T) {
			com, err := pipeline.NewCommitter(row.cfg)
			assert.Nil(t, com)
			require.ErrorContains(t, err, row.want)
			assert.True(t, strings.HasPrefix(err.Error(), "pipeline: "), err)
		})
	}
}

// Random work, random losses, random commit times: the broker never has an offset
// with something unfinished below it, and has everything after a while.
func TestCommitterNeverRunsAhead(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 5))
			c := newClient(t)
			c.confirmed = seed%2 == 0
			com := c.start(pipeline.CommitterConfig{Count: 20})
			var trackers []*pipeline.Tracker
			var slots []pipeline.Slot
			next := make([]int64, 3)
			for id := range int32(3) {
				trackers = append(trackers, add(t, com, "t", id))
			}
			for range 500 {
				id := rnd.IntN(3)
				slots = append(slots, track(t, trackers[id], next[id]))
				next[id] += 1 + int64(rnd.IntN(3))
				for len(slots) > 0 && rnd.IntN(3) > 0 {
					i := rnd.IntN(len(slots))
					slots[i].Done()
					com.Finished(1)
					slots[i] = slots[len(slots)-1]
					slots = slots[:len(slots)-1]
				}
				c.set(func() {
					c.latency = time.Duration(rnd.IntN(600)) * time.Millisecond
					if rnd.IntN(4) == 0 {
						c.lose = rnd.IntN(4)
					}
				})
				time.Sleep(time.Duration(rnd.IntN(100)) * time.Millisecond)
				checkNotAhead(t, c, trackers)
			}
			for _, slot := range slots {
				slot.Done()
			}
			time.Sleep(time.Minute)
			for id, tr := range trackers {
				want, _ := tr.Watermark()
				c.wantBroker("t", int32(id), want)
			}
		})
	}
}

func checkNotAhead(t *testing.T, c *client, trackers []*pipeline.Tracker) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, tr := range trackers {
		p := tr.Progress()
		require.True(t, p.Oldest < 0 || c.broker[name("t", int32(id))] <= p.Oldest,
			"the broker has %d of partition %d while %d is unfinished",
			c.broker[name("t", int32(id))], id, p.Oldest)
	}
}
