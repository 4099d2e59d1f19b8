package redisadapter_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/redisadapter"
)

// TestFalseDuplicates counts how often a key that was never seen is taken for done. The digests are
// cut so short that this happens. It is as often as the number of members of a shard divided by the
// number of digests, and no more. With 64 bits, and 235 keys in each of two generations, that is
// 2.5e-17.
func TestFalseDuplicates(t *testing.T) {
	for _, c := range []struct{ shards, bits, members, asked int }{{1, 11, 300, 1000},
		{8, 8, 300, 1000}} {
		_, client := redistest.Mini(t)
		opts := layoutOptions("ow", redisadapter.Compact)
		opts.ExpectedKeys = redisadapter.KeysPerBucket * c.shards
		store := openWith(t, redistest.Backend{Client: client}, opts)
		redisadapter.Truncate(store, c.bits)
		require.Equal(t, c.shards, redisadapter.Shards(store))
		next := 0
		claim := func(n int, complete bool) (duplicates int) {
			for end := next + n; next < end; next += batchSize {
				reqs := make([]driver.ClaimRequest, batchSize)
				for i := range reqs {
					reqs[i] = request(next + i)
					reqs[i].ID = numbered(next + i)
					reqs[i].LikelyDuplicate = i%2 == 0
				}
				var ends []driver.Finish
				for i, a := range store.Claim(t.Context(), reqs) {
					require.NoError(t, a.Err)
					switch {
					case a.Outcome == dedup.Duplicate:
						duplicates++
					case complete:
						e := done(next+i, a)
						e.ID, e.Token = reqs[i].ID, reqs[i].Token
						ends = append(ends, e)
					}
				}
				for _, a := range store.Finish(t.Context(), ends) {
					require.True(t, a.Written, "%+v", a)
				}
			}
			return duplicates
		}
		false1 := claim(c.members, true)
		members := float64(next - false1)
		before := next
		false2 := float64(claim(c.asked, false))
		asked := float64(next - before)
		want := asked * members / float64(c.shards) / math.Exp2(float64(c.bits))
		// Five deviations, of the count and of how evenly members lie in the shards.
		within := 5 * (math.Sqrt(want) + want/math.Sqrt(members))
		t.Logf("%d shards, %d bits, %.0f members: %.0f of %.0f false duplicates, %.0f expected",
			c.shards, c.bits, members, false2, asked, want)
		assert.InDelta(t, want, false2, within, "false duplicates")
	}
}

// TestDigestIsKeyed: with another secret a key has another member and another shard, so that nobody
// can choose keys that collide.
func TestDigestIsKeyed(t *testing.T) {
	opts := layoutOptions("ow", redisadapter.Compact)
	opts.ExpectedKeys = 4_000_000
	_, client := redistest.Mini(t)
	one := openWith(t, redistest.Backend{Client: client}, opts)
	opts.Secret = []byte("another sixteen bytes")
	_, elsewhere := redistest.Mini(t) // a prefix has one secret
	other := openWith(t, redistest.Backend{Client: elsewhere}, opts)
	at := time.Now()
	same := 0
	for n := range 1000 {
		assert.NotEqual(t, redisadapter.Member(other, newID(n)), redisadapter.Member(one, newID(n)),
			"key %d has the same digest with another secret", n)
		if redisadapter.Bucket(one, newID(n), at) == redisadapter.Bucket(other, newID(n), at) {
			same++
		}
	}
	assert.LessOrEqual(t, same, 5, "of 1000 keys have the same bucket, of 17,000")
}

// TestBucketOptions names every bad option, and those that a layout has no use for.
func TestBucketOptions(t *testing.T) {
	_, client := redistest.Mini(t)
	for name, c := range map[string]struct {
		field  string
		change func(*redisadapter.Options)
	}{
		"no secret": {"Options.Secret", func(o *redisadapter.Options) { o.Secret = nil }},
		"short secret": {"Options.Secret", func(o *redisadapter.Options) {
			o.Secret = make([]byte, 15)
		}},
		"no window": {"Options.Window", func(o *redisadapter.Options) { o.Window = 0 }},
		"short window": {"Options.Window", func(o *redisadapter.Options) {
			o.Window = time.Millisecond
		}},
		"endless": {"Options.Window", func(o *redisadapter.Options) {
			o.Window = math.MaxInt64
		}},
		"no keys": {"Options.ExpectedKeys", func(o *redisadapter.Options) {
			o.ExpectedKeys = 0
		}},
		"too many keys": {"Options.ExpectedKeys", func(o *redisadapter.Options) {
			o.ExpectedKeys = 1 << 40
		}},
		"layout": {"Options.Layout", func(o *redisadapter.Options) { o.Layout = 9 }},
		"rich secret": {"Options.Secret", func(o *redisadapter.Options) {
			o.Layout = redisadapter.Full
		}},
		"rich window": {"Options.Window", func(o *redisadapter.Options) {
			o.Layout, o.Secret = redisadapter.Full, nil
		}},
		"rich keys": {"Options.ExpectedKeys", func(o *redisadapter.Options) {
			o.Layout, o.Secret, o.Window = redisadapter.Full, nil, 0
		}},
	} {
		t.Run(name, func(t *testing.T) {
			opts := layoutOptions("ow", redisadapter.Compact)
			c.change(&opts)
			_, err := redisadapter.New(t.Context(), client, opts)
			wantInput(t, err, c.field)
		})
	}
}

// TestCompactRefuses what it does not keep, before anything is written.
func TestCompactRefuses(t *testing.T) {
	_, client := redistest.Mini(t)
	store := openWith(t, redistest.Backend{Client: client},
		layoutOptions("ow", redisadapter.Compact))
	req := request(1)
	for field, edit := range map[string]func(*driver.ClaimRequest){
		"Fingerprint": func(r *driver.ClaimRequest) {
			r.Fingerprint = driver.FingerprintOf([]byte("x"))
		},
		"ResultLimit": func(r *driver.ClaimRequest) { r.ResultLimit = 1 },
		"Window":      func(r *driver.ClaimRequest) { r.Window = time.Minute },
	} {
		bad := req
		edit(&bad)
		wantInput(t, store.Claim(t.Context(), []driver.ClaimRequest{bad})[0].Err, field)
	}
	a := store.Claim(t.Context(), []driver.ClaimRequest{req})[0]
	require.Equal(t, dedup.Acquired, a.Outcome)
	for field, edit := range map[string]func(*driver.Finish){
		"Window":      func(c *driver.Finish) { c.Window = time.Minute },
		"Result":      func(c *driver.Finish) { c.Result = []byte("x") },
		"Fingerprint": func(c *driver.Finish) { c.Fingerprint = driver.FingerprintOf([]byte("x")) },
	} {
		end := done(1, a)
		edit(&end)
		wantInput(t, store.Finish(t.Context(), []driver.Finish{end})[0].Err, field)
	}
	assert.Equal(t, driver.StateInProgress,
		store.Lookup(t.Context(), []driver.ID{newID(1)})[0].Record.State)
}

// TestCompactKeepsFailures: a key that has failed for good is not tried again, and says why.
func TestCompactKeepsFailures(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		store := openWith(t, b, layoutOptions(b.Prefix, redisadapter.Compact))
		d, err := dedup.New(store, dedup.Config{Namespace: "failures", Window: time.Hour,
			LeaseTTL: time.Minute, SeenOnly: true})
		require.NoError(t, err)
		effects := 0
		for range 3 {
			_, err = dedup.Do(t.Context(), d, "k", func(context.Context) (struct{}, error) {
				effects++
				return struct{}{}, dedup.Permanent(errors.New("no such account"))
			})
			assert.ErrorContains(t, err, "no such account")
			assert.True(t, dedup.CanAck(err))
		}
		assert.Equal(t, 1, effects)
		claim, err := d.ClaimBatch(t.Context(), []dedup.Request{{Key: "k", LikelyDuplicate: true}})
		require.NoError(t, err)
		assert.Equal(t, dedup.Duplicate, claim[0].Outcome)
		require.NoError(t, d.Close(t.Context()))
	})
}
