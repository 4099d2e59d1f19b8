package dedup

import (
	"crypto/rand"
	"encoding/binary"
	chacha "math/rand/v2"

	"github.com/onceward/onceward/dedup/driver"
)

// newToken returns 128 random bits. crypto/rand.Read never fails since Go 1.24.
func newToken() driver.Token {
	var t driver.Token
	_, _ = rand.Read(t[:])
	return t
}

// randomTokens makes the tokens of a batch from one draw of the system's random bits. A draw for
// each token would cost as much as the rest of its claim. The bits are drawn for each batch: when
// a saved machine is resumed twice, the two copies must not use the same tokens.
type randomTokens struct {
	from chacha.ChaCha8
	few  bool // too few tokens to need a seed
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

func (r *randomTokens) next() (t driver.Token) {
	if r.few {
		return newToken()
	}
	binary.NativeEndian.PutUint64(t[:8], r.from.Uint64())
	binary.NativeEndian.PutUint64(t[8:], r.from.Uint64())
	return t
}
