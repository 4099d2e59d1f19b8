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

// ofGeneration is a claim of key 1 by a consumer of a generation. It takes over older generations.
func ofGeneration(generation int32) driver.ClaimRequest {
	r := tokened(byte(generation))
	r.Origin = driver.Origin{Source: "group/topic", Partition: 1, Offset: 7, Generation: generation}
	r.TakeOverOlderGeneration = true
	return r
}

// TestPlainEndAfterATakeover: a newer generation has taken an owner's key over. The owner may still
// complete by plain commands, because its claim lasts by its own clock. These commands change the
// record, bucket or lease of another owner.
func TestPlainEndAfterATakeover(t *testing.T) {
	for name, newer := range map[string]struct {
		does    func(b *bench, c driver.Finish) // what the newer owner does before the end
		written bool
		state   driver.State
	}{
		"at work": {func(*bench, driver.Finish) {}, true, driver.StateSucceeded},
		"released": {func(b *bench, c driver.Finish) {
			c.State = driver.StateReleased
			b.finish(c)
		}, true, driver.StateSucceeded},
		"failed": {func(b *bench, c driver.Finish) {
			c.State, c.Result = driver.StateFailed, []byte("51")
			b.finish(c)
		}, false, driver.StateFailed},
		"forgotten": {func(b *bench, c driver.Finish) {
			c.State = driver.StateReleased
			b.finish(c)
			b.mini.Advance(time.Millisecond)
			must(b, b.Forget(b.Context(), []driver.ID{c.ID}, time.Hour)[0])
		}, false, driver.StateAbsent},
	} {
		eachLayout(t, func(t *testing.T, layout redisadapter.Layout) {
			for _, byScript := range []bool{false, true} {
				t.Run(name+map[bool]string{true: ", by script"}[byScript],
					func(t *testing.T) {
						mini, client := redistest.Freeze(t)
						store := openWith(t, redistest.Backend{Client: client, Prefix: "ow"},
							layoutOptions("ow", layout))
						if byScript && layout == redisadapter.Compact {
							redisadapter.DropByScript(store)
						}
						b := &bench{t, store, mini, client}
						b.plainEndAfterATakeover(newer.does, !byScript, newer.written,
							newer.state)
					})
			}
		})
	}
}

func (b *bench) plainEndAfterATakeover(does func(*bench, driver.Finish), plain, written bool,
	state driver.State) {
	old := b.claim(ofGeneration(5))
	next := b.claim(ofGeneration(6))
	require.Equal(b, dedup.Acquired, next.Outcome, "the newer generation: %+v after %+v", next, old)
	require.Equal(b, 2, next.Record.Attempt, "the newer generation: %+v after %+v", next, old)
	require.Greater(b, next.Record.Fence, old.Record.Fence,
		"the newer generation: %+v after %+v", next, old)
	theirs := by(6, change(1, driver.StateReleased))
	theirs.Fence = next.Record.Fence
	does(b, theirs)

	late := by(5, done(1, old))
	late.MayOverwrite = plain
	a := b.finish(late)
	assert.False(b, a.Held, "the end of the older generation: %+v", a)
	assert.Equal(b, written, a.Written, "the end of the older generation: %+v", a)
	assert.Equal(b, state, a.Record.State, "the end of the older generation: %+v", a)
	rec := b.lookup(1)
	assert.Equal(b, state, rec.State, "then the key is %v", rec.State)
	a = b.Renew(b.Context(), []driver.Renewal{renewalOf(theirs)})[0]
	assert.False(b, a.Held, "then the newer owner renews: %+v", a)
	assert.NoError(b, a.Err)
	isMember := state == driver.StateSucceeded
	assert.False(b, redisadapter.Shards(b.Store) > 0 && b.isMember() != isMember,
		"then it is wrong whether the key is a member")
	want := dedup.Duplicate
	if state == driver.StateAbsent {
		want = dedup.Acquired
	}
	a = b.claim(ofGeneration(7))
	assert.Equal(b, want, a.Outcome, "then a claim is %+v", a)
	assert.Equal(b, state == driver.StateFailed, a.Record.State == driver.StateFailed,
		"then a claim is %+v", a)
}

// isMember reports whether key 1 is in the current bucket.
func (b *bench) isMember() bool {
	b.Helper()
	now := b.client.Time(b.Context()).Val()
	member, err := b.client.SIsMember(b.Context(), redisadapter.Bucket(b.Store, newID(1), now),
		redisadapter.Member(b.Store, newID(1))).Result()
	must(b, err)
	return member
}

// TestTakeoverOfWhatIsDone: the older owner has completed, but its lease still exists. With buckets
// a newer generation finds this between SADD and the drop of the lease.
func TestTakeoverOfWhatIsDone(t *testing.T) {
	eachLayout(t, func(t *testing.T, layout redisadapter.Layout) {
		mini, client := redistest.Freeze(t)
		store := openWith(t, redistest.Backend{Client: client, Prefix: "ow"},
			layoutOptions("ow", layout))
		b := &bench{t, store, mini, client}
		old := b.claim(ofGeneration(5))
		lease := b.raw(1)
		b.finish(by(5, done(1, old)))
		if layout >= redisadapter.Compact {
			must(t, client.Set(t.Context(), redisadapter.Key(store, newID(1)),
				lease, 2*time.Hour).Err())
		}
		a := b.claim(ofGeneration(6))
		assert.Equal(t, dedup.Duplicate, a.Outcome, "a newer generation: %+v", a)
	})
}
