package sqlstore

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// closing is a context that ends between the first look at it and the wait for it.
type closing struct {
	context.Context
	looked bool
}

func (c *closing) Err() error {
	if !c.looked {
		c.looked = true
		return nil
	}
	return c.Context.Err()
}

// A call whose caller has left may run only after the caller has its answers. It must not write to
// these.
func TestLeftCallWritesElsewhere(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	left := 0
	for range 1000 {
		ran := make(chan struct{})
		answers := answer(&closing{Context: ended}, 1, func(answers []driver.Answer) {
			answers[0] = driver.Answer{Outcome: dedup.Acquired}
			close(ran)
		})
		before := answers[0].Err
		<-ran
		if before == nil {
			continue // the call was faster than the context
		}
		left++
		require.ErrorIs(t, answers[0].Err, context.Canceled,
			"an answer that was given has become %+v", answers[0])
		require.Equal(t, dedup.Unknown, answers[0].Outcome,
			"an answer that was given has become %+v", answers[0])
	}
	if left == 0 {
		t.Skip("NOT RUN: no call was left behind")
	}
}
