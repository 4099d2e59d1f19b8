package dedup_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// late makes a store answer the first claims of a test after the given time, as a frozen server
// does. It executes the claims either before it is frozen or after.
func late(store *hooked, after time.Duration, times int, executedFirst bool) {
	wait := only("Claim", func(c call) error {
		if c.nth <= times {
			time.Sleep(after)
		}
		return nil
	})
	if executedFirst {
		store.setAfter(wait)
	} else {
		store.setBefore(wait)
	}
}

// A reply that took longer than the lease does not say who holds the key now.
func TestClaimAnsweredAfterItsLeaseIsRefusedAndReleased(t *testing.T) {
	for name, executedFirst := range map[string]bool{"executed first": true,
		"executed last": false} {
		for _, batch := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", batch ", batch), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := hook()
					d := newDeduper(t, store, nil)
					late(store, valid, 1, executedFirst)
					_, err := claimEither(t, d, "k", batch)
					require.True(t, dedup.OutcomeUnknown(err) && !dedup.CanRetry(err), err)
					synctest.Wait()
					wantState(t, store, "k", driver.StateReleased)
					require.Equal(t, 1, acquire(t, d, "k").Attempt, "nobody has run")
				})
			})
		}
	}
}

// claimEither claims by hand, alone or in a batch of one.
func claimEither(t *testing.T, d *dedup.Deduper, key string, batch bool) (*dedup.Claim, error) {
	t.Helper()
	if !batch {
		return d.Claim(t.Context(), key)
	}
	claims, err := d.ClaimBatch(t.Context(), []dedup.Request{{Key: key}})
	require.NoError(t, err)
	require.Len(t, claims, 1)
	return claims[0], claims[0].Err()
}

func TestClaimAnsweredJustInTimeIsAcquired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		late(store, valid-time.Millisecond, 1, true)
		c := acquire(t, d, "k")
		run, stop := c.KeepAlive(t.Context())
		defer stop()
		time.Sleep(time.Second) // its renewal was due at once
		require.NoError(t, context.Cause(run))
	})
}

// A claim whose first reply was lost has spent part of its lease. It is renewed before it is used,
// and its lease counts from that renewal.
func TestClaimFoundToBeOursIsRenewedBeforeUse(t *testing.T) {
	for _, batch := range []bool{false, true} {
		t.Run(fmt.Sprint("batch ", batch), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, seen := hook(), &journal{}
				d := newDeduper(t, store, func(c *dedup.Config) { c.Observer = seen.observer() })
				store.setAfter(only("Claim", func(c call) error {
					if c.nth <= 3 {
						time.Sleep(time.Second)
						return errNet
					}
					return nil
				}))
				c, err := claimEither(t, d, "k", batch)
				require.NoError(t, err)
				require.Equal(t, dedup.Acquired, c.Outcome)
				require.Equal(t, 1, c.Attempt)
				require.Equal(t, 4, store.count("Claim"))
				require.Equal(t, 1, store.count("Renew"))
				seen.want(t, "store error", 3)
				seen.want(t, "claimed", 1)
				require.Equal(t, lease, lookup(t, store, "k").Remaining,
					"what remains in the store")
				renewed := time.Now()
				store.setBefore(only("Renew", down))
				run, stop := c.KeepAlive(t.Context())
				defer stop()
				<-run.Done()
				require.Equal(t, valid, time.Since(renewed))
			})
		})
	}
}

// The renewal of a hidden claim fails, or finds that it came too late.
func TestHiddenClaimThatCannotBeRenewedIsNotUsed(t *testing.T) {
	lostOnce := only("Claim", func(c call) error {
		if c.nth == 1 {
			return errNet
		}
		return nil
	})
	t.Run("store down again", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := hook()
			d := newDeduper(t, store, nil)
			store.setAfter(lostOnce)
			store.setBefore(only("Renew", down))
			_, err := d.Claim(t.Context(), "k")
			require.True(t, dedup.OutcomeUnknown(err), err)
			synctest.Wait()
			wantState(t, store, "k", driver.StateReleased)
		})
	})
	t.Run("taken over", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := hook()
			// FailOpen must not run the effect while another owner is known to exist.
			d := newDeduper(t, store, func(c *dedup.Config) { c.Mode = dedup.FailOpen })
			store.setAfter(lostOnce)
			store.setBefore(only("Renew", func(call) error {
				store.setBefore(nil)
				_, err := newDeduper(t, store.inner, nil).Mark(t.Context(), "k")
				return err
			}))
			c := claim(t, d, "k")
			require.NotEqual(t, dedup.Acquired, c.Outcome)
			require.NotEqual(t, dedup.Duplicate, c.Outcome)
			wantState(t, store, "k", driver.StateSucceeded)
		})
	})
	t.Run("answered too late", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := hook()
			d := newDeduper(t, store, nil)
			store.setAfter(func(c call) error {
				if c.method == "Renew" {
					time.Sleep(valid)
				}
				return lostOnce(c)
			})
			_, err := d.Claim(t.Context(), "k")
			require.True(t, dedup.OutcomeUnknown(err), err)
			synctest.Wait()
			wantState(t, store, "k", driver.StateReleased)
		})
	})
}

// In a batch, the renewal of one hidden claim takes time from the others.
func TestRenewalOfOneClaimCountsAgainstItsBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		id, err := driver.NewID("test", "", "hidden")
		require.NoError(t, err)
		d := newDeduper(t, &partly{hooked: store, lost: id}, nil)
		store.setAfter(only("Renew", func(call) error { time.Sleep(valid); return nil }))
		claims, err := d.ClaimBatch(t.Context(), []dedup.Request{{Key: "hidden"}, {Key: "plain"}})
		require.NoError(t, err)
		require.Equal(t, dedup.Unknown, claims[1].Outcome)
		synctest.Wait()
		wantState(t, store, "plain", driver.StateReleased)
	})
}

// partly loses the first answer of one item.
type partly struct {
	*hooked
	lost driver.ID
	once bool
}

func (p *partly) Claim(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	answers := p.hooked.Claim(ctx, reqs)
	for i := range reqs {
		if reqs[i].ID == p.lost && !p.once {
			p.once, answers[i] = true, lostAnswer(errNet)
		}
	}
	return answers
}
