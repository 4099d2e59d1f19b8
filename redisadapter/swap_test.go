package redisadapter_test

import (
	"context"
	"errors"
	"fmt"
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

// cycleOf claims keys from first on and ends them with a result. It returns the scripts that the
// ends needed. between may change the claims and their ends.
func cycleOf(t *testing.T, b redistest.Backend, store *redisadapter.Store, first, n int,
	between func([]driver.Finish)) *scripts {
	t.Helper()
	reqs, ends := make([]driver.ClaimRequest, n), make([]driver.Finish, n)
	for i := range reqs {
		reqs[i] = request(first + i)
		reqs[i].Label, reqs[i].Fingerprint = "label", driver.FingerprintOf([]byte("payload"))
		reqs[i].Origin = driver.Origin{Source: "topic", Partition: 3, Offset: int64(i)}
	}
	for i, a := range store.Claim(t.Context(), reqs) {
		require.Equal(t, dedup.Acquired, a.Outcome, "%+v", a)
		ends[i] = ending(first+i, a, driver.StateSucceeded, fmt.Sprint("result ", i))
		ends[i].Label, ends[i].Fingerprint = reqs[i].Label, reqs[i].Fingerprint
		ends[i].Origin = reqs[i].Origin
		if i%5 == 0 {
			ends[i].State = driver.StateFailed
		}
	}
	between(ends)
	sent := &scripts{}
	b.Client.AddHook(pipelineHook(sent.count))
	for i, a := range store.Finish(t.Context(), ends) {
		require.NoError(t, a.Err)
		require.True(t, a.Held && a.Written, "%+v", a)
		require.Equal(t, ends[i].Result, a.Record.Result)
		require.Equal(t, ends[i].State, a.Record.State)
	}
	after := *sent
	for i, a := range store.Lookup(t.Context(), ids(ends)) {
		require.Equal(t, ends[i].State, a.Record.State)
		require.Equal(t, ends[i].Result, a.Record.Result)
		require.Equal(t, "label", a.Record.Label)
		require.False(t, a.Record.Irreversible)
	}
	return &after
}

// TestSwap: if the server can compare in a plain command, an end with a result is such a command.
// If the claim has changed since it was written, the end is a script.
func TestSwap(t *testing.T) {
	const n = 40
	untouched := func([]driver.Finish) {}
	t.Run("valkey", func(t *testing.T) {
		b := redistest.Open(t, "valkey")
		store := open(t, b)
		assert.Zero(t, cycleOf(t, b, store, 0, n, untouched).calls, "scripts")
		renewed := func(ends []driver.Finish) {
			all := make([]driver.Renewal, len(ends))
			for i := range ends {
				all[i] = renewalOf(ends[i])
			}
			for _, a := range store.Renew(t.Context(), all) {
				require.True(t, a.Held)
			}
		}
		assert.Zero(t, cycleOf(t, b, store, n, n, renewed).calls, "scripts after a renewal")
		declared := func(ends []driver.Finish) {
			all := make([]driver.Renewal, len(ends))
			for i := range ends {
				all[i] = renewalOf(ends[i])
				all[i].Irreversible = true
				ends[i].Irreversible = i%2 == 0 // a hint, which may be missing
			}
			for _, a := range store.Renew(t.Context(), all) {
				require.True(t, a.Held)
			}
		}
		assert.NotZero(t, cycleOf(t, b, store, 2*n, n, declared).calls, "scripts of the index")
		assert.Zero(t, entriesOf(t, b))
		gone := func(ends []driver.Finish) {
			for i := range ends {
				ends[i].EffectApplied = ends[i].State == driver.StateSucceeded
			}
		}
		cycleOf(t, b, store, 3*n, n, gone)
	})
	// A server that does not know IFEQ, as after a downgrade, says so, and is not asked again.
	t.Run("redis", func(t *testing.T) {
		b := redistest.Open(t, "redis")
		store := open(t, b)
		if knowsIFEQ(t, b) { // Redis 8.4 or newer
			assert.Zero(t, cycleOf(t, b, store, 0, n, untouched).calls, "scripts")
			return
		}
		assert.NotZero(t, cycleOf(t, b, store, 0, n, untouched).calls)
		redisadapter.Compare(store, true)
		assert.NotZero(t, cycleOf(t, b, store, n, n, untouched).calls)
		a := store.Claim(t.Context(), []driver.ClaimRequest{request(900)})[0]
		asked := 0
		b.Client.AddHook(pipelineHook(func(ctx context.Context, cmds []redis.Cmder,
			next redis.ProcessPipelineHook) error {
			for _, cmd := range cmds {
				if args := cmd.Args(); len(args) == 7 && args[5] == "ifeq" {
					asked++
				}
			}
			return next(ctx, cmds)
		}))
		end := store.Finish(t.Context(),
			[]driver.Finish{ending(900, a, driver.StateSucceeded, "x")})[0]
		require.NoError(t, end.Err)
		assert.Zero(t, asked, "SET IFEQ")
	})
}

// knowsIFEQ asks the server whether it knows SET IFEQ, whatever its version.
func knowsIFEQ(t *testing.T, b redistest.Backend) bool {
	t.Helper()
	err := b.Client.Do(t.Context(), "SET", b.Prefix+":compared", "new", "IFEQ", "old").Err()
	return err == nil || errors.Is(err, redis.Nil)
}

// TestSwapTakenOver: an end changes nothing if another owner has the claim.
func TestSwapTakenOver(t *testing.T) {
	for _, name := range []string{"redis", "valkey"} {
		t.Run(name, func(t *testing.T) {
			b := redistest.Open(t, name)
			store := open(t, b)
			first := request(1)
			first.Lease = 20 * time.Millisecond
			old := store.Claim(t.Context(), []driver.ClaimRequest{first})[0]
			require.Equal(t, dedup.Acquired, old.Outcome)
			var next driver.Answer
			second := request(1)
			second.Token[1]++
			eventually(t, "the lease lapses", func() bool {
				next = store.Claim(t.Context(), []driver.ClaimRequest{second})[0]
				return next.Outcome == dedup.Acquired
			})
			late := store.Finish(t.Context(),
				[]driver.Finish{ending(1, old, driver.StateSucceeded, "late")})[0]
			require.NoError(t, late.Err)
			assert.False(t, late.Held || late.Written)
			assert.Equal(t, next.Record.Fence,
				store.Lookup(t.Context(), []driver.ID{newID(1)})[0].Record.Fence)
		})
	}
}

// BenchmarkSwap is a cycle with a result on Valkey: claim and end, by a script or by SET IFEQ.
func BenchmarkSwap(b *testing.B) {
	for _, size := range []int{1, 256} {
		for _, how := range []string{"script", "ifeq"} {
			b.Run(fmt.Sprintf("%s/size=%d", how, size), func(b *testing.B) {
				backend := redistest.Open(b, "valkey")
				store, err := redisadapter.New(b.Context(), backend.Client,
					redisadapter.Options{Prefix: backend.Prefix})
				require.NoError(b, err)
				redisadapter.Compare(store, how == "ifeq")
				reqs, ends := make([]driver.ClaimRequest, size), make([]driver.Finish, size)
				ctx, n := context.Background(), 0
				perKey(b, size, func() {
					for i := range reqs {
						reqs[i] = request(0)
						reqs[i].ID = driver.ID{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)}
						n++
					}
					for i, a := range store.Claim(ctx, reqs) {
						ends[i] = ending(0, a, driver.StateSucceeded, "a result of forty bytes or thereabouts")
						ends[i].ID = reqs[i].ID
					}
					for _, a := range store.Finish(ctx, ends) {
						if !a.Held {
							b.Fatal(a)
						}
					}
				})
			})
		}
	}
}
