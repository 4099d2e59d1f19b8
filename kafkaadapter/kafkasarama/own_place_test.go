package kafkasarama

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/kafkaadapter"
)

// Misplaced is called for messages outside the partition of their key, and for no others. It is
// called before they are claimed, and again before they are recorded.
func TestOwnTellsWhatIsMisplaced(t *testing.T) {
	here, there := keysOf(0, 2, 3), keysOf(1, 2, 3)
	empty := func(p int32) *sarama.ConsumerMessage { // Murmur2 of nothing is odd
		m := keyed(p, "empty", "")
		m.Key = []byte{}
		return m
	}
	nobody := keyed(0, "", there[0])
	nobody.Headers = nil
	for name, row := range map[string]struct {
		partitions int32
		messages   []*sarama.ConsumerMessage
		foreign    []string
	}{
		"all at home": {2, []*sarama.ConsumerMessage{keyed(0, "a", here[0]),
			keyed(0, "b", here[1]), keyed(1, "c", there[0])}, nil},
		"one elsewhere": {2, []*sarama.ConsumerMessage{keyed(0, "a", here[0]),
			keyed(0, "b", there[0]), keyed(0, "c", here[2])}, []string{"b"}},
		"without a key": {2, []*sarama.ConsumerMessage{keyed(0, "a", "")}, []string{"a"}},
		"the only partition": {1,
			[]*sarama.ConsumerMessage{keyed(0, "a", ""), keyed(0, "b", there[0])}, nil},
		"empty key at home":     {2, []*sarama.ConsumerMessage{empty(1)}, nil},
		"empty key elsewhere":   {2, []*sarama.ConsumerMessage{empty(0)}, []string{"empty"}},
		"not to be asked about": {2, []*sarama.ConsumerMessage{nobody}, nil},
		"in the other partition": {2, []*sarama.ConsumerMessage{keyed(1, "a", here[0])},
			[]string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			owned(t, row.partitions, nil, func(o *fakeOwner, c *kafkaadapter.Config) {
				o.markForeign(row.foreign...)
				o.r.group.finished = nil
				c.Park = func(context.Context, *kafkaadapter.Message, error) error { return nil }
				c.Allow.NoID = true
			}, func(r *rig, o *fakeOwner) {
				r.group.add(row.messages...)
				r.after(time.Second)
				told := o.misplaced(0) + o.misplaced(1)
				assert.Equal(t, len(row.foreign) > 0, told > 0, "told %d times", told)
				for p := range row.partitions {
					assert.Zero(t, r.consumer.Progress()[p].Unfinished, "partition %d", p)
				}
			})
		})
	}
}

// A message that cannot be claimed ahead is claimed by the queues, which check its partition then.
func TestOwnTellsWhatIsMisplacedInItsTurn(t *testing.T) {
	here, there := keysOf(0, 2, 1)[0], keysOf(1, 2, 1)[0]
	handler := func(context.Context, *kafkaadapter.Message) error {
		<-time.After(time.Second)
		return nil
	}
	owned(t, 2, handler, func(o *fakeOwner, c *kafkaadapter.Config) {
		c.Tuning.ClaimAhead, c.Tuning.Workers, c.Tuning.BatchMax = 1, 1, 2
		o.markForeign("foreign")
	}, func(r *rig, o *fakeOwner) {
		for i := range 6 {
			r.group.add(keyed(0, fmt.Sprint("id", i), here))
		}
		r.after(time.Second)
		r.group.add(keyed(0, "foreign", there))
		assert.Zero(t, o.misplaced(0), "told of nothing")
		o.times(func() int { o.deaf = 3; return 0 })
		r.after(time.Minute)
		r.wantRuns("foreign", 1)
		r.wantCommitted(7)
	})
}

// While Misplaced fails, a misplaced message is neither claimed nor recorded, and does not run
// again.
func TestOwnCannotTellWhatIsMisplaced(t *testing.T) {
	there := keysOf(1, 2, 1)[0]
	var o *fakeOwner
	deaf := func(n int) { o.times(func() int { o.deaf = n; return 0 }) }
	handler := func(context.Context, *kafkaadapter.Message) error {
		<-time.After(time.Second)
		deaf(5)
		return nil
	}
	owned(t, 2, handler, func(owner *fakeOwner, _ *kafkaadapter.Config) {
		o = owner
		o.markForeign("x")
		o.deaf = 1000
	}, func(r *rig, _ *fakeOwner) {
		r.group.add(keyed(0, "x", there))
		r.after(time.Minute)
		r.wantRuns("x", 0)
		at := r.consumer.Progress()[0]
		assert.True(t, at.StoreDown && !at.NotOwned, "%+v", at)
		deaf(0)
		r.after(4 * time.Second)
		r.wantRuns("x", 1)
		r.after(time.Minute)
		r.wantRuns("x", 1)
		r.wantCommitted(1)
	})
}

// After partitions were added, the next assignment counts them, and keys have moved.
func TestOwnCountsAgain(t *testing.T) {
	moves := ""
	for _, key := range keysOf(0, 2, 20) { // at home among two, elsewhere among three
		if kafkaadapter.Murmur2([]byte(key), 3) != 0 {
			moves = key
		}
	}
	owned(t, 2, nil, nil, func(r *rig, o *fakeOwner) {
		r.group.add(keyed(0, "a", moves))
		r.after(time.Second)
		assert.Zero(t, o.misplaced(0), "told of nothing")
		r.group.change(func() { r.coordinator.more = 1 })
		r.group.rebalance()
		r.after(time.Second)
		o.markForeign("b")
		r.group.add(keyed(0, "b", moves))
		r.after(time.Second)
		r.wantRuns("b", 1)
		require.Len(r.t, o.askedFor(0), 2)
		assert.EqualValues(t, 3, o.askedFor(0)[1].Count)
		assert.EqualValues(t, 2, o.askedFor(0)[1].Generation)
		o.wantReleasedSoFar(0, 1)
	})
}

// Random keys are put where sarama's partitioners put them.
func TestPartitionersAreSaramas(t *testing.T) {
	for _, c := range []struct {
		name   string
		ours   func([]byte, int32) int32
		theirs sarama.Partitioner
	}{
		{"Murmur2", kafkaadapter.Murmur2, sarama.NewMurmur2Partitioner(topic)},
		{"FNV1a", kafkaadapter.FNV1a, sarama.NewHashPartitioner(topic)},
	} {
		rnd := rand.New(rand.NewPCG(1, 2)) // a test
		for n := range 5000 {
			key := make([]byte, n%40)
			for i := range key {
				key[i] = byte(rnd.Uint32())
			}
			count := 1 + rnd.Int32N(1000)
			want, err := c.theirs.Partition(&sarama.ProducerMessage{Key: sarama.ByteEncoder(key)},
				count)
			require.NoError(t, err)
			require.Equal(t, want, c.ours(key, count), "%s of %x among %d", c.name, key, count)
		}
	}
}
