package deduptest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/deduptest"
	"github.com/onceward/onceward/dedup/driver"
)

const messages = 1000

// twoOfThree loses the reply of the first of every three claims or ends, and the request of the
// second. So a caller succeeds with its third try, although its first one was executed.
func twoOfThree(call deduptest.Call) deduptest.Fault {
	if call.Op == deduptest.OpClaim || call.Op == deduptest.OpFinish {
		switch call.Number % 3 {
		case 1:
			return deduptest.Fault{Kind: deduptest.DropReply}
		case 2:
			return deduptest.Fault{Kind: deduptest.DropRequest}
		}
	}
	return deduptest.Fault{}
}

// lossy sends each message twice through a Deduper over a store whose calls fail twice in three. It
// returns how many effects did not run exactly once, and how many calls got ErrInFlight, although
// there is no other owner.
func lossy(t *testing.T, bend func(dedup.Store) dedup.Store) (wrong, foreign int) {
	t.Helper()
	faulty := deduptest.NewFaulty(dedup.Memory(messages), twoOfThree)
	d, err := dedup.New(bend(faulty),
		dedup.Config{Namespace: "lossy", Window: time.Hour, LeaseTTL: 30 * time.Second})
	require.NoError(t, err)
	for i := range messages {
		runs := 0
		for range 2 {
			_, err := dedup.Do(t.Context(), d, fmt.Sprintf("evt_%d", i),
				func(context.Context) (string, error) {
					runs++
					return "ok", nil
				})
			if errors.Is(err, dedup.ErrInFlight) {
				foreign++
			}
		}
		if runs != 1 {
			wrong++
		}
	}
	stats := faulty.Stats()
	assert.GreaterOrEqual(t, stats.LostReplies, messages, "too little was lost to prove anything")
	return wrong, foreign
}

// When the reply is lost after the store has executed the claim, the Deduper must not take its own
// claim for another owner's. The message would wait for a worker that does not exist.
func TestDeduperRecoversFromLostReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wrong, foreign := lossy(t, func(s dedup.Store) dedup.Store { return s })
		assert.Equal(t, 0, wrong, "effects that did not run once, of %d", messages)
		assert.Equal(t, 0, foreign, "calls that found their own claim foreign, of %d", messages)
	})
}

// forgetful is a store that does not recognize the token of a claim that is sent again.
type forgetful struct{ dedup.Store }

func (f forgetful) Claim(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	answers := f.Store.Claim(ctx, reqs)
	for i, a := range answers {
		if a.Mine {
			answers[i].Outcome, answers[i].Mine = dedup.InFlight, false
		}
	}
	return answers
}

// The test above must fail for a store that takes its caller's own claim for another's.
func TestLostRepliesAreSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wrong, foreign := lossy(t, func(s dedup.Store) dedup.Store { return forgetful{s} })
		assert.NotZero(t, wrong, "the store disowns its callers")
		assert.NotZero(t, foreign)
	})
}
