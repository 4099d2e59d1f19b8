package dedup

import (
	"encoding/binary"
	"math/rand/v2"
)

// randomTokens makes the tokens of a batch from one draw of the system's random bits, which
// for each of them is as dear as all the rest. The bits are drawn for each batch: when a
// machine was saved and is woken twice, the two must not go on with the same tokens.
type randomTokens struct {
	from rand.ChaCha8
	few  bool // for which a seed does not pay
}

func (r *randomTokens) seed(n int) {
	if r.few = n < 8; r.few {
		return
	}
	var seed [32]byte
	one, two := newToken(), newToken()
	copy(seed[:], one[:])
	copy(seed[len(one):], two[:])
	r.from.Seed(seed)
}

func (r *randomTokens) next() (t Token) {
	if r.few {
		return newToken()
	}
	binary.NativeEndian.PutUint64(t[:8], r.from.Uint64())
	binary.NativeEndian.PutUint64(t[8:], r.from.Uint64())
	return t
}
