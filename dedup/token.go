package dedup

import (
	"encoding/binary"
	"math/rand/v2"
)

// randomTokens makes the tokens of a batch from one draw of the system's random bits, which
// for each of them is as dear as all the rest. The bits are drawn for each batch: when a
// machine was saved and is woken twice, the two must not go on with the same tokens.
type randomTokens struct{ from rand.ChaCha8 }

func (r *randomTokens) seed() {
	var seed [32]byte
	one, two := newToken(), newToken()
	copy(seed[:], one[:])
	copy(seed[len(one):], two[:])
	r.from.Seed(seed)
}

func (r *randomTokens) next() (t Token) {
	binary.NativeEndian.PutUint64(t[:8], r.from.Uint64())
	binary.NativeEndian.PutUint64(t[8:], r.from.Uint64())
	return t
}
