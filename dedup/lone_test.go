package dedup

import (
	"context"
	"testing"
	"time"
)

// steady is a store that allocates nothing: every claim is won, every end is held.
type steady struct {
	Store
	claimed, ended [1]Answer
}

func (s *steady) Claim(context.Context, []ClaimRequest) []Answer { return s.claimed[:] }
func (s *steady) Finish(context.Context, []Change) []Answer      { return s.ended[:] }

// A lone claim and completion make what somebody keeps, and nothing for a second try.
func TestLoneCycleAllocatesWhatIsKept(t *testing.T) {
	s := &steady{}
	s.claimed[0] = Answer{Outcome: Acquired, Record: Record{State: StateInProgress, Attempt: 1, Fence: 1}}
	s.ended[0] = Answer{Held: true, Written: true}
	d, err := New(s, Config{Namespace: "test", Window: time.Hour, LeaseTTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	got := testing.AllocsPerRun(100, func() {
		c, err := d.Claim(ctx, "key")
		if err != nil || c.Outcome != Acquired {
			t.Fatal(c, err)
		}
		if err := c.Complete(ctx, nil); err != nil {
			t.Fatal(err)
		}
	})
	// The request as asked, the attempt that others may join, the claim with the request
	// as sent, the change, and a context for each of the two calls.
	if got > 7 { // one more under the race detector
		t.Errorf("%v allocations", got)
	}
}
