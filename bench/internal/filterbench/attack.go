package filterbench

import (
	"encoding/binary"
	"math/bits"

	"github.com/dchest/siphash"
)

// positions is where an id has its bits in a generation. An attacker who knows the secret computes
// it, because the source of package bloom is public.
type positions struct{ block, bits uint64 }

func positionsOf(secret, id [16]byte, blocks uint64) positions {
	first, second := siphash.Hash128(binary.LittleEndian.Uint64(secret[:]),
		binary.LittleEndian.Uint64(secret[8:]), id[:])
	block, _ := bits.Mul64(first, blocks)
	return positions{block: block, bits: second}
}

// shared is the set of words in which two ids of one block have the same bit.
func (s positions) shared(other positions) (words uint8) {
	for i := range 8 {
		if s.block == other.block && (s.bits^other.bits)>>(6*i)&63 == 0 {
			words |= 1 << i
		}
	}
	return words
}

// craft searches ids that together set all bits of victim in a generation of so many blocks, each
// of them at least one more.
func craft(secret, victim [16]byte, blocks, from uint64) (ids [][16]byte) {
	target, have := positionsOf(secret, victim, blocks), uint8(0)
	for n := from; have != 0xff; n++ {
		more := positionsOf(secret, id(n), blocks).shared(target)
		if more&^have != 0 {
			have |= more
			ids = append(ids, id(n))
		}
	}
	return ids
}
