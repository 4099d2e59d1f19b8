package kafkafranz

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// stamp writes the UUID of the topic from which the client has fetched into a commit. Below version
// 10 OffsetCommit identifies a topic by its name alone, and so does OffsetFetch:
//
//  1. A handler of the old topic ends, and offset 200 is to be committed.
//  2. The topic is deleted, and another one is created under its name.
//  3. The commit sets the new topic's offset to 200.
//
// The next member that is assigned the partition learns that from the stamp: see begins.
func stamp(topic *kmsg.OffsetCommitRequestTopic) {
	stamped := kafkadriver.Stamp(kafkadriver.TopicID(topic.TopicID))
	if stamped == "" {
		return // the broker does not say
	}
	for i := range topic.Partitions {
		topic.Partitions[i].Metadata = &stamped
	}
}

// begins finds the partitions whose offset was committed for a topic that has been deleted since.
// They begin at the start of their log. It serves one client, which fetches one assignment at a
// time.
type begins struct {
	report  func(error)
	anew    map[topicPartition]bool // of the assignment that is being fetched
	uuidsOf func(context.Context, *kgo.Client, []string) (map[string][16]byte, error)
}

// fetched compares the stamps of committed offsets with the topics that have these names now. After
// an error the client joins again.
func (b *begins) fetched(ctx context.Context, client *kgo.Client,
	answer *kmsg.OffsetFetchResponse) error {
	b.anew = make(map[topicPartition]bool)
	stamped := stampsOf(answer)
	if len(stamped) == 0 {
		return nil
	}
	topics := make([]string, 0, len(stamped))
	for topic := range stamped {
		topics = append(topics, topic)
	}
	uuids, err := b.uuidsOf(ctx, client, topics)
	if err != nil {
		return fmt.Errorf("kafkafranz: topics of the committed offsets cannot be looked up: %w", err)
	}
	for topic, partitions := range stamped {
		now := kafkadriver.TopicID(uuids[topic])
		for partition, uuid := range partitions {
			if now != "" && uuid != now {
				b.anew[topicPartition{topic, partition}] = true
				b.report(fmt.Errorf("%w: the offset of partition %d was committed for UUID %s",
					topicGone(topic), partition, uuid))
			}
		}
	}
	return nil
}

// adjust is called after fetched, for the same assignment.
func (b *begins) adjust(_ context.Context,
	offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	for at := range b.anew {
		if _, assigned := offsets[at.topic][at.partition]; assigned {
			offsets[at.topic][at.partition] = kgo.NewOffset().AtStart()
		}
	}
	return offsets, nil
}

// stampsOf returns the UUIDs in the metadata of committed offsets. It reads Groups, because the
// client has resolved the topics' names there.
func stampsOf(answer *kmsg.OffsetFetchResponse) map[string]map[int32]string {
	all := make(map[string]map[int32]string)
	for _, group := range answer.Groups {
		for _, topic := range group.Topics {
			for _, p := range topic.Partitions {
				if p.Metadata == nil || p.Offset < 0 || kafkadriver.Stamped(*p.Metadata) == "" {
					continue
				}
				if all[topic.Topic] == nil {
					all[topic.Topic] = make(map[int32]string)
				}
				all[topic.Topic][p.Partition] = kafkadriver.Stamped(*p.Metadata)
			}
		}
	}
	return all
}

// uuidsOf asks for the UUIDs that topics have now. A topic that does not exist has no UUID, and
// brokers before 2.8 report none.
func uuidsOf(ctx context.Context, client *kgo.Client,
	topics []string) (map[string][16]byte, error) {
	answer, err := lookUp(ctx, client, topics)
	if err != nil {
		return nil, err
	}
	uuids := make(map[string][16]byte, len(topics))
	for _, t := range answer {
		switch err := kerr.ErrorForCode(t.ErrorCode); {
		case err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition):
			return nil, err
		case t.Topic != nil:
			uuids[*t.Topic] = t.TopicID
		}
	}
	return uuids, nil
}

// lookUp asks a broker for topics, for a bounded time.
func lookUp(ctx context.Context, client *kgo.Client, topics []string) ([]kmsg.MetadataResponseTopic,
	error) {
	ctx, cancel := context.WithTimeout(ctx, lookPatience)
	defer cancel()
	answer, err := metadataOf(topics).RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	return answer.Topics, nil
}

// metadataOf is a question about topics, which creates none.
func metadataOf(topics []string) *kmsg.MetadataRequest {
	request := kmsg.NewPtrMetadataRequest()
	request.Topics = []kmsg.MetadataRequestTopic{} // nil means all topics
	for _, topic := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &topic
		request.Topics = append(request.Topics, t)
	}
	return request
}
