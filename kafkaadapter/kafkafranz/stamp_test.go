package kafkafranz

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// byName makes the client commit as with brokers before Apache Kafka 4.2: for the topic that has
// the name when the commit arrives.
func byName() kgo.Opt {
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(int16(kmsg.OffsetCommit), 9)
	versions.SetMaxKeyVersion(int16(kmsg.OffsetFetch), 9)
	return kgo.MaxVersions(versions)
}

// If topics cannot be looked up, the client joins again: it could skip messages if it began at an
// offset that was not checked.
func TestOffsetsAreNotTrustedWithoutALook(t *testing.T) {
	stamped := kafkadriver.Stamp(kafkadriver.TopicID([16]byte{1}))
	answer := kmsg.NewPtrOffsetFetchResponse()
	answer.Groups = []kmsg.OffsetFetchResponseGroup{{Topics: []kmsg.OffsetFetchResponseGroupTopic{{
		Topic: orders, Partitions: []kmsg.OffsetFetchResponseGroupTopicPartition{{Partition: 3,
			Offset: 7, Metadata: &stamped}},
	}}}}
	down := errors.New("down")
	var told []error
	b := &begins{
		report: func(err error) { told = append(told, err) },
		uuidsOf: func(context.Context, *kgo.Client, []string) (map[string][16]byte, error) {
			return nil, down
		},
	}
	require.ErrorIs(t, b.fetched(t.Context(), nil, answer), down)

	b.uuidsOf = func(context.Context, *kgo.Client, []string) (map[string][16]byte, error) {
		return map[string][16]byte{}, nil
	}
	require.NoError(t, b.fetched(t.Context(), nil, answer))
	assert.Empty(t, b.anew, "nobody knows the topic's UUID")
	assert.Empty(t, told)

	b.uuidsOf = func(context.Context, *kgo.Client, []string) (map[string][16]byte, error) {
		return map[string][16]byte{orders: {2}}, nil
	}
	require.NoError(t, b.fetched(t.Context(), nil, answer))
	require.Len(t, told, 1)
	require.ErrorIs(t, told[0], kafkaadapter.ErrTopicRecreated)
	offsets, err := b.adjust(t.Context(),
		map[string]map[int32]kgo.Offset{orders: {3: kgo.NewOffset().At(7),
			4: kgo.NewOffset().At(9)}})
	require.NoError(t, err)
	assert.Equal(t, map[int32]kgo.Offset{3: kgo.NewOffset().AtStart(), 4: kgo.NewOffset().At(9)},
		offsets[orders])
}
