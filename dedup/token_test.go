package dedup

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// No token is given out twice: not in a batch, small or large, and not in the next one that
// uses the same generator.
func TestRandomTokensDiffer(t *testing.T) {
	seen := map[Token]bool{{}: true}
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
