package kafkasegmentio

import (
	"encoding/binary"
	"hash/crc32"
	"strconv"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/protocol/fetch"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// made is a batch as a broker keeps it: records at some offsets of those that it once had.
type made struct {
	base, last int64 // offsets
	at         []int64
	attributes int16
	producer   int64
}

func (m made) bytes() []byte {
	b := kmsg.RecordBatch{FirstOffset: m.base, Magic: 2, Attributes: m.attributes,
		LastOffsetDelta: int32(m.last - m.base), FirstTimestamp: 1000, MaxTimestamp: 9000,
		ProducerID: m.producer, ProducerEpoch: 1, NumRecords: int32(len(m.at)),
		PartitionLeaderEpoch: -1, FirstSequence: -1}
	for _, at := range m.at {
		r := kmsg.Record{OffsetDelta: int32(at - m.base), TimestampDelta64: at,
			Key: []byte("k"), Value: []byte(strconv.FormatInt(at, 10))}
		if m.attributes&control != 0 {
			r.Key = []byte{0, 0, 0, 0} // an abort
		}
		body := r.AppendTo(nil)[1:] // without the length, which is 0
		r.Length = int32(len(body))
		b.Records = r.AppendTo(b.Records)
	}
	out := b.AppendTo(nil)
	binary.BigEndian.PutUint32(out[8:], uint32(len(out)-12))
	binary.BigEndian.PutUint32(out[17:],
		crc32.Checksum(out[21:], crc32.MakeTable(crc32.Castagnoli)))
	return out
}

func answerOf(all ...made) *fetched {
	f := &fetched{Partition: 3, HighWatermark: 100}
	for _, m := range all {
		f.Batches = append(f.Batches, m.bytes()...)
	}
	return f
}

// offsets are those of the messages that are read.
func offsets(t *testing.T, f *fetched, from int64) ([]int64, int64, error) {
	t.Helper()
	messages, next, err := f.read(orders, from)
	var all []int64
	for _, m := range messages {
		all = append(all, m.Offset)
		assert.Equal(t, strconv.FormatInt(m.Offset, 10), string(m.Value))
		assert.Equal(t, int32(3), m.Partition)
	}
	return all, next, err
}

// Records that compaction leaves are read, and batches that it has emptied are passed.
func TestReadCompacted(t *testing.T) {
	f := answerOf(made{base: 10, last: 19, at: []int64{10, 14, 15}}, made{base: 20, last: 29},
		made{base: 30, last: 39, at: []int64{31}}, made{base: 40, last: 44})
	got, next, err := offsets(t, f, 14) // in the middle of a batch
	require.NoError(t, err)
	assert.Equal(t, []int64{14, 15, 31}, got)
	assert.Equal(t, int64(45), next)
	got, next, err = offsets(t, answerOf(made{base: 10, last: 19, at: []int64{10}}), 11)
	require.NoError(t, err)
	assert.Empty(t, got)
	assert.Equal(t, int64(20), next, "only messages below the offset are left of the batch")
}

// The last batch may be cut by the limit.
func TestReadCut(t *testing.T) {
	f := answerOf(made{base: 0, last: 1, at: []int64{0, 1}}, made{base: 2, last: 3, at: []int64{2}})
	whole := f.Batches
	for cut := 1; cut <= 70; cut++ {
		f.Batches = whole[:len(whole)-cut]
		got, next, err := offsets(t, f, 0)
		require.NoError(t, err)
		assert.Equal(t, []int64{0, 1}, got)
		assert.Equal(t, int64(2), next)
	}
}

// Only the messages of aborted transactions are left out, not those of other producers in between.
func TestReadAborted(t *testing.T) {
	const tx = transactional
	f := answerOf(
		made{base: 0, last: 0, at: []int64{0}, attributes: tx, producer: 1},
		made{base: 1, last: 1, at: []int64{1}, attributes: tx, producer: 2},
		made{base: 2, last: 2, at: []int64{2}, producer: 1}, // not of a transaction
		made{base: 3, last: 3, at: []int64{3}, attributes: tx | control, producer: 1},
		made{base: 4, last: 4, at: []int64{4}, attributes: tx, producer: 1}, // committed later
		made{base: 5, last: 5, at: []int64{5}, attributes: tx | control, producer: 1},
		made{base: 6, last: 7, at: []int64{6, 7}, attributes: tx, producer: 1},
		made{base: 8, last: 8, at: []int64{8}, attributes: tx | control, producer: 2},
		made{base: 9, last: 9, at: []int64{9}, attributes: tx | control, producer: 1},
		made{base: 10, last: 10, at: []int64{10}, attributes: tx, producer: 2})
	f.AbortedTransactions = []fetch.ResponseTransaction{{ProducerID: 1, FirstOffset: 6},
		{ProducerID: 2, FirstOffset: 1}, {ProducerID: 1, FirstOffset: 0}}
	got, next, err := offsets(t, f, 0)
	require.NoError(t, err)
	assert.Equal(t, []int64{2, 4, 10}, got)
	assert.Equal(t, int64(11), next)
}

// A batch that is damaged is an error, and so is a record that kafka-go would leave out. The
// records before it are read.
func TestReadDamaged(t *testing.T) {
	good := made{base: 0, last: 0, at: []int64{0}}
	bad := made{base: 1, last: 2, at: []int64{1, 2}}.bytes()
	for what, damage := range map[string]func([]byte){
		"checksum": func(b []byte) { b[len(b)-1]++ },
		"length":   func(b []byte) { binary.BigEndian.PutUint32(b[8:], 3) },
		"version":  func(b []byte) { b[16] = 9 },
		"count": func(b []byte) {
			binary.BigEndian.PutUint32(b[57:], 3)
			binary.BigEndian.PutUint32(b[17:],
				crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
		},
	} {
		f := answerOf(good)
		damaged := append([]byte{}, bad...)
		damage(damaged)
		f.Batches = append(f.Batches, damaged...)
		got, next, err := offsets(t, f, 0)
		require.ErrorIs(t, err, errBatch, what)
		assert.Equal(t, []int64{0}, got, what)
		assert.Equal(t, int64(1), next, what)
	}
}

// The broker's clock counts where the topic says so.
func TestReadTimestamps(t *testing.T) {
	messages, _, err := answerOf(made{base: 5, last: 5, at: []int64{5}}).read(orders, 0)
	require.NoError(t, err)
	assert.True(t, time.UnixMilli(1005).Equal(messages[0].Timestamp), messages[0].Timestamp)
	messages, _, err = answerOf(made{base: 5, last: 5, at: []int64{5},
		attributes: appendTime}).read(orders, 0)
	require.NoError(t, err)
	assert.True(t, time.UnixMilli(9000).Equal(messages[0].Timestamp), messages[0].Timestamp)
}

// An answer that is cut anywhere is an error, and does not panic.
func TestMetadataIsCut(t *testing.T) {
	answer := kmsg.NewMetadataResponse()
	answer.Version = uuidVersion
	broker := kmsg.NewMetadataResponseBroker()
	broker.Host = "host"
	answer.Brokers = append(answer.Brokers, broker)
	name := orders
	found := kmsg.NewMetadataResponseTopic()
	found.Topic, found.TopicID = &name, [16]byte{1, 2}
	partition := kmsg.NewMetadataResponseTopicPartition()
	partition.Replicas, partition.ISR = []int32{1, 2, 3}, []int32{1}
	found.Partitions = append(found.Partitions, partition, partition)
	answer.Topics = append(answer.Topics, found)
	whole := answer.AppendTo(nil)
	topics, err := topicsIn(whole)
	require.NoError(t, err)
	assert.Equal(t, []topic{{name: orders, uuid: [16]byte{1, 2}, partitions: 2}}, topics)
	for n := range whole[:len(whole)-5] { // without the cluster's permissions and tags
		_, err := topicsIn(whole[:n])
		require.Error(t, err, n)
	}
}
