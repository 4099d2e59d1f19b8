package dedup

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/internal/coalesce"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A claim beyond the limit of calls was never sent, so there is nothing to release.
func TestClaimBeyondTheLimitOfCallsIsNotReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := New(Memory(10),
			Config{Namespace: "test", Window: time.Hour, LeaseTTL: time.Second})
		require.NoError(t, err)
		d.claims.Limiter.Limit = 0
		_, err = d.Claim(t.Context(), "k")
		assert.ErrorIs(t, err, coalesce.ErrFull)
		assert.True(t, OutcomeUnknown(err) && !CanRetry(err), err)
		d.claims.Limiter.Limit = 10
		d.ends.Send = func(context.Context, []*oneCall) { t.Error("a release was sent") }
		synctest.Wait()
	})
}

// When a store returns the wrong number of answers, every item of the call is unknown.
func TestAnswersOfTheWrongNumberAreUnknown(t *testing.T) {
	for _, got := range []int{0, 1, 3} {
		answers := answered(make([]driver.Answer, got), 2)
		require.Len(t, answers, 2, "%d answers for two items became", got)
		assert.True(t, OutcomeUnknown(answers[0].Err) && OutcomeUnknown(answers[1].Err),
			"%d answers for two items became %+v", got, answers)
	}
}
