package kafkaadapter

import (
	"errors"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/kafkaadapter/internal/msgid"
)

// errNotRewound: sarama does not say why.
var errNotRewound = errors.New("kafkaadapter: the session did not commit it")

// vet keeps those partitions of a request whose topics are still the ones that were assigned.
func (c *commits) vet(all []due) []due {
	if c.topics == nil || len(all) == 0 {
		return all
	}
	var topics []string
	asked := make(map[string]bool)
	for _, d := range all {
		if !asked[d.topic] {
			asked[d.topic] = true
			topics = append(topics, d.topic)
		}
	}
	may, err := c.topics.mayCommit(topics)
	kept := all[:0]
	for _, d := range all {
		switch {
		case err != nil:
			c.refused(d, err)
		case may[d.topic]:
			kept = append(kept, d)
		}
	}
	return kept
}

// rewind commits the start of a partition whose topic is another one by now.
func (c *commits) rewind(topic string, partition int32, next int64, metadata string) error {
	r := c.newRequest()
	r.AddBlockWithLeaderEpoch(topic, partition, next, -1, 0, metadata)
	response, err := c.client.Commit(r, true)
	if err != nil {
		return err
	}
	code, ok := response.Errors[topic][partition]
	switch {
	case !ok:
		return sarama.ErrIncompleteResponse
	case code != sarama.ErrNoError:
		return code
	}
	return nil
}

// sessionCommits commits over sarama's session, which flushes everything that is marked: so
// nothing of a session is committed once one of its topics is another one.
type sessionCommits struct {
	session sarama.ConsumerGroupSession
	topics  *sessionTopics
	marked  map[string]bool // topics; of the committer's goroutine
}

func (c *sessionCommits) mark(topic string, partition int32, next int64) {
	c.marked[topic] = true
	c.session.MarkOffset(topic, partition, next, msgid.Stamp(c.topics.uuid(topic)))
}

func (c *sessionCommits) commit() {
	if c.topics != nil && len(c.marked) > 0 {
		var topics []string
		for topic := range c.marked {
			topics = append(topics, topic)
		}
		may, err := c.topics.mayCommit(topics)
		for _, topic := range topics {
			if err != nil || !may[topic] {
				return
			}
		}
	}
	c.session.Commit()
}

func (c *sessionCommits) rewind(topic string, partition int32, next int64, metadata string) error {
	c.session.MarkOffset(topic, partition, next, metadata)  // where nothing is committed
	c.session.ResetOffset(topic, partition, next, metadata) // where more is
	c.session.Commit()
	offset, _, err := c.topics.source().Committed(c.topics.group, topic, partition)
	if err == nil && offset != next {
		err = errNotRewound
	}
	return err
}
