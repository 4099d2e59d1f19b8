package kafkasarama

import (
	"errors"
	"log/slog"
	"sync"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/internal/msgid"
)

// commits commits the offsets of one session over a client of its own, and knows
// what became of it. [sarama.ConsumerGroupSession.Commit] does not tell: it makes one attempt,
// is silent about three errors, and may wait for a whole long poll, because a fetch holds
// the lock of its connection.
//
// Nothing is marked with sarama. With AutoCommit off it would flush nothing by itself
// either, and where a partition begins it asks the broker.
type commits struct {
	group    string
	instance *string // of a static member
	session  sarama.ConsumerGroupSession
	client   groupClient
	observer kafkaadapter.Observer
	logger   *slog.Logger
	fence    func(error)
	topics   *sessionTopics

	// Of the committer's goroutine.
	lookUp bool // the coordinator has to be looked up again
	over   bool // fenced: nothing that is sent counts any more
	failed bool // the last attempt

	mu      sync.Mutex
	offsets map[topicPartition]*progress
}

type topicPartition struct {
	topic     string
	partition int32
}

// progress is the next offset to read, as it should be, and as the broker is known to have it.
type progress struct{ marked, confirmed int64 }

// groupClient is what a Consumer needs of a sarama.Client.
type groupClient interface {
	// Commit sends the request to the group's coordinator, after it has been looked up
	// again if that is asked for.
	Commit(r *sarama.OffsetCommitRequest, lookUp bool) (*sarama.OffsetCommitResponse, error)
	// Count asks the brokers for the number of a topic's partitions.
	Count(topic string) (int32, error)
	// Config is the client's.
	Config() *sarama.Config

	topicSource
}

// realClient is the groupClient of a sarama.Client.
type realClient struct{ sarama.Client }

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
		_ = broker.Close() // a dead connection stays one; Coordinator opens another
	}
	return response, err
}

// Count implements groupClient.
func (c realClient) Count(topic string) (int32, error) {
	// A partition without a leader is an error of the refresh, and is counted.
	if err := c.RefreshMetadata(topic); err != nil &&
		!errors.Is(err, sarama.ErrLeaderNotAvailable) {
		return 0, err
	}
	all, err := c.Partitions(topic)
	return int32(len(all)), err
}

func (c *Consumer) newCommits(member sarama.ConsumerGroupSession, s *session) *commits {
	out := &commits{
		group: c.engine.Group(), session: member, client: c.client, observer: c.engine.Observer,
		logger: c.engine.Logger, fence: func(err error) { s.fence(fencedBy(err)) },
		offsets: make(map[topicPartition]*progress), topics: s.topics,
	}
	if id := c.client.Config().Consumer.Group.InstanceId; id != "" {
		out.instance = &id
	}
	return out
}

// mark notes the next offset to commit.
func (c *commits) mark(topic string, partition int32, next int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := topicPartition{topic, partition}
	if c.offsets[at] == nil {
		c.offsets[at] = &progress{confirmed: -1}
	}
	c.offsets[at].marked = next
}

// confirmed is what the broker is known to have.
func (c *commits) confirmed(topic string, partition int32) (next int64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.offsets[topicPartition{topic, partition}]
	if o == nil || o.confirmed < 0 {
		return 0, false
	}
	return o.confirmed, true
}

// forget drops a partition that has been given up. A session of a cooperative group goes
// on into generations in which it is somebody else's, and under which a commit that is
// still due would be taken.
func (c *commits) forget(topic string, partition int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.offsets, topicPartition{topic, partition})
}

// due is one partition of a request.
type due struct {
	topicPartition
	next int64
	of   *progress // also when the partition has been forgotten, and assigned, meanwhile
}

func (c *commits) unconfirmed() []due {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []due
	for at, o := range c.offsets {
		if o.marked > o.confirmed {
			all = append(all, due{at, o.marked, o})
		}
	}
	return all
}

// commit makes one attempt. The committer repeats it for as long as anything is not
// confirmed, so every answer but "done" means again: also REQUEST_TIMED_OUT, which may
// have been applied, and REBALANCE_IN_PROGRESS.
func (c *commits) commit() {
	if c.over {
		return
	}
	all := c.vet(c.unconfirmed())
	if len(all) == 0 {
		return
	}
	request := c.request(all)
	response, err := c.client.Commit(request, c.lookUp)
	if err != nil {
		c.lookUp = true
		for _, d := range all {
			c.refused(d, err)
		}
		return
	}
	c.lookUp = false
	var fencing error
	for _, d := range all {
		code, ok := response.Errors[d.topic][d.partition]
		switch {
		case !ok:
			c.refused(d, sarama.ErrIncompleteResponse)
		case code == sarama.ErrNoError:
			c.confirm(d)
		default:
			c.lookUp = c.lookUp || isMoved(code)
			if isFencing(code) {
				fencing = code
			}
			c.refused(d, code)
		}
	}
	if fencing != nil && !c.rejoined(request, fencing) {
		c.over = true
		c.fence(fencing)
	}
}

func (c *commits) request(all []due) *sarama.OffsetCommitRequest {
	r := c.newRequest()
	for _, d := range all {
		// No leader epoch: with a wrong one other clients would take the log for cut.
		r.AddBlockWithLeaderEpoch(d.topic, d.partition, d.next, -1,
			0, msgid.Stamp(c.topics.uuid(d.topic)))
	}
	return r
}

// newRequest is a request of this member, for nothing yet.
func (c *commits) newRequest() *sarama.OffsetCommitRequest {
	r := sarama.NewOffsetCommitRequest(c.client.Config(), c.group)
	r.ConsumerID, r.ConsumerGroupGeneration = c.session.MemberID(), c.session.GenerationID()
	if r.Version >= 7 {
		r.GroupInstanceId = c.instance
	}
	return r
}

func (c *commits) confirm(d due) {
	c.mu.Lock()
	d.of.confirmed = d.next
	c.mu.Unlock()
	if c.failed {
		c.logger.Info("kafkasarama: offsets are committed again", "topic", d.topic, "partition",
			d.partition)
		c.failed = false
	}
	if hook := c.observer.Committed; hook != nil {
		hook(d.topic, d.partition, d.next)
	}
}

// refused logs the first failure of a series: there is one per interval.
func (c *commits) refused(d due, err error) {
	if !c.failed {
		c.logger.Warn("kafkasarama: offset is not committed", "topic", d.topic, "partition",
			d.partition, "offset", d.next, "error", err)
		c.failed = true
	}
	if hook := c.observer.CommitFailed; hook != nil {
		hook(d.topic, d.partition, err)
	}
}

// rejoined reports whether the request was refused because it is one of a generation, or a
// member id, that the session has left behind in the meantime.
//
// In a cooperative group the coordinator counts the generation up before the member hears
// of it. sarama's Commit waits for a join that is under way, and sends nothing here. It may
// wait for a long poll, too; but what comes after is the end of the session.
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

// isMoved tells answers of a broker that does not coordinate the group.
func isMoved(code sarama.KError) bool {
	return code == sarama.ErrNotCoordinatorForConsumer ||
		code == sarama.ErrConsumerCoordinatorNotAvailable
}

// isFencing tells that the partitions of whoever gets this answer are somebody else's.
func isFencing(err error) bool {
	return errors.Is(err, sarama.ErrUnknownMemberId) ||
		errors.Is(err, sarama.ErrIllegalGeneration) || errors.Is(err, sarama.ErrFencedInstancedId)
}

// vet keeps those partitions of a request whose topics are still the ones that were assigned.
func (c *commits) vet(all []due) []due {
	if len(all) == 0 {
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
