package txn

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/kafkaadapter/internal/msgid"
)

// settle lets time pass until everybody waits.
func settle() {
	time.Sleep(time.Second)
	synctest.Wait()
}

// The topic is deleted and created again under a claim. Nothing of the old one is committed into
// the new one, neither offset nor output, and the claim ends.
func TestOldOffsetIsNotCommittedIntoNewTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(t)
		r := start(t, c)
		r.feed(0, 4)
		settle()
		require.EqualValues(t, 4, c.offset)
		require.Equal(t, "first", msgid.Stamped(c.stamp))
		c.mu.Lock()
		c.recreate()
		c.mu.Unlock()
		r.feed(4, 8)
		assert.ErrorIs(t, <-r.done, ErrTopicRecreated)
		assert.Equal(t, outputsOf(0, 4), c.outputs)
		assert.EqualValues(t, -1, c.offset)
		c.wantClosed()
	})
}

// The topic is replaced after the look at it, so the commit goes to the new topic. The next claim
// finds by the stamp that the offset is one of the old topic, and commits the start.
func TestCommitThatMetANewTopicIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(t)
		r := start(t, c)
		settle()
		c.mu.Lock()
		c.onLook = c.recreate
		c.mu.Unlock()
		r.feed(0, 4)
		settle()
		require.EqualValues(t, 4, c.offset)
		require.NoError(t, r.leave())

		again := start(t, c)
		assert.ErrorIs(t, <-again.done, ErrTopicRecreated)
		assert.EqualValues(t, 0, c.offset)
		assert.Equal(t, "second", msgid.Stamped(c.stamp))
		c.wantClosed()

		c.outputs = nil
		last := start(t, c)
		last.feed(0, 8)
		settle()
		assert.Equal(t, outputsOf(0, 8), c.outputs)
		require.NoError(t, last.leave())
	})
}

// sarama has fetched the offset of a topic that is then deleted and created again. The claim finds
// the new topic, and must not begin in its middle.
func TestClaimDoesNotBeginAtADeletedOffset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(t)
		c.offset = 200
		c.zombie = c.recreate
		r := start(t, c)
		assert.ErrorIs(t, <-r.done, ErrTopicRecreated)
		assert.NotContains(t, c.log(), "begin")
		c.wantClosed()
	})
}

// If the brokers have no UUIDs, topics are not compared, and offsets have no stamp.
func TestTopicWithoutUUID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(t)
		c.uuid = ""
		r := start(t, c)
		r.feed(0, 4)
		settle()
		require.NoError(t, r.leave())
		assert.Equal(t, outputsOf(0, 4), c.outputs)
		assert.Empty(t, c.stamp)
	})
}
