package txn

import (
	"errors"

	"github.com/IBM/sarama"
)

// producer has the methods of a transactional sarama.SyncProducer that are used.
type producer interface {
	BeginTxn() error
	SendMessages(msgs []*sarama.ProducerMessage) error
	AddOffsetsToTxnWithGroupMetadata(offsets map[string][]*sarama.PartitionOffsetMetadata,
		group *sarama.ConsumerGroupMetadata) error
	CommitTxn() error
	AbortTxn() error
	TxnStatus() sarama.ProducerTxnStatusFlag
	Close() error
}

// broker is the part of the cluster that a claim uses besides producing. No method takes a context,
// because sarama's do not.
type broker interface {
	// member returns an error that isStale recognizes when the group does not have this member in
	// this generation (any more), and nil when it does.
	member(m *sarama.ConsumerGroupMetadata) error
	// producer makes a producer. When it returns, every transaction that an older producer of its
	// transactional id had begun is decided: InitProducerId aborts an open one, waits for one that
	// is being committed, and fences later ones.
	producer() (producer, error)
	// committed is the offset up to which the group has processed a partition, -1 for
	// none, and its metadata. It fails while a transaction with an offset of the partition is
	// open.
	committed(topic string, partition int32) (offset int64, metadata string, err error)
	// topic is the UUID of the topic that has this name now, empty where it is not known. A topic
	// that does not exist is an error.
	topic(name string) (uuid string, err error)
	// oldest is the first offset of a partition's log.
	oldest(topic string, partition int32) (int64, error)
	close()
}

// cluster is a broker that is connected.
type cluster struct {
	client sarama.Client
	group  string
}

// connect makes a claim's client. Its configuration carries the transactional id.
func connect(brokers []string, cfg *sarama.Config, group string) (broker, error) {
	client, err := sarama.NewClient(brokers, cfg)
	if err != nil {
		return nil, err
	}
	return &cluster{client: client, group: group}, nil
}

func (c *cluster) close() { _ = c.client.Close() }

func (c *cluster) producer() (producer, error) { return sarama.NewSyncProducerFromClient(c.client) }

// member sends a heartbeat, as franz-go does before it commits. It counts like sarama's own
// heartbeat.
func (c *cluster) member(m *sarama.ConsumerGroupMetadata) error {
	return c.ask(func(b *sarama.Broker) error {
		resp, err := b.Heartbeat(&sarama.HeartbeatRequest{
			Version: 4, GroupId: c.group, MemberId: m.MemberID, GenerationId: m.GenerationID,
			GroupInstanceId: m.GroupInstanceID,
		})
		switch {
		case err != nil:
			return err
		case resp.Err == sarama.ErrNoError, resp.Err == sarama.ErrRebalanceInProgress:
			return nil // until the rebalance is complete the generation is the current one
		default:
			return resp.Err
		}
	})
}

func (c *cluster) committed(topic string, partition int32) (offset int64, metadata string,
	err error) {
	err = c.ask(func(b *sarama.Broker) error {
		req := sarama.NewOffsetFetchRequest(c.client.Config().Version, c.group,
			map[string][]int32{topic: {partition}})
		req.RequireStable = true
		resp, err := b.FetchOffset(req)
		if err != nil {
			return err
		}
		if e := resp.GroupError(); e != sarama.ErrNoError {
			return e
		}
		block := resp.GetBlock(topic, partition)
		switch {
		case block == nil:
			return sarama.ErrIncompleteResponse
		case block.Err != sarama.ErrNoError:
			return block.Err
		}
		offset, metadata = block.Offset, block.Metadata
		return nil
	})
	return offset, metadata, err
}

// ask sends a request to the group's coordinator. After an error that another coordinator may not
// answer with, the next request looks the coordinator up again. The caller must repeat the request.
func (c *cluster) ask(f func(*sarama.Broker) error) error {
	coordinator, err := c.client.Coordinator(c.group)
	if err != nil {
		return err
	}
	err = f(coordinator)
	var answer sarama.KError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &answer):
		_ = coordinator.Close() // the connection cannot be used any more
		_ = c.client.RefreshCoordinator(c.group)
	case errors.Is(err, sarama.ErrNotCoordinatorForConsumer),
		errors.Is(err, sarama.ErrConsumerCoordinatorNotAvailable):
		_ = c.client.RefreshCoordinator(c.group)
	}
	return err
}
