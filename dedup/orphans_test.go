package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
)

// claimInVain claims keys of a store that answers nothing, from as many goroutines.
func claimInVain(t *testing.T, d *dedup.Deduper, keys int) {
	t.Helper()
	var all sync.WaitGroup
	for i := range keys {
		all.Go(func() {
			c, err := d.Claim(context.Background(), fmt.Sprint("k", i))
			assert.True(t, dedup.OutcomeUnknown(err), "%+v, %v", c, err)
		})
	}
	all.Wait()
}

// A server hangs for half a minute and executes the requests in its sockets when it wakes up. The
// releases of those claims have failed long before. The claims must not hold their keys for a lease
// from then on.
func TestClaimsExecutedAfterAFreezeAreGivenBack(t *testing.T) {
	for range 8 { // in some rounds the releases reach the store before the claims
		synctest.Test(t, afterAFreeze)
	}
}

func afterAFreeze(t *testing.T) {
	const keys = 50
	store := hook()
	store.prompt = true
	d := newDeduper(t, store, func(c *dedup.Config) {
		c.LeaseTTL, c.StoreTimeout = 10*time.Minute, time.Second
	})
	thaw := make(chan struct{})
	store.setBefore(func(c call) error {
		if c.method == "Claim" {
			<-thaw
			time.Sleep(900 * time.Millisecond)
			return nil
		}
		select {
		case <-thaw:
			return nil
		default:
			return errNet
		}
	})
	claimInVain(t, d, keys)
	time.Sleep(30 * time.Second)
	tries := store.count("Finish")
	assert.LessOrEqual(t, tries, 3*keys+100, "releases were sent in half a minute")
	close(thaw)
	time.Sleep(4 * time.Second)
	store.setBefore(nil)
	for i := range keys {
		acquire(t, d, fmt.Sprint("k", i))
	}
	assert.LessOrEqual(t, store.count("Finish")-tries, 20, "releases were sent after it woke up")
}

// If the store does not come back, the releases that are kept for it are bounded, in number and in
// time.
func TestOrphansAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys, most = 3000, 1024
		store := hook()
		d := newDeduper(t, store, func(c *dedup.Config) {
			c.LeaseTTL, c.StoreTimeout = time.Hour, time.Second
		})
		store.setAfter(only("Claim", func(call) error { return errNet }))
		store.setBefore(only("Finish", func(call) error { return errNet }))
		for i := range keys / 100 {
			var all sync.WaitGroup
			for j := range 100 {
				all.Go(func() { _, _ = d.Claim(context.Background(), fmt.Sprint("k", 100*i+j)) })
			}
			all.Wait()
		}
		store.setAfter(nil)
		store.setBefore(nil)
		time.Sleep(4 * time.Second)
		free := 0
		for i := range keys {
			if c, err := d.Claim(t.Context(), fmt.Sprint("k", i)); err == nil &&
				c.Outcome == dedup.Acquired {
				free++
			}
		}
		assert.LessOrEqual(t, free, most, "%d of %d keys are free, want %d", free, keys, most)
		assert.GreaterOrEqual(t, free, most/2, "%d of %d keys are free, want %d", free, keys, most)

		store.setAfter(only("Claim", func(call) error { return errNet }))
		store.setBefore(only("Finish", func(call) error { return errNet }))
		_, _ = d.Claim(context.Background(), "another")
		time.Sleep(time.Hour)
		store.forgetCalls()
		time.Sleep(time.Hour)
		assert.LessOrEqual(t, store.count("Finish"), 0, "releases were sent after an hour")
	})
}

// Close sends the releases a last time, and does not wait for a store that does not come back.
func TestCloseEndsTheSearchForOrphans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, func(c *dedup.Config) {
			c.LeaseTTL, c.StoreTimeout = time.Hour, time.Second
		})
		store.setAfter(only("Claim", func(call) error { return errNet }))
		store.setBefore(only("Finish", func(call) error { return errNet }))
		claimInVain(t, d, 10)
		time.Sleep(10 * time.Second)
		before, start := store.count("Finish"), time.Now()
		require.NoError(t, closeWithin(d, time.Minute))
		assert.LessOrEqual(t, time.Since(start), time.Second)
		assert.Equal(t, 1, store.count("Finish")-before, "last tries")
	})
}

// notSent is an error of a store that has not sent anything.
type notSent struct{}

func (notSent) Error() string { return "not sent" }
func (notSent) NotSent() bool { return true }

// A claim is given back if one of its sends may have reached the store, and otherwise not.
func TestClaimsThatWereNotSentAreNotGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, func(c *dedup.Config) { c.LeaseTTL = time.Hour })
		store.setBefore(only("Claim", func(call) error {
			return fmt.Errorf("wrapped: %w", errors.Join(errNet, notSent{}))
		}))
		claimInVain(t, d, 100)
		synctest.Wait()
		assert.LessOrEqual(t, store.count("Finish"), 0, "releases of what was not sent")
		var once sync.Once
		store.setBefore(only("Claim", func(call) (err error) {
			err = notSent{}
			once.Do(func() { err = nil })
			return err
		}))
		store.setAfter(only("Claim", func(call) error { return errNet }))
		claimInVain(t, d, 1)
		store.setBefore(nil)
		store.setAfter(nil)
		synctest.Wait()
		acquire(t, d, "k0")
	})
}
