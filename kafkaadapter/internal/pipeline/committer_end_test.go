package pipeline_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/kafkaadapter/internal/pipeline"
)

func TestRemoveCommitsALastTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t)
		c.latency = 100 * time.Millisecond
		com := c.start(pipeline.CommitterConfig{Interval: time.Hour})
		tr := add(t, com, "t", 0)
		track(t, tr, 4).Done()
		late := track(t, tr, 5)
		require.NoError(t, com.Remove(within(t, time.Minute), "t", 0))
		c.wantBroker("t", 0, 5)
		// A handler that ends after Remove must not mark: another member may have the partition.
		late.Done()
		com.Finished(100000)
		time.Sleep(3 * time.Hour)
		marks, _ := c.counts()
		assert.Equal(t, 1, marks, "marks before and after Remove")
		assert.NoError(t, com.Remove(t.Context(), "t", 0), "a second Remove")
		// The partition comes back to this member, which begins at the committed offset.
		again := add(t, com, "t", 0)
		track(t, again, 5).Done()
		require.NoError(t, com.Remove(within(t, time.Minute), "t", 0))
		c.wantBroker("t", 0, 6)
	})
}

// The first last commit may go to a coordinator that has moved. The second one finds the new one.
func TestLastCommitIsRepeatedAtOnce(t *testing.T) {
	for _, row := range []struct {
		name      string
		confirmed bool
		lose      int
		commits   int
	}{
		{"lost, nobody confirms", false, 1, 2},
		{"arrived, nobody confirms", false, 0, 2},
		{"lost, not confirmed", true, 1, 2},
		{"arrived and confirmed", true, 0, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newClient(t)
				c.lose, c.confirmed = row.lose, row.confirmed
				com := c.start(pipeline.CommitterConfig{Interval: time.Hour})
				track(t, add(t, com, "t", 0), 4).Done()
				require.NoError(t, com.Remove(within(t, time.Minute), "t", 0))
				c.wantBroker("t", 0, 5)
				_, commits := c.counts()
				assert.Equal(t, row.commits, commits)
			})
		})
	}
}

func TestRemoveOfAnIdlePartitionCommitsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t)
		com := c.start(pipeline.CommitterConfig{Interval: time.Hour})
		track(t, add(t, com, "t", 0), 4)
		require.NoError(t, com.Remove(within(t, time.Minute), "t", 0))
		marks, commits := c.counts()
		assert.Zero(t, marks)
		assert.Zero(t, commits)
	})
}

func TestManyRemovesShareACommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t)
		c.latency = 100 * time.Millisecond
		com := c.start(pipeline.CommitterConfig{Interval: time.Hour})
		var wg sync.WaitGroup
		for id := range int32(50) {
			track(t, add(t, com, "t", id), 4).Done()
			wg.Go(func() {
				assert.NoError(t, com.Remove(within(t, time.Minute), "t", id), "partition %d", id)
			})
		}
		wg.Wait()
		for id := range int32(50) {
			c.wantBroker("t", id, 5)
		}
		_, commits := c.counts()
		assert.LessOrEqual(t, commits, 2*2, "commits for 50 partitions that left together")
	})
}

func TestRemoveIsBoundedByItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t)
		c.hang = make(chan struct{})
		com := c.start(pipeline.CommitterConfig{})
		old := add(t, com, "t", 0)
		track(t, old, 4).Done()
		time.Sleep(time.Second) // a commit hangs by now
		late := track(t, old, 5)
		late.Done()
		start := time.Now()
		err := com.Remove(within(t, time.Second), "t", 0)
		assert.ErrorIs(t, err, errAsked)
		assert.Equal(t, time.Second, time.Since(start))
		// Remove timed out, but the old claim is gone: it is not marked, even after the next Add.
		fresh := add(t, com, "t", 0)
		c.set(func() { close(c.hang); c.hang = nil })
		time.Sleep(time.Second)
		marks, _ := c.counts()
		assert.Equal(t, 1, marks, "the old claim was marked after Remove")
		track(t, fresh, 5).Done()
		time.Sleep(time.Second)
		c.wantBroker("t", 0, 6)
	})
}

// Remove times out while the round that serves it is under way, and the partition is added again.
// The end of that round must not remove the new claim.
func TestRoundOfAnOldClaimSparesTheNewOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t)
		c.latency = time.Minute
		com := c.start(pipeline.CommitterConfig{})
		track(t, add(t, com, "t", 0), 4).Done()
		require.ErrorIs(t, com.Remove(within(t, time.Second), "t", 0), errAsked)
		fresh := add(t, com, "t", 0)
		time.Sleep(time.Hour)
		track(t, fresh, 5).Done()
		time.Sleep(time.Hour)
		c.wantBroker("t", 0, 6)
	})
}

func TestStopCommitsALastTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t)
		c.lose = 1
		com := c.start(pipeline.CommitterConfig{Interval: time.Hour})
		a, b := add(t, com, "t", 0), add(t, com, "t", 1)
		track(t, a, 4).Done()
		track(t, b, 5).Done()
		for range 2 {
			require.NoError(t, com.Stop(within(t, time.Minute)))
		}
		c.wantBroker("t", 0, 5)
		c.wantBroker("t", 1, 6)
		_, before := c.counts()
		track(t, a, 6).Done()
		com.Finished(10000)
		time.Sleep(3 * time.Hour)
		_, commits := c.counts()
		assert.Equal(t, before, commits, "a stopped committer commits")
		assert.Error(t, com.Remove(t.Context(), "t", 0),
			"Remove after Stop claims to have committed")
	})
}

func TestStopServesWhoWaitsInRemove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t)
		c.latency = time.Second
		com := c.start(pipeline.CommitterConfig{})
		track(t, add(t, com, "t", 0), 4).Done()
		track(t, add(t, com, "t", 1), 4).Done()
		time.Sleep(300 * time.Millisecond) // inside a commit
		var wg sync.WaitGroup
		for id := range int32(2) {
			wg.Go(func() {
				assert.NoError(t, com.Remove(within(t, time.Minute), "t", id), "partition %d", id)
			})
		}
		synctest.Wait()
		assert.NoError(t, com.Stop(within(t, time.Minute)))
		wg.Wait()
	})
}

func TestStopIsBoundedByItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t)
		c.hang = make(chan struct{})
		com := c.start(pipeline.CommitterConfig{})
		track(t, add(t, com, "t", 0), 4).Done()
		start := time.Now()
		assert.ErrorIs(t, com.Stop(within(t, time.Second)), errAsked)
		assert.Equal(t, time.Second, time.Since(start))
		close(c.hang)
		assert.NoError(t, com.Stop(within(t, time.Second)), "Stop after the commit came back")
	})
}

func TestStopWithoutStart(t *testing.T) {
	c := newClient(t)
	com, err := pipeline.NewCommitter(pipeline.CommitterConfig{Mark: c.Mark, Commit: c.Commit,
		Interval: commitInterval})
	require.NoError(t, err)
	assert.NoError(t, com.Stop(t.Context()))
}
