package kafkaadapter

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/IBM/sarama"
)

// Misplaced is called for messages that lie elsewhere than their key says, and for no others;
// before they are claimed, and before they are recorded.
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
			owned(t, row.partitions, nil, func(o *fakeOwner, c *Config) {
				o.isForeign(row.foreign...)
				o.r.group.finished = nil
				c.Park = func(context.Context, *Message, error) error { return nil }
				c.AllowNoID = true
			}, func(r *rig, o *fakeOwner) {
				r.group.add(row.messages...)
				r.after(time.Second)
				told := o.misplaced(0) + o.misplaced(1)
				if want := len(row.foreign) > 0; (told > 0) != want {
					t.Errorf("told %d times of %d foreign keys", told, len(row.foreign))
				}
				for p := range row.partitions {
					if at := r.a.Progress()[p]; at.Unfinished > 0 {
						t.Errorf("partition %d: %+v", p, at)
					}
				}
			})
		})
	}
}

// What finds no room among what is claimed ahead is asked about by the lanes, and placed there.
func TestOwnTellsWhatIsMisplacedInItsTurn(t *testing.T) {
	here, there := keysOf(0, 2, 1)[0], keysOf(1, 2, 1)[0]
	handler := func(context.Context, *Message) error {
		<-time.After(time.Second)
		return nil
	}
	owned(t, 2, handler, func(o *fakeOwner, c *Config) {
		c.ClaimAhead, c.Workers, c.BatchMax = 1, 1, 2
		o.isForeign("foreign")
	}, func(r *rig, o *fakeOwner) {
		for i := range 6 {
			r.group.add(keyed(0, fmt.Sprint("id", i), here))
		}
		r.after(time.Second)
		r.group.add(keyed(0, "foreign", there))
		if told := o.misplaced(0); told > 0 {
			t.Errorf("told %d times of nothing", told)
		}
		o.times(func() int { o.deaf = 3; return 0 })
		r.after(time.Minute)
		r.wantRuns("foreign", 1)
		r.wantCommitted(7)
	})
}

// While nobody can be told, a message that is misplaced is neither claimed nor recorded, and
// its effect is not had again.
func TestOwnCannotTellWhatIsMisplaced(t *testing.T) {
	there := keysOf(1, 2, 1)[0]
	var o *fakeOwner
	deaf := func(n int) { o.times(func() int { o.deaf = n; return 0 }) }
	handler := func(context.Context, *Message) error {
		<-time.After(time.Second)
		deaf(5)
		return nil
	}
	owned(t, 2, handler, func(owner *fakeOwner, _ *Config) {
		o = owner
		o.isForeign("x")
		o.deaf = 1000
	}, func(r *rig, _ *fakeOwner) {
		r.group.add(keyed(0, "x", there))
		r.after(time.Minute)
		r.wantRuns("x", 0)
		if at := r.a.Progress()[0]; !at.StoreDown || at.NotOwned {
			t.Errorf("progress: %+v", at)
		}
		deaf(0)
		r.after(4 * time.Second)
		r.wantRuns("x", 1)
		r.after(time.Minute)
		r.wantRuns("x", 1)
		r.wantCommitted(1)
	})
}

// Partitions were added: the next assignment counts them, and keys have moved.
func TestOwnCountsAgain(t *testing.T) {
	moves := ""
	for _, key := range keysOf(0, 2, 20) { // at home among two, elsewhere among three
		if Murmur2([]byte(key), 3) != 0 {
			moves = key
		}
	}
	owned(t, 2, nil, nil, func(r *rig, o *fakeOwner) {
		r.group.add(keyed(0, "a", moves))
		r.after(time.Second)
		if told := o.misplaced(0); told > 0 {
			t.Errorf("told %d times of nothing", told)
		}
		r.group.change(func() { r.coordinator.more = 1 })
		r.group.rebalance()
		r.after(time.Second)
		o.isForeign("b")
		r.group.add(keyed(0, "b", moves))
		r.after(time.Second)
		r.wantRuns("b", 1)
		if asked := o.askedFor(0); len(asked) != 2 || asked[1].Count != 3 ||
			asked[1].Generation != 2 {
			t.Errorf("asked for %+v", asked)
		}
		o.wantReleasedSoFar(0, 1)
	})
}

// The vectors are those of the clients themselves: UtilsTest.testMurmur2 of Apache Kafka,
// TestMurmur2Partitioner of sarama, which were taken from the Java client.
func TestMurmur2(t *testing.T) {
	const all = 1<<31 - 1 // no partitions: the hash itself, but for its sign
	for key, hash := range map[string]int32{
		"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536,
		"a-little-bit-longer-string":                       -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971, "abc": 479470107,
		"": 275646681,
	} {
		if got := Murmur2([]byte(key), all); got != hash&0x7fffffff {
			t.Errorf("%q: %d, want %d", key, got, hash&0x7fffffff)
		}
	}
	for key, want := range map[string]int32{"foo": 16, "bar": 45, "baz": 80, "kafka": 80,
		"sarama": 11} {
		if got := Murmur2([]byte(key), 100); got != want {
			t.Errorf("%q is put into partition %d of 100, want %d", key, got, want)
		}
	}
	likeSarama(t, Murmur2, sarama.NewMurmur2Partitioner(topic))
}

// The vectors are those of librdkafka's unittest_fnv1a, whose partitioner is sarama's default,
// and of sarama's own test of the smallest hash there is.
func TestFNV1a(t *testing.T) {
	const all = 1<<31 - 1
	for key, want := range map[string]int32{
		"kafka": 0xd33c4e1, "giberish123456789": 0x77a58295, "1234": 0x23bdd03, "234": 0x2dea3cd2,
		"34": 0x740fa83e, "4": 0x310ca263,
		"PreAmbleWillBeRemoved,ThePrePartThatIs": 0x65cbd69c, "": 0x7ee3623b,
	} {
		if got := FNV1a([]byte(key), all); got != want {
			t.Errorf("%q: %#x, want %#x", key, got, want)
		}
	}
	if got := FNV1a([]byte("1468509572224"), 50); got != 48 { // 2^31 modulo 50
		t.Errorf("the smallest hash: %d", got)
	}
	likeSarama(t, FNV1a, sarama.NewHashPartitioner(topic))
}

// likeSarama requires of random keys that a partitioner puts them where sarama's does.
func likeSarama(t *testing.T, ours func([]byte, int32) int32, theirs sarama.Partitioner) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(1, 2)) // a test
	for n := range 5000 {
		key := make([]byte, n%40)
		for i := range key {
			key[i] = byte(rnd.Uint32())
		}
		count := 1 + rnd.Int32N(1000)
		want, err := theirs.Partition(&sarama.ProducerMessage{Key: sarama.ByteEncoder(key)}, count)
		if got := ours(key, count); err != nil || got != want {
			t.Fatalf("%s among %d: %d, want %d (%v)", hex.EncodeToString(key),
				count, got, want, err)
		}
	}
	if got := ours([]byte("x"), 0); got >= 0 {
		t.Errorf("%d among none", got)
	}
}
