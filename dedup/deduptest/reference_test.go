package deduptest

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// TestResentClaims: if the client may send a claim again by itself, the first answer may be Mine.
// With any other client such an answer is wrong. Another owner's claim is never Mine.
func TestResentClaims(t *testing.T) {
	mine := driver.ClaimRequest{Token: driver.Token{1}}
	first := driver.Answer{Outcome: dedup.Acquired, Mine: true,
		Record: dedup.Record{State: driver.StateInProgress, Attempt: 1, Fence: 7, Remaining: long}}
	for _, resent := range []bool{false, true} {
		r := reference{resent: resent}
		assert.Equal(t, resent, r.claim(mine, first) == nil, "sent again")
	}
	r := reference{resent: true, state: driver.StateInProgress, token: driver.Token{2},
		attempt: 1, fence: 7}
	assert.Error(t, r.claim(mine, first), "another's claim may be Mine")
	r.expire()
	assert.NoError(t, r.claim(mine, first), "the client sends again after a key was forgotten, too")
}
