package kafkasarama

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/internal/msgid"
)

// news returns n messages for the topic that is created again.
func news(n int) []*sarama.ConsumerMessage {
	var all []*sarama.ConsumerMessage
	for i := range n {
		all = append(all, message(fmt.Sprint("new", i), ""))
	}
	return all
}

// recreation is a rig whose handler of the message "slow" waits for release.
type recreation struct {
	*rig
	release chan struct{}
	told    toldErrors
}

// inRecreation runs a story in which id0 to id2 are done and committed, and slow is running.
func inRecreation(t *testing.T, f func(*recreation)) {
	t.Helper()
	re := &recreation{}
	handler := func(ctx context.Context, m *kafkaadapter.Message) error {
		if m.ID != "slow" {
			return nil
		}
		select {
		case <-re.release:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	inBubble(t, 1, handler, func(_ *rig, c *kafkaadapter.Config) {
		c.Observer.GroupError = re.told.add
		re.release = make(chan struct{}) // of the bubble
	}, func(r *rig) {
		re.rig = r
		r.group.add(ids(3)...)
		r.group.add(message("slow", "slow"))
		r.after(1100 * time.Millisecond) // a look at the topics was made just now
		r.wantCommitted(3)
		f(re)
	})
}

// wantNews requires that every message of the new topic was run, and committed.
func (re *recreation) wantNews(n int) {
	re.t.Helper()
	re.after(10 * time.Second)
	for i := range n {
		re.wantRuns(fmt.Sprint("new", i), 1)
	}
	re.wantCommitted(int64(n))
	recreated := 0
	for _, err := range re.told.all() {
		if errors.Is(err, kafkaadapter.ErrTopicRecreated) {
			recreated++
		}
	}
	assert.Contains(re.t, []int{1, 2}, recreated, "how often it was told: %v", re.told.all())
}

// The topic is created again before a handler ends. The handler's offset is not committed, and the
// new topic is read from its start, whether it has fewer messages or more.
func TestOldOffsetIsNotCommittedIntoNewTopic(t *testing.T) {
	for _, n := range []int{2, 10} {
		t.Run(fmt.Sprint(n, " messages"), func(t *testing.T) {
			inRecreation(t, func(re *recreation) {
				old := msgid.Stamp(re.coordinator.topic.uuid().String())
				sent := re.coordinator.sent()
				re.coordinator.recreate(news(n)...)
				close(re.release)
				re.wantNews(n)
				re.coordinator.set(func() {
					for _, request := range re.coordinator.requests[sent:] {
						_, stamp, err := request.Offset(topic, 0)
						assert.NoError(t, err)
						assert.NotEqual(t, old, stamp, "a commit of the old topic")
					}
				})
			})
		})
	}
}

// The topic is deleted and created again after the look, so the commit goes to the new topic. It
// says which topic it was for, so the next session does not begin there.
func TestCommitThatMetANewTopicIsTakenBack(t *testing.T) {
	inRecreation(t, func(re *recreation) {
		re.group.finished = nil // it would reject this commit
		re.coordinator.topic.hook(&re.coordinator.topic.onLook, func() {
			re.coordinator.recreate(news(10)...)
		})
		close(re.release)
		re.after(200 * time.Millisecond)
		re.wantCommitted(4) // of the new topic
		re.wantNews(10)
	})
}

// The group's offset was fetched before the topic was deleted, and the topic is looked up after it
// was created again. By then the new topic has no commit, or a smaller one by another member.
func TestOffsetOfDeletedTopicIsFetchedAgain(t *testing.T) {
	for _, committed := range []int64{0, 2} {
		t.Run(fmt.Sprint(committed, " of the new topic are done"), func(t *testing.T) {
			inRecreation(t, func(re *recreation) { re.offsetOfDeletedTopic(committed) })
		})
	}
}

func (re *recreation) offsetOfDeletedTopic(committed int64) {
	close(re.release)
	re.after(time.Second)
	re.wantCommitted(4)
	at := &re.coordinator.topic
	at.hook(&at.before, func() { // of Run, before it joins and the offset is fetched
		at.hook(&at.before, func() { // of the claim
			re.coordinator.recreate(news(10)...)
			if committed > 0 {
				re.group.finished = nil // here
				re.group.change(func() { re.group.committed[0] = committed })
				at.stamp(0, msgid.Stamp(at.uuid().String()))
			}
		})
	})
	re.consumer.topics = re.consumer.engine.NewTopics(re.coordinator) // it is another process
	re.group.rebalance()
	re.after(10 * time.Second)
	for i := range 10 {
		re.wantRuns(fmt.Sprint("new", i), map[bool]int{true: 1}[int64(i) >= committed])
	}
	re.wantCommitted(10)
}

// A group that begins topics at their end begins a topic that was created again at its start.
func TestNewTopicIsReadFromItsStart(t *testing.T) {
	inRecreation(t, func(re *recreation) {
		re.group.newest = true
		re.coordinator.recreate(news(10)...)
		close(re.release)
		re.after(10 * time.Second)
		for i := range 10 {
			re.wantRuns(fmt.Sprint("new", i), 1)
		}
	})
}

// While the topic cannot be looked up, nothing is committed.
func TestNothingIsCommittedUnseen(t *testing.T) {
	inRecreation(t, func(re *recreation) {
		re.coordinator.topic.set(func(t *fakeTopic) { t.broken = true })
		close(re.release)
		re.after(5 * time.Second)
		re.wantRuns("slow", 1)
		re.wantCommitted(3)
		re.coordinator.topic.set(func(t *fakeTopic) { t.broken = false })
		re.after(5 * time.Second)
		re.wantCommitted(4)
	})
}

// Brokers without UUIDs are reported once, and commits have no metadata.
func TestTopicWithoutUUID(t *testing.T) {
	var told toldErrors
	inBubble(t, 1, nil, func(r *rig, c *kafkaadapter.Config) {
		r.coordinator.topic.noUUID = true
		c.Observer.GroupError = told.add
	}, func(r *rig) {
		r.group.add(ids(3)...)
		r.after(time.Second)
		r.wantCommitted(3)
		r.group.rebalance()
		r.after(time.Second)
		assert.Len(t, told.all(), 1)
		assert.Empty(t, r.coordinator.topic.metadata[0])
	})
}

// Run waits for a topic that does not exist, or that is deleted, and reports it once.
func TestMissingTopicIsWaitedFor(t *testing.T) {
	var told toldErrors
	inBubble(t, 1, nil, func(r *rig, c *kafkaadapter.Config) {
		r.coordinator.topic.absent = true
		c.Observer.GroupError = told.add
	}, func(r *rig) {
		for round := range 2 {
			r.after(time.Minute)
			joins, _ := r.group.joined()
			assert.Equal(t, round, joins)
			assert.Len(t, told.all(), round+1)
			id := fmt.Sprint("round", round)
			r.coordinator.create(message(id, ""))
			r.after(2 * time.Second)
			r.wantRuns(id, 1)
			r.coordinator.delete()
		}
	})
}
