package kafkasarama

import (
	"context"
	"errors"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// commits commits the offsets of one session over a client of its own, and knows the result of each
// commit. [sarama.ConsumerGroupSession.Commit] does not report it: it makes one attempt, is silent
// about three errors, and may wait for a whole long poll, because a fetch holds the lock of its
// connection.
//
// No offset is marked with sarama: with AutoCommit off it would not flush marks by itself, and it
// asks the broker where a partition begins.
type commits struct {
	*kafkadriver.Offsets
	group    string
	instance *string // of a static member
	session  sarama.ConsumerGroupSession
	client   groupClient
	fence    func(error)

	// Only the committer's goroutine uses these.
	lookUp bool // the coordinator must be looked up again
	over   bool // fenced: nothing that is sent counts any more
}

// groupClient has the methods of a sarama.Client that a Consumer needs.
type groupClient interface {
	// Commit sends the request to the group's coordinator. With lookUp it looks the coordinator up
	// again first.
	Commit(r *sarama.OffsetCommitRequest, lookUp bool) (*sarama.OffsetCommitResponse, error)
	// Count asks the brokers for the number of a topic's partitions.
	Count(ctx context.Context, topic string) (int32, error)
	// Config is the client's configuration.
	Config() *sarama.Config

	kafkadriver.TopicSource
}

// realClient is the groupClient of a sarama.Client.
type realClient struct {
	sarama.Client
	group string
}

// Commit implements groupClient.
func (c realClient) Commit(r *sarama.OffsetCommitRequest,
	lookUp bool) (*sarama.OffsetCommitResponse, error) {
	if lookUp {
		if err := c.RefreshCoordinator(r.ConsumerGroup); err != nil {
			return nil, err
		}
	}
	broker, err := c.Coordinator(r.ConsumerGroup)
	if err != nil {
		return nil, err
	}
	response, err := broker.CommitOffset(r)
	if err != nil {
		_ = broker.Close() // a dead connection stays dead; Coordinator opens another
	}
	return response, err
}

// Count implements groupClient.
func (c realClient) Count(_ context.Context, topic string) (int32, error) {
	// A partition without a leader makes the refresh fail, but still counts.
	if err := c.RefreshMetadata(topic); err != nil &&
		!errors.Is(err, sarama.ErrLeaderNotAvailable) {
		return 0, err
	}
	all, err := c.Partitions(topic)
	return int32(len(all)), err
}

func (c *Consumer) newCommits(member sarama.ConsumerGroupSession, s *session) *commits {
	out := &commits{
		Offsets: c.engine.NewOffsets(s.topics), group: c.engine.Group(), session: member,
		client: c.client, fence: func(err error) { _ = c.fenced(s, err) },
	}
	if id := c.client.Config().Consumer.Group.InstanceId; id != "" {
		out.instance = &id
	}
	return out
}

// commit makes one attempt. The committer repeats it while anything is not confirmed. So every
// answer except success leads to another attempt, also REQUEST_TIMED_OUT, which may have been
// applied, and REBALANCE_IN_PROGRESS.
func (c *commits) commit() {
	if c.over {
		return
	}
	all := c.Due(context.Background())
	if len(all) == 0 {
		return
	}
	request := c.request()
	for _, d := range all {
		add(request, d.Topic, d.Partition, d.Next, d.Metadata)
	}
	response, err := c.client.Commit(request, c.lookUp)
	c.lookUp = err != nil
	answers, fencing := make([]error, len(all)), error(nil)
	for i, d := range all {
		if answers[i] = err; err != nil {
			continue
		}
		answers[i] = answerIn(response, d.Topic, d.Partition)
		c.lookUp = c.lookUp || isMoved(answers[i])
		if isFencing(answers[i]) {
			fencing = answers[i]
		}
	}
	if fencing != nil && !c.rejoined(request, fencing) {
		c.over = true
		c.fence(fencing) // before anybody hears of it: a log or a hook may take its time
	}
	for i, d := range all {
		c.Ended(d, answers[i])
	}
}

// request makes an empty request of this member.
func (c *commits) request() *sarama.OffsetCommitRequest {
	r := sarama.NewOffsetCommitRequest(c.client.Config(), c.group)
	r.ConsumerID, r.ConsumerGroupGeneration = c.session.MemberID(), c.session.GenerationID()
	if r.Version >= 7 {
		r.GroupInstanceId = c.instance
	}
	return r
}

// add adds a partition to a request, without a leader epoch: with a wrong epoch other clients would
// conclude that the log was cut.
func add(r *sarama.OffsetCommitRequest, topic string, partition int32, next int64, stamp string) {
	r.AddBlockWithLeaderEpoch(topic, partition, next, -1, 0, stamp)
}

// answerIn returns the result for a partition, nil when it is committed.
func answerIn(r *sarama.OffsetCommitResponse, topic string, partition int32) error {
	code, ok := r.Errors[topic][partition]
	switch {
	case !ok:
		return sarama.ErrIncompleteResponse
	case code != sarama.ErrNoError:
		return code
	}
	return nil
}

// rejoined reports whether the request was refused because it has a generation, or a member id,
// that the session has left in the meantime.
//
// In a cooperative group the coordinator counts the generation up before the member hears of it. So
// rejoined calls sarama's Commit, which waits for a join that is under way; it sends nothing,
// because nothing is marked with sarama. Commit may also wait for a long poll, which delays only
// the end of the session.
func (c *commits) rejoined(r *sarama.OffsetCommitRequest, fencing error) bool {
	other := func() bool {
		return c.session.GenerationID() != r.ConsumerGroupGeneration ||
			c.session.MemberID() != r.ConsumerID
	}
	// another process has the instance id: there is no way back
	if errors.Is(fencing, sarama.ErrFencedInstancedId) {
		return false
	}
	if !other() {
		c.session.Commit()
	}
	return other()
}

// isMoved recognizes answers of a broker that does not coordinate the group.
func isMoved(answer error) bool {
	return errors.Is(answer, sarama.ErrNotCoordinatorForConsumer) ||
		errors.Is(answer, sarama.ErrConsumerCoordinatorNotAvailable)
}

// isFencing reports whether this answer says that the member's partitions belong to another member.
func isFencing(err error) bool {
	return errors.Is(err, sarama.ErrUnknownMemberId) ||
		errors.Is(err, sarama.ErrIllegalGeneration) || errors.Is(err, sarama.ErrFencedInstancedId)
}

// rewind commits the start of a partition whose topic was replaced by another one of its name.
func (c *commits) rewind(_ context.Context, topic string, partition int32, next int64,
	metadata string) error {
	r := c.request()
	add(r, topic, partition, next, metadata)
	response, err := c.client.Commit(r, true)
	if err != nil {
		return err
	}
	return answerIn(response, topic, partition)
}
