package dedup

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup/driver"
)

// No token is given out twice: not in a batch, small or large, and not in the next one that
// uses the same generator.
func TestRandomTokensDiffer(t *testing.T) {
	seen := map[driver.Token]bool{{}: true}
	var tokens randomTokens
	for _, n := range []int{1, 7, 8, 256, 8, 1024, 2} {
		tokens.seed(n)
		for range n {
			token := tokens.next()
			require.False(t, seen[token], "of %d: %x twice", n, token)
			seen[token] = true
		}
	}
}

func TestTokensDiffer(t *testing.T) {
	seen := map[driver.Token]bool{}
	for range 1000 {
		seen[newToken()] = true
	}
	require.Len(t, seen, 1000)
	assert.False(t, seen[driver.Token{}], "%d tokens of 1000", len(seen))
}
