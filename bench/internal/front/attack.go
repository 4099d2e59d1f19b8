package front

import (
	"encoding/binary"
	"math/bits"
)

// spot is where an id has its bits in a generation: what an attacker who knows the secret computes,
// for package bloom is no secret. It is SipHash-2-4 with 128 bits of output, written from the paper.
type spot struct{ block, bits uint64 }

func spotOf(secret, id [16]byte, blocks uint64) spot {
	word := binary.LittleEndian.Uint64
	k0, k1 := word(secret[:]), word(secret[8:])
	v := [4]uint64{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d ^ 0xee, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573}
	for _, m := range []uint64{word(id[:]), word(id[8:]), 16 << 56} {
		v[3] ^= m
		rounds(&v, 2)
		v[0] ^= m
	}
	v[2] ^= 0xee
	rounds(&v, 4)
	first := v[0] ^ v[1] ^ v[2] ^ v[3]
	v[1] ^= 0xdd
	rounds(&v, 4)
	block, _ := bits.Mul64(first, blocks)
	return spot{block: block, bits: v[0] ^ v[1] ^ v[2] ^ v[3]}
}

func rounds(v *[4]uint64, n int) {
	for range n {
		v[0] += v[1]
		v[2] += v[3]
		v[1], v[3] = bits.RotateLeft64(v[1], 13)^v[0], bits.RotateLeft64(v[3], 16)^v[2]
		v[0] = bits.RotateLeft64(v[0], 32)
		v[2] += v[1]
		v[0] += v[3]
		v[1], v[3] = bits.RotateLeft64(v[1], 17)^v[2], bits.RotateLeft64(v[3], 21)^v[0]
		v[2] = bits.RotateLeft64(v[2], 32)
	}
}

// shared is the set of words in which two ids of one block have the same bit.
func (s spot) shared(other spot) (words uint8) {
	for i := range 8 {
		if s.block == other.block && (s.bits^other.bits)>>(6*i)&63 == 0 {
			words |= 1 << i
		}
	}
	return words
}

// craft searches ids that together set all bits of victim in a generation of so many blocks, each of
// them at least one more.
func craft(secret, victim [16]byte, blocks, from uint64) (ids [][16]byte) {
	target, have := spotOf(secret, victim, blocks), uint8(0)
	for n := from; have != 0xff; n++ {
		more := spotOf(secret, id(n), blocks).shared(target)
		if more&^have != 0 {
			have |= more
			ids = append(ids, id(n))
		}
	}
	return ids
}
