package kafkaadapter

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

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
		assert.Equal(t, hash&0x7fffffff, Murmur2([]byte(key), all), key)
	}
	for key, want := range map[string]int32{"foo": 16, "bar": 45, "baz": 80, "kafka": 80,
		"sarama": 11} {
		assert.Equal(t, want, Murmur2([]byte(key), 100), "the partition of %q among 100", key)
	}
	assert.Negative(t, Murmur2([]byte("x"), 0), "a partition among none")
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
		assert.Equal(t, want, FNV1a([]byte(key), all), key)
	}
	assert.EqualValues(t, 48, FNV1a([]byte("1468509572224"), 50), "2^31 modulo 50")
	assert.Negative(t, FNV1a([]byte("x"), 0), "a partition among none")
}
