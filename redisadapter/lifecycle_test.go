package redisadapter_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/redisadapter"
)

// bench is a store on a miniredis whose clock is frozen. Tests use its key 1.
type bench struct {
	*testing.T
	*redisadapter.Store
	mini   *redistest.Frozen
	client *redis.Client
}

func newBench(t *testing.T) *bench {
	t.Helper()
	mini, client := redistest.Freeze(t)
	return &bench{t, open(t, redistest.Backend{Client: client, Prefix: "ow"}), mini, client}
}

// plantRecord puts a golden record under key n.
func (b *bench) plantRecord(n int, name string, ttl time.Duration) {
	b.Helper()
	must(b, b.client.Set(b.Context(), redisadapter.Key(b.Store, newID(n)),
		redisadapter.Golden(b, name), ttl).Err())
}

func (b *bench) raw(n int) string {
	b.Helper()
	v, err := b.client.Get(b.Context(), redisadapter.Key(b.Store, newID(n))).Result()
	must(b, err)
	return v
}

func (b *bench) claim(req driver.ClaimRequest) driver.Answer {
	b.Helper()
	a := b.Claim(b.Context(), []driver.ClaimRequest{req})[0]
	must(b, a.Err)
	return a
}

func (b *bench) finish(c driver.Finish) driver.Answer {
	b.Helper()
	a := b.Finish(b.Context(), []driver.Finish{c})[0]
	must(b, a.Err)
	return a
}

func (b *bench) lookup(n int) dedup.Record {
	b.Helper()
	a := b.Lookup(b.Context(), []driver.ID{newID(n)})[0]
	must(b, a.Err)
	return a.Record
}

// by returns c as another attempt would send it.
func by(token byte, c driver.Finish) driver.Finish {
	c.Token = driver.Token{0xff, token}
	return c
}

// The owner of the golden claims.
var goldenToken = driver.Token(
	[]byte("\xa0\xa1\xa2\xa3\xa4\xa5\xa6\xa7\xa8\xa9\xaa\xab\xac\xad\xae\xaf"))

const day = 24 * time.Hour

// TestMarkIrreversibleIsNeverTakenOver: an attempt died when its irreversible part might have
// begun. No claim, release or renewal makes the key runnable. Only an end or an operator does.
func TestMarkIrreversibleIsNeverTakenOver(t *testing.T) {
	b := newBench(t)
	hold := 259200 * time.Second // in the golden record
	b.plantRecord(1, "in_progress_danger", time.Minute+hold)
	a := b.claim(request(1))
	require.Equal(t, dedup.InFlight, a.Outcome, "under its lease: %+v", a)
	b.mini.Advance(time.Minute)
	before := b.raw(1)
	a = b.claim(request(1))
	require.Equal(t, dedup.Uncertain, a.Outcome, "lapsed: %+v", a)
	require.Equal(t, driver.StateUncertain, a.Record.State, "lapsed: %+v", a)
	rec := b.lookup(1)
	assert.Equal(t, driver.StateUncertain, rec.State, "Lookup: %+v", rec)
	a = b.finish(by(1, change(1, driver.StateReleased)))
	assert.False(t, a.Written, "released by a stranger: %+v", a)
	assert.Equal(t, before, b.raw(1), "the record has changed")

	// The owner itself may come back, but its release does not make it runnable.
	own := change(1, driver.StateReleased)
	own.Token = goldenToken
	a = b.Renew(b.Context(), []driver.Renewal{renewalOf(own)})[0]
	require.True(t, a.Held, "renewed by its owner: %+v", a)
	left := b.client.PTTL(b.Context(), redisadapter.Key(b.Store, newID(1))).Val()
	assert.GreaterOrEqual(t, left, hold, "a renewal has cut the key's life to %v", left)
	for range 2 {
		a := b.finish(own)
		require.True(t, a.Held, "released by its owner: %+v", a)
		require.True(t, a.Written, "released by its owner: %+v", a)
		require.Equal(t, driver.StateUncertain, a.Record.State, "released by its owner: %+v", a)
	}
	a = b.claim(request(1))
	require.Equal(t, dedup.Uncertain, a.Outcome, "after the release: %+v", a)
	landed := by(1, change(1, driver.StateSucceeded))
	landed.EffectApplied = true
	a = b.finish(landed)
	require.True(t, a.Written, "landed: %+v", a)
	require.Equal(t, driver.StateSucceeded, a.Record.State, "landed: %+v", a)
	a = b.claim(request(1))
	assert.Equal(t, dedup.Duplicate, a.Outcome, "after it has landed: %+v", a)
}

// TestUncertainCanBeForgotten: an operator may forget an uncertain key.
func TestUncertainCanBeForgotten(t *testing.T) {
	b := newBench(t)
	b.plantRecord(1, "uncertain", day)
	a := b.claim(request(1))
	require.Equal(t, dedup.Uncertain, a.Outcome, "%+v", a)
	must(t, b.Forget(t.Context(), []driver.ID{newID(1)}, time.Hour)[0])
	a = b.claim(request(1))
	assert.Equal(t, dedup.Acquired, a.Outcome, "%+v", a)
	assert.Equal(t, 1, a.Record.Attempt, "%+v", a)
}

// TestEffectAppliedSentAgain: an owner's late write has landed. When it is sent again, the answer
// must still say that the lease was lost.
func TestEffectAppliedSentAgain(t *testing.T) {
	b := newBench(t)
	c := change(1, driver.StateSucceeded)
	c.EffectApplied, c.Result = true, []byte("r")
	for n := range 3 {
		a := b.finish(c)
		require.True(t, a.Written, "send %d: %+v", n, a)
		require.False(t, a.Held, "send %d: %+v", n, a)
		require.Equal(t, "r", string(a.Record.Result), "send %d: %+v", n, a)
	}
	a := b.finish(by(1, c))
	assert.False(t, a.Written, "another's: %+v", a)
	assert.Equal(t, "r", string(a.Record.Result), "another's: %+v", a)
}

// TestForgottenOwnerIsCutOffForGood: an owner from before a Forget must not write, even if the key
// has been claimed, released and claimed again before it does.
func TestForgottenOwnerIsCutOffForGood(t *testing.T) {
	b := newBench(t)
	old := b.claim(request(1))
	late := change(1, driver.StateSucceeded)
	late.Fence, late.EffectApplied = old.Record.Fence, true
	b.mini.Advance(time.Minute)
	must(t, b.Forget(t.Context(), []driver.ID{newID(1)}, time.Hour)[0])

	next := request(1)
	next.Token = driver.Token{9}
	for turn := range 3 {
		a := b.claim(next)
		require.Equal(t, dedup.Acquired, a.Outcome, "turn %d: %+v", turn, a)
		require.Greater(t, a.Record.Fence, old.Record.Fence, "turn %d: %+v", turn, a)
		a = b.finish(late)
		require.False(t, a.Written, "turn %d: wrote over the claim: %+v", turn, a)
		release := change(1, driver.StateReleased)
		release.Token = next.Token
		if turn == 1 {
			b.mini.Advance(time.Minute) // lapse instead
			continue
		}
		b.finish(release)
		a = b.finish(late)
		require.False(t, a.Written, "turn %d: wrote over the release: %+v", turn, a)
	}
}

// TestForgetWithoutHold: the next fence is larger, even if the clock is frozen.
func TestForgetWithoutHold(t *testing.T) {
	b := newBench(t)
	last := uint64(0)
	for range 5 {
		a := b.claim(request(1))
		require.Greater(t, a.Record.Fence, last, "fence %d after %d", a.Record.Fence, last)
		last = a.Record.Fence
		b.finish(change(1, driver.StateSucceeded))
		must(t, b.Forget(t.Context(), []driver.ID{newID(1)}, 0)[0])
	}
	b.mini.Advance(2 * time.Millisecond)
	keys := b.mini.Keys()
	assert.Equal(t, []string{"ow:forgets", "ow:irreversible_complete", "ow:layout"}, keys,
		"2 ms after a Forget without hold there are %v", keys)
}

// TestForgottenTwice: of two holds the longer one counts.
func TestForgottenTwice(t *testing.T) {
	b := newBench(t)
	b.claim(request(1))
	b.finish(change(1, driver.StateSucceeded))
	for _, hold := range []time.Duration{time.Hour, time.Second} {
		must(t, b.Forget(t.Context(), []driver.ID{newID(1)}, hold)[0])
	}
	left := b.client.PTTL(t.Context(), redisadapter.Key(b.Store, newID(1))).Val()
	assert.Equal(t, time.Hour, left, "kept for %v", left)
}

// TestStepsOutliveAttempts: steps that a later version has stored must survive a release and a
// takeover by this version.
func TestStepsOutliveAttempts(t *testing.T) {
	b := newBench(t)
	b.plantRecord(1, "released", time.Hour)
	a := b.claim(request(1))
	require.Equal(t, dedup.Acquired, a.Outcome, "%+v", a)
	require.Equal(t, 5, a.Record.Attempt, "%+v", a)
	b.mini.Advance(time.Minute)
	next := request(1)
	next.Token = driver.Token{9}
	b.claim(next)
	release := change(1, driver.StateReleased)
	release.Token = next.Token
	b.finish(release)
	assert.Contains(t, b.raw(1), "\x00\x01charge", "lost")
	done := b.claim(request(1))
	b.finish(change(1, driver.StateSucceeded))
	assert.Equal(t, 7, done.Record.Attempt, "attempt %d; %x", done.Record.Attempt, b.raw(1))
	assert.NotContains(t, b.raw(1), "charge", "attempt %d; %x", done.Record.Attempt, b.raw(1))
}

// TestBadItems: bad items are answered next to good ones, and are not sent.
func TestBadItems(t *testing.T) {
	b := newBench(t)
	edit := func(c driver.Finish, f func(*driver.Finish)) driver.Finish { f(&c); return c }
	for name, c := range map[string]struct {
		change driver.Finish
		field  string
	}{
		"zero window": {edit(change(1, driver.StateSucceeded), func(c *driver.Finish) {
			c.Window = 0
		}), "Window"},
		"negative window": {edit(change(1, driver.StateFailed), func(c *driver.Finish) {
			c.Window = -1
		}), "Window"},
		"negative hold": {edit(change(1, driver.StateReleased), func(c *driver.Finish) {
			c.Hold = -1
		}), "Hold"},
		"no end": {change(1, driver.StateInProgress), "State"},
		"landed release": {edit(change(1, driver.StateReleased), func(c *driver.Finish) {
			c.EffectApplied = true
		}), "EffectApplied"},
		"huge fence": {edit(change(1, driver.StateSucceeded), func(c *driver.Finish) {
			c.EffectApplied, c.Fence = true, 1<<53
		}), "Fence"},
		"negative count": {edit(change(1, driver.StateSucceeded), func(c *driver.Finish) {
			c.Attempt = -1
		}), "Attempt"},
		"huge count": {edit(change(1, driver.StateSucceeded), func(c *driver.Finish) {
			c.Attempt = math.MaxInt64
		}), "Attempt"},
		"long label": {edit(change(1, driver.StateSucceeded), func(c *driver.Finish) {
			c.Label = strings.Repeat("x", 65)
		}), "Label"},
	} {
		t.Run(name, func(t *testing.T) {
			answers := b.Finish(t.Context(),
				[]driver.Finish{c.change, change(2, driver.StateReleased)})
			wantInput(t, answers[0].Err, c.field)
			must(t, answers[1].Err)
		})
	}
	bad := request(1)
	for name, req := range map[string]driver.ClaimRequest{
		"Lease": {ID: bad.ID, Token: bad.Token, Hold: time.Hour},
		"Hold":  {ID: bad.ID, Token: bad.Token, Lease: time.Hour, Hold: -1},
		"Label": {ID: bad.ID, Token: bad.Token, Lease: time.Hour, Label: strings.Repeat("x", 65)},
	} {
		answers := b.Claim(t.Context(), []driver.ClaimRequest{req, request(3)})
		wantInput(t, answers[0].Err, name)
		must(t, answers[1].Err)
	}
	wantInput(t, b.Renew(t.Context(), []driver.Renewal{{ID: newID(1)}})[0].Err, "Lease")
	wantInput(t, b.Forget(t.Context(), []driver.ID{newID(1)}, -1)[0], "hold")
	rec := b.lookup(1)
	assert.Equal(t, driver.StateAbsent, rec.State, "bad items have left %+v", rec)
}

// TestLongDurations: a long duration must not overflow and make a key expire at once.
func TestLongDurations(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		store := open(t, b)
		req := request(1)
		req.Lease, req.Hold = math.MaxInt64, math.MaxInt64
		a := store.Claim(t.Context(), []driver.ClaimRequest{req})[0]
		require.NoError(t, a.Err)
		require.GreaterOrEqual(t, a.Record.Remaining, 100*365*day, "%+v", a)
		c := change(1, driver.StateSucceeded)
		c.Window = math.MaxInt64
		a = store.Finish(t.Context(), []driver.Finish{c})[0]
		require.True(t, a.Written, "%+v", a)
		require.GreaterOrEqual(t, a.Record.Remaining, 100*365*day, "%+v", a)
		must(t, store.Forget(t.Context(), []driver.ID{newID(1)}, time.Millisecond)[0])
	})
}

// TestUnreadableIsNeverOverwritten runs every script on every backend.
func TestUnreadableIsNeverOverwritten(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		store := open(t, b)
		for name, plant := range unreadable {
			t.Run(name, func(t *testing.T) {
				key := redisadapter.Key(store, newID(1))
				plant(t, b.Client, key)
				dump := func() string {
					t.Helper()
					v, err := b.Client.Dump(t.Context(), key).Result()
					if err != nil && b.Name == "miniredis" { // dumps strings only
						v, err = b.Client.Type(t.Context(), key).Result()
					}
					must(t, err)
					return v
				}
				before := dump()
				landed := change(1, driver.StateSucceeded)
				landed.EffectApplied = true
				answers := allAnswers(t, store)
				answers = append(answers,
					namedAnswer{"landed", store.Finish(t.Context(), []driver.Finish{landed})[0]})
				for i, a := range answers {
					if i%2 == 1 {
						assert.NoError(t, a.Err, "%s of the item beside it", a.call)
						continue
					}
					assert.ErrorIs(t, a.Err, driver.ErrUnreadable, "%s: %+v", a.call, a.Answer)
					assert.Equal(t, dedup.Unknown, a.Outcome, "%s: %+v", a.call, a.Answer)
					assert.False(t, a.Held, "%s: %+v", a.call, a.Answer)
					assert.False(t, a.Written, "%s: %+v", a.call, a.Answer)
				}
				errs := store.Forget(t.Context(), []driver.ID{newID(1)}, time.Hour)
				assert.ErrorIs(t, errs[0], driver.ErrUnreadable, "Forget")
				after := dump()
				assert.Equal(t, before, after, "overwritten:\n%x\n%x", before, after)
				must(t, b.Client.Del(t.Context(), key).Err())
			})
		}
	})
}
