package partition

// Murmur2 is the partition of a key by the Java client: murmur2 without its sign bit, modulo
// the count.
//
// The hash is Austin Appleby's MurmurHash2 with the seed that Kafka gives it, see
// org.apache.kafka.common.utils.Utils.murmur2.
func Murmur2(key []byte, count int32) int32 {
	if count < 1 {
		return -1
	}
	return int32(murmur2(key)&0x7fffffff) % count
}

func murmur2(b []byte) uint32 {
	const seed, m uint32 = 0x9747b28c, 0x5bd1e995
	h := seed ^ uint32(len(b))
	for ; len(b) >= 4; b = b[4:] {
		k := uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
		k *= m
		k ^= k >> 24
		h = h*m ^ k*m
	}
	if len(b) > 0 {
		var k uint32
		for i, v := range b {
			k |= uint32(v) << (8 * i)
		}
		h = (h ^ k) * m
	}
	h ^= h >> 13
	h *= m
	return h ^ h>>15
}

// FNV1a is the partition of a key by sarama's NewHashPartitioner: 32 bits of FNV-1a as a
// signed number, modulo the count, without its sign.
func FNV1a(key []byte, count int32) int32 {
	if count < 1 {
		return -1
	}
	const offset, prime uint32 = 2166136261, 16777619
	h := offset
	for _, b := range key {
		h = (h ^ uint32(b)) * prime
	}
	at := int32(h) % count
	return max(at, -at) // below count: there is no overflow
}
