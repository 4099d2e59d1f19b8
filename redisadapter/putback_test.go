package redisadapter_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/redisadapter"
)

// TestPutBackKeepsTheLease: Forget has cut an owner off, and its completion finds the next owner's
// claim. If its clock is slow, it overwrites that claim and then restores it. In both cases the
// claim must keep its lease: otherwise a third owner would run at the same time.
func TestPutBackKeepsTheLease(t *testing.T) {
	for name, row := range map[string]struct {
		window time.Duration
		until  time.Time
	}{
		"short window":                  {10 * time.Minute, time.Time{}},
		"long window":                   {72 * time.Hour, time.Time{}},
		"short window, by a slow clock": {10 * time.Minute, time.Now().Add(time.Hour)},
		"long window, by a slow clock":  {72 * time.Hour, time.Now().Add(time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			mini, client := redistest.Freeze(t)
			store := openWith(t, redistest.Backend{Client: client, Prefix: "ow"},
				redisadapter.Options{})
			b := &bench{t, store, mini, client}
			first := b.claim(request(1))
			mini.Advance(2 * time.Minute) // the lease of a minute lapses
			for _, err := range b.Forget(t.Context(), []driver.ID{newID(1)}, time.Hour) {
				must(t, err)
			}
			second := b.claim(tokened(2))
			require.Equal(t, dedup.Acquired, second.Outcome, "second: %+v", second)
			require.Greater(t, second.Record.Fence, first.Record.Fence, "second: %+v", second)
			late := change(1, driver.StateSucceeded)
			late.MayOverwrite, late.EffectApplied, late.Fence = true, true, first.Record.Fence
			late.Window, late.Until = row.window, row.until
			b.finish(late)
			rec := b.lookup(1)
			assert.Equal(t, driver.StateInProgress, rec.State,
				"the second owner's claim: %v, remaining %v", rec.State, rec.Remaining)
			assert.LessOrEqual(t, rec.Remaining, time.Minute,
				"the second owner's claim: %v, remaining %v", rec.State, rec.Remaining)
			assert.GreaterOrEqual(t, rec.Remaining, 50*time.Second,
				"the second owner's claim: %v, remaining %v", rec.State, rec.Remaining)
			a := b.claim(tokened(3))
			assert.Equal(t, dedup.InFlight, a.Outcome,
				"a third claim is %v while the second owner has the key", a.Outcome)
		})
	}
}

func tokened(token byte) driver.ClaimRequest {
	r := request(1)
	r.Token = driver.Token{0xff, token}
	return r
}

// TestPutBackKeepsTheExpiry: a completion overwrites a value of a newer version and then restores
// it. It must restore the expiry, too. Without it the value would stay forever, and even its own
// version could not read it.
func TestPutBackKeepsTheExpiry(t *testing.T) {
	mini, client := redistest.Freeze(t)
	store := openWith(t, redistest.Backend{Client: client, Prefix: "ow"},
		redisadapter.Options{})
	b := &bench{t, store, mini, client}
	first := b.claim(request(1))
	key := redisadapter.Key(store, newID(1))
	must(t, client.Set(t.Context(), key, "\x02 a record of version 2, which has taken the key over",
		time.Hour).Err())
	late := change(1, driver.StateSucceeded)
	late.MayOverwrite, late.EffectApplied, late.Fence, late.Until = true, true, first.Record.Fence,
		time.Now().Add(time.Hour)
	b.Finish(t.Context(), []driver.Finish{late})
	ttl := client.PTTL(t.Context(), key).Val()
	assert.Positive(t, ttl, "it expires in %v", ttl)
	assert.LessOrEqual(t, ttl, time.Hour, "it expires in %v", ttl)
}

// TestPutBackKeepsAnIrreversibleClaim: the expiry of an overwritten claim is not known. If its
// irreversible part may have begun, it must not be forgotten before its window has passed.
func TestPutBackKeepsAnIrreversibleClaim(t *testing.T) {
	b := newBench(t)
	first := b.claim(request(1))
	b.mini.Advance(2 * time.Minute) // the lease of a minute lapses
	must(t, b.Forget(t.Context(), []driver.ID{newID(1)}, time.Hour)[0])
	second := b.claim(tokened(2))
	renew := renewalOf(by(2, change(1, 0)))
	renew.Fence, renew.Irreversible, renew.Window = second.Record.Fence, true, day
	require.True(t, b.Renew(t.Context(), []driver.Renewal{renew})[0].Held)
	late := change(1, driver.StateSucceeded)
	late.MayOverwrite, late.EffectApplied, late.Fence = true, true, first.Record.Fence
	late.Window, late.Until = day, time.Now().Add(time.Hour)
	b.finish(late)
	assert.True(t, b.lookup(1).Irreversible)
	left := b.client.PTTL(t.Context(), redisadapter.Key(b.Store, newID(1))).Val()
	assert.GreaterOrEqual(t, left, day, "it is forgotten in %v", left)
}
