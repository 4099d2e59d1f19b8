package redisadapter_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redisscript"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/redisadapter"
)

// TestLuaAndGoAgree damages golden records at random and asks both decoders. A record that one of
// them reads and the other does not would be overwritten by a script, or stop a consumer.
func TestLuaAndGoAgree(t *testing.T) {
	const perRecord = 40
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		rnd := rand.New(rand.NewPCG(1, 2))
		var values []string
		for _, name := range redisadapter.Goldens(t) {
			good := redisadapter.Golden(t, name)
			values = append(values, good)
			for range perRecord {
				values = append(values, damage(rnd, good))
			}
		}
		// It is cut within its token, and its flag says that more sections follow.
		cut := []byte(redisadapter.Golden(t, "in_progress_bare")[:38])
		cut[2], cut[7] = 2, byte(len(cut))
		values = append(values, string(cut))
		readable := 0
		for i, reply := range lookups(t, b, values) {
			_, err := redisadapter.Decode(values[i])
			lua := reply.Err == nil
			assert.Equal(t, err == nil, lua,
				"%x: Lua reads it: %t (%v); Go: %v", values[i], lua, reply.Err, err)
			assert.False(t, reply.Err != nil && !errors.Is(reply.Err, redisscript.ErrUnreadable),
				"%x: Lua fails: %v", values[i], reply.Err)
			if err == nil {
				readable++
			}
		}
		assert.GreaterOrEqual(t, readable, len(values)/10,
			"%d of %d damaged records are readable: the test says little", readable, len(values))
		assert.LessOrEqual(t, readable, len(values)*9/10,
			"%d of %d damaged records are readable: the test says little", readable, len(values))
	})
}

// damage changes one to three bytes, or the length together with its field.
func damage(rnd *rand.Rand, good string) string {
	v := []byte(good)
	switch rnd.IntN(4) {
	case 0:
		v = v[:rnd.IntN(len(v)+1)]
	case 1:
		v = append(v, byte(rnd.Uint32()))
	default:
		for range 1 + rnd.IntN(3) {
			v[rnd.IntN(len(v))] ^= 1 << rnd.IntN(8)
		}
	}
	if rnd.IntN(2) == 0 && len(v) >= 8 {
		v[6], v[7] = byte(len(v)>>8), byte(len(v)) // the damage is elsewhere, then
	}
	return string(v)
}

// lookups stores the values and runs the lookup script on each.
func lookups(t *testing.T, b redistest.Backend, values []string) []redisscript.Reply {
	t.Helper()
	calls := make([]redisscript.Call, len(values))
	_, err := b.Client.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for i, v := range values {
			calls[i] = redisscript.NewLookup(fmt.Sprintf("%s:{%d}", b.Prefix, i))
			p.Set(t.Context(), calls[i].Key, v, time.Minute)
		}
		return nil
	})
	must(t, err)
	return redisscript.NewRunner(b.Client).Run(t.Context(), calls)
}

// TestLuaWritesWhatGoWrites compares the two encoders over the whole life of keys: with
// and without every optional section.
func TestLuaWritesWhatGoWrites(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		store := open(t, b)
		compared := 0
		same := func(n int) {
			t.Helper()
			raw, err := b.Client.Get(t.Context(), redisadapter.Key(store, newID(n))).Result()
			must(t, err)
			again, err := redisadapter.Decode(raw)
			must(t, err)
			assert.Equal(t, raw, again, "Lua wrote\n%x, Go\n%x", raw, again)
			compared++
		}
		for n := range 16 {
			req := request(n)
			req.Fingerprint, req.Origin, req.Label = sections(n)
			a := store.Claim(t.Context(), []driver.ClaimRequest{req})[0]
			require.Equal(t, dedup.Acquired, a.Outcome, "%+v", a)
			same(n)
			c := change(n, []driver.State{driver.StateSucceeded, driver.StateFailed,
				driver.StateReleased}[n%3])
			c.EffectApplied, c.NoResult = n%3 == 0, n&1 != 0
			r := renewalOf(c)
			r.Irreversible = n&2 != 0
			if n&4 != 0 {
				r.Steps = make([]byte, 1+n*50)
			}
			if n&8 != 0 {
				c.Result = make([]byte, n*100)
			}
			store.Renew(t.Context(), []driver.Renewal{r})
			same(n)
			a = store.Finish(t.Context(), []driver.Finish{c})[0]
			require.True(t, a.Held, "%+v", a)
			same(n)
			must(t, store.Forget(t.Context(), []driver.ID{newID(n)}, time.Minute)[0])
			same(n)
			store.Claim(t.Context(), []driver.ClaimRequest{req})
			same(n)
		}
		assert.Equal(t, 16*5, compared, "compared %d records", compared)
	})
}

// sections chooses optional parts by the bits of n.
func sections(n int) (f driver.Fingerprint, o driver.Origin, label string) {
	if n&1 != 0 {
		f = driver.FingerprintOf([]byte{byte(n)})
	}
	if n&2 != 0 {
		o = driver.Origin{Source: "orders", Partition: int32(n), Offset: 1 << 40, Generation: -1}
	}
	if n&4 != 0 {
		label = "order 4711, größer"
	}
	return f, o, label
}
