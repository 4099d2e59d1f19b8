package bloom

import (
	"encoding/binary"
	"math/bits"
)

// secret is a key of SipHash as its two words.
type secret struct{ k0, k1 uint64 }

// digest is what SipHash makes of an id: the first word chooses the block, the second its bits.
type digest struct{ block, bits uint64 }

func newSecret(key []byte) secret {
	return secret{k0: binary.LittleEndian.Uint64(key), k1: binary.LittleEndian.Uint64(key[8:])}
}

// sipState is the state of SipHash-2-4 (Aumasson and Bernstein, "SipHash: a fast short-input PRF").
type sipState struct{ v0, v1, v2, v3 uint64 }

// sipRound is small enough to be inlined.
func sipRound(v0, v1, v2, v3 uint64) (uint64, uint64, uint64, uint64) {
	v0 += v1
	v1 = bits.RotateLeft64(v1, 13) ^ v0
	v0 = bits.RotateLeft64(v0, 32)
	v2 += v3
	v3 = bits.RotateLeft64(v3, 16) ^ v2
	v0 += v3
	v3 = bits.RotateLeft64(v3, 21) ^ v0
	v2 += v1
	v1 = bits.RotateLeft64(v1, 17) ^ v2
	v2 = bits.RotateLeft64(v2, 32)
	return v0, v1, v2, v3
}

func (s *sipState) round() { s.v0, s.v1, s.v2, s.v3 = sipRound(s.v0, s.v1, s.v2, s.v3) }

func (s *sipState) word(m uint64) {
	s.v3 ^= m
	s.round()
	s.round()
	s.v0 ^= m
}

func (s *sipState) finish() uint64 {
	s.round()
	s.round()
	s.round()
	s.round()
	return s.v0 ^ s.v1 ^ s.v2 ^ s.v3
}

func (k secret) start() sipState {
	return sipState{
		v0: k.k0 ^ 0x736f6d6570736575, v1: k.k1 ^ 0x646f72616e646f6d ^ 0xee,
		v2: k.k0 ^ 0x6c7967656e657261, v3: k.k1 ^ 0x7465646279746573,
	}
}

// end adds the last word, which holds the length and the bytes that make no whole word.
func (s *sipState) end(last uint64) digest {
	s.word(last)
	s.v2 ^= 0xee
	first := s.finish()
	s.v1 ^= 0xdd
	return digest{block: first, bits: s.finish()}
}

// id returns the SipHash-2-4 of the 16 bytes of an id, with 128 bits of output. The state is four
// variables, and the compiler inlines the rounds. So the state stays in registers, which makes id
// twice as fast as sum.
func (k secret) id(id [16]byte) digest {
	m0, m1 := binary.LittleEndian.Uint64(id[:8]), binary.LittleEndian.Uint64(id[8:])
	s := k.start()
	v0, v1, v2, v3 := s.v0, s.v1, s.v2, s.v3^m0
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0, v3 = v0^m0, v3^m1
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0, v3 = v0^m1, v3^16<<56
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0, v2 = v0^16<<56, v2^0xee
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	first := v0 ^ v1 ^ v2 ^ v3
	v1 ^= 0xdd
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	return digest{block: first, bits: v0 ^ v1 ^ v2 ^ v3}
}

// sum returns the same hash of any bytes.
func (k secret) sum(p []byte) digest {
	s := k.start()
	last := uint64(len(p)) << 56
	for ; len(p) >= 8; p = p[8:] {
		s.word(binary.LittleEndian.Uint64(p))
	}
	for i, b := range p {
		last |= uint64(b) << (8 * i)
	}
	return s.end(last)
}
