package redisadapter_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redisscript"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/redisadapter"
)

// dangerous claims n keys from first on, and calls MarkIrreversible for them.
func dangerous(t *testing.T, store *redisadapter.Store, first, n int, lease time.Duration) {
	t.Helper()
	reqs, declare := make([]driver.ClaimRequest, n), make([]driver.Renewal, n)
	for i := range n {
		reqs[i] = request(first + i)
		declare[i] = renewalOf(change(first+i, driver.StateReleased))
		declare[i].Irreversible, declare[i].Lease, declare[i].Window = true, lease, time.Hour
	}
	for i, a := range store.Claim(t.Context(), reqs) {
		require.Equal(t, dedup.Acquired, a.Outcome, "%d: %+v", i, a)
	}
	for i, a := range store.Renew(t.Context(), declare) {
		require.True(t, a.Held, "%d: %+v", i, a)
	}
}

// finishAll ends keys from first on.
func finishAll(t *testing.T, store *redisadapter.Store, first, n int, state driver.State) {
	t.Helper()
	ends := make([]driver.Finish, n)
	for i := range ends {
		ends[i] = change(first+i, state)
	}
	for i, a := range store.Finish(t.Context(), ends) {
		require.True(t, a.Written, "%d: %+v", i, a)
	}
}

// uncertainOf returns all uncertain keys, from all pages. It fails if a page did not come from the
// index.
func uncertainOf(t *testing.T, store *redisadapter.Store,
	limit int) (found map[driver.ID]redisadapter.Entry) {
	t.Helper()
	return indexed(t, store, redisadapter.ListOptions{Limit: limit,
		States: []driver.State{driver.StateUncertain}})
}

func indexed(t *testing.T, store *redisadapter.Store,
	opts redisadapter.ListOptions) (found map[driver.ID]redisadapter.Entry) {
	t.Helper()
	found = map[driver.ID]redisadapter.Entry{}
	for {
		page, err := store.List(t.Context(), opts)
		must(t, err)
		for _, e := range page.Entries {
			found[e.ID] = e
		}
		if opts.Cursor = page.Cursor; opts.Cursor == "" {
			return found
		}
		require.True(t, strings.HasPrefix(opts.Cursor, "2."), "a list over names: %s", opts.Cursor)
	}
}

// entriesOf counts the entries of the index.
func entriesOf(t *testing.T, b redistest.Backend) (n int64) {
	t.Helper()
	_, cluster := b.Client.(*redis.ClusterClient)
	pipe := b.Client.Pipeline()
	var all []*redis.IntCmd
	for _, name := range redisscript.NewIndex(b.Prefix, cluster).From(0) {
		all = append(all, pipe.HLen(t.Context(), name))
	}
	_, err := pipe.Exec(t.Context())
	must(t, err)
	for _, cmd := range all {
		n += cmd.Val()
	}
	return n
}

// TestIndexIsExact: a key is in the index after its point of no return, until it ends in any way. A
// list of the index has the uncertain keys.
func TestIndexIsExact(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		const n = 20
		store := open(t, b)
		reqs := make([]driver.ClaimRequest, n)
		for i := range reqs {
			reqs[i] = request(i) // in flight, without a point of no return
		}
		store.Claim(t.Context(), reqs)
		dangerous(t, store, n, 6*n, time.Minute)
		assert.EqualValues(t, 6*n, entriesOf(t, b))
		assert.Empty(t, uncertainOf(t, store, 7), "live attempts")

		finishAll(t, store, n, n, driver.StateReleased) // uncertain
		withResults := make([]driver.Finish, n)
		for i := range withResults {
			withResults[i] = ending(2*n+i,
				store.Lookup(t.Context(), []driver.ID{newID(2*n + i)})[0],
				driver.StateSucceeded, "result")
		}
		store.Finish(t.Context(), withResults)
		finishAll(t, store, 3*n, n, driver.StateFailed)
		assert.EqualValues(t, 4*n, entriesOf(t, b))
		for i := range n { // ended by another caller, and by Forget
			marked := change(4*n+i, driver.StateSucceeded)
			marked.Token[0] ^= 0xff
			marked.EffectApplied = true
			assert.True(t, store.Finish(t.Context(), []driver.Finish{marked})[0].Written)
			finishAll(t, store, 5*n+i, 1, driver.StateReleased)
			must(t, store.Forget(t.Context(), []driver.ID{newID(5*n + i)}, time.Minute)[0])
		}
		assert.EqualValues(t, 2*n, entriesOf(t, b))
		for _, limit := range []int{1, 7, 1000} {
			found := uncertainOf(t, store, limit)
			assert.Len(t, found, n)
			for i := range n {
				e := found[newID(n+i)]
				assert.Equal(t, driver.StateUncertain, e.Record.State)
				assert.True(t, e.Record.Irreversible)
				assert.Zero(t, e.Asked)
				assert.Less(t, e.Doubt, time.Minute)
				assert.LessOrEqual(t, e.Rested, e.Doubt)
			}
		}
		all := indexed(t, store, redisadapter.ListOptions{Limit: 7, Irreversible: true})
		assert.Len(t, all, 2*n)
		for i := range n {
			assert.Equal(t, driver.StateUncertain, all[newID(n+i)].Record.State)
			assert.Equal(t, driver.StateInProgress, all[newID(6*n+i)].Record.State)
		}
		assert.Len(t, indexed(t, store, redisadapter.ListOptions{Irreversible: true,
			States: []driver.State{driver.StateInProgress}}), n)
		_, err := store.List(t.Context(), redisadapter.ListOptions{Irreversible: true,
			States: []driver.State{driver.StateFailed}})
		require.ErrorContains(t, err, "ListOptions.Irreversible")
	})
}

// TestIndexOfRecordsFromBefore: a record may have passed its point of no return before there was an
// index. The first list finds it and adds it to the index.
func TestIndexOfRecordsFromBefore(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		const n = 60
		store := open(t, b)
		fillList(t, b, store, n)
		assert.Zero(t, entriesOf(t, b))
		_, cluster := b.Client.(*redis.ClusterClient)
		complete := redisscript.NewIndex(b.Prefix, cluster).Complete()
		store.Claim(t.Context(), []driver.ClaimRequest{request(10_000)}) // this key may run again
		for _, opts := range []redisadapter.ListOptions{{Irreversible: true},
			{States: []driver.State{driver.StateUncertain}}} {
			must(t, b.Client.Del(t.Context(), complete).Err())
			opts.Limit = 20
			found, _, _ := listAll(t, store, opts)
			assert.Len(t, found, n)
		}
		assert.EqualValues(t, n, entriesOf(t, b))
		assert.EqualValues(t, 1, b.Client.Exists(t.Context(), complete).Val())
		assert.Len(t, uncertainOf(t, store, 7), n)
	})
}

// TestIndexOfANewPrefix: there are no earlier records, so no list searches for them.
func TestIndexOfANewPrefix(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		open(t, b)
		_, cluster := b.Client.(*redis.ClusterClient)
		complete := redisscript.NewIndex(b.Prefix, cluster).Complete()
		assert.EqualValues(t, 1, b.Client.Exists(t.Context(), complete).Val())
	})
}

// TestIndexDropsWhatHasEnded: an entry remains when its record expires, or when a plain command
// replaces it. The next list removes it.
func TestIndexDropsWhatHasEnded(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		const n = 50
		store := open(t, b)
		dangerous(t, store, 0, 2*n, time.Minute)
		finishAll(t, store, 0, 2*n, driver.StateReleased)
		for i := range n {
			must(t, b.Client.Del(t.Context(), redisadapter.Key(store, newID(i))).Err())
			must(t, b.Client.Set(t.Context(), redisadapter.Key(store, newID(n+i)),
				redisadapter.Golden(t, "succeeded_full"), time.Minute).Err())
		}
		assert.EqualValues(t, 2*n, entriesOf(t, b))
		assert.Empty(t, uncertainOf(t, store, 7))
		assert.Zero(t, entriesOf(t, b))
	})
}

// TestIndexPrunes: new entries remove some entries of expired records, even if nobody lists them.
func TestIndexPrunes(t *testing.T) {
	const n = 500
	b := redistest.Open(t, "redis")
	store := open(t, b)
	name := redisscript.NewIndex(b.Prefix, false).Of("")
	for i := range n {
		must(t, b.Client.HSet(t.Context(), name, fmt.Sprintf("expired_%d", i), "1 0 1 1").Err())
	}
	dangerous(t, store, 0, 4*n, time.Minute)
	left := entriesOf(t, b) - 4*n
	assert.Less(t, left, int64(n/2), "entries of records that have expired")
	ttl := b.Client.PTTL(t.Context(), name).Val()
	assert.Greater(t, ttl, time.Hour, "the index ends after all records")
	assert.LessOrEqual(t, ttl, 122*time.Minute, "the index ends")
}

// TestIndexOfAPutBackRecord: a list may have removed the entry while a plain end was there.
func TestIndexOfAPutBackRecord(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		store := open(t, b)
		dangerous(t, store, 1, 1, time.Minute)
		key := redisadapter.Key(store, newID(1))
		value := b.Client.Get(t.Context(), key).Val()
		must(t, b.Client.Set(t.Context(), key, "written", time.Minute).Err())
		_, cluster := b.Client.(*redis.ClusterClient)
		index := redisscript.NewIndex(b.Prefix, cluster)
		must(t, b.Client.Del(t.Context(), index.Of(key)).Err())
		runner := redisscript.NewRunner(b.Client)
		runner.Keep(index)
		replies := runner.Run(t.Context(),
			[]redisscript.Call{redisscript.NewRestore(key, "written", value, time.Minute)})
		must(t, replies[0].Err)
		assert.EqualValues(t, 1, entriesOf(t, b))
	})
}

// TestIndexRefused: if the index cannot be written, a declaration fails and is not made, but an end
// does not fail.
func TestIndexRefused(t *testing.T) {
	b := redistest.Open(t, "redis")
	store := open(t, b)
	dangerous(t, store, 1, 1, time.Minute)
	name := redisscript.NewIndex(b.Prefix, false).Of("")
	must(t, b.Client.Del(t.Context(), name).Err())
	must(t, b.Client.Set(t.Context(), name, "of somebody else", time.Minute).Err())
	store.Claim(t.Context(), []driver.ClaimRequest{request(2)})
	declare := renewalOf(change(2, driver.StateReleased))
	declare.Irreversible = true
	require.Error(t, store.Renew(t.Context(), []driver.Renewal{declare})[0].Err)
	assert.False(t, store.Lookup(t.Context(), []driver.ID{newID(2)})[0].Record.Irreversible)
	finishAll(t, store, 1, 2, driver.StateSucceeded)
}

// TestIndexBehindAProxy: a proxy that shards accepts only scripts whose keys are in one slot.
func TestIndexBehindAProxy(t *testing.T) {
	var refused, entered atomic.Int64
	fake := redistest.Fake(t, func(args []string) string {
		switch name := strings.ToUpper(args[0]); name {
		case "PING":
			return "+PONG\r\n"
		case "INFO":
			return infoReply(nil)
		case "TIME":
			return fmt.Sprintf("*2\r\n$10\r\n%d\r\n$1\r\n0\r\n", time.Now().Unix())
		case "SET":
			return "+OK\r\n"
		case "EVAL", "EVALSHA":
			if args[2] == "2" && redisscript.Slot(args[3]) != redisscript.Slot(args[4]) {
				refused.Add(1)
				return "-CROSSSLOT Keys in request don't hash to the same slot\r\n"
			}
			if args[2] == "2" {
				entered.Add(1)
			}
		}
		return redistest.Answer("held", 0, 0, "")
	})
	runner := redisscript.NewRunner(redistest.Client(t, fake))
	index := redisscript.NewIndex("ow", false)
	runner.Keep(index)
	for range 3 {
		replies := runner.Run(context.Background(), []redisscript.Call{
			redisscript.NewRenew("ow:{one}", [16]byte{}, time.Minute, time.Minute),
			redisscript.NewRenew("ow:{two}", [16]byte{}, time.Minute, time.Minute)})
		for _, r := range replies {
			must(t, r.Err)
			assert.Equal(t, "held", r.Answer)
		}
	}
	assert.EqualValues(t, 2, refused.Load(), "once, and then never")
	assert.EqualValues(t, 6, entered.Load())
	assert.True(t, index.BySlot())
}

// TestIndexWhileASlotMoves: record and index may be on two servers for minutes. Every call for such
// a key gets an answer. Every key past its point of no return is listed afterwards.
func TestIndexWhileASlotMoves(t *testing.T) {
	server := servertest.Private(t, servertest.KindRedisCluster)
	cluster := redistest.Cluster(t, server.Addrs)
	store := open(t, redistest.Backend{Client: cluster, Prefix: "ow"})
	index := redisscript.NewIndex("ow", true)
	for moved, where := range []string{"the index stays", "the index has gone"} {
		t.Run(where, func(t *testing.T) {
			n := moved + 1 // of another slot
			key := redisadapter.Key(store, newID(n))
			name := index.Of(key)
			dangerous(t, store, n, 1, time.Minute)
			from, to := beginMoving(t, cluster, key)
			if moved == 1 {
				migrate(t, from, to, name)
			}
			declare := renewalOf(change(n, driver.StateReleased))
			declare.Irreversible = true
			a := store.Renew(t.Context(), []driver.Renewal{declare})[0]
			must(t, a.Err)
			assert.True(t, a.Held)
			finishAll(t, store, n, 1, driver.StateReleased)
			assert.Equal(t, dedup.Uncertain,
				store.Claim(t.Context(), []driver.ClaimRequest{request(n)})[0].Outcome)
			asked := store.ClaimUncertain(t.Context(), request(n))
			must(t, asked.Err)
			assert.Equal(t, dedup.Acquired, asked.Outcome)
			migrate(t, from, to, key)
			finishAll(t, store, n, 1, driver.StateReleased)
			if moved == 0 {
				migrate(t, from, to, name)
			}
			slot := cluster.ClusterKeySlot(t.Context(), key).Val()
			for _, node := range []*redis.Client{to, from} {
				must(t, node.Do(t.Context(), "CLUSTER", "SETSLOT", slot,
					"NODE", to.ClusterMyID(t.Context()).Val()).Err())
			}
			assert.Contains(t, uncertainOf(t, store, 7), newID(n))
			must(t, store.Forget(t.Context(), []driver.ID{newID(n)}, 0)[0])
		})
	}
}

// TestDeclaredWhileASlotMoves: a key is declared for the first time while its record and its index
// are on two servers.
func TestDeclaredWhileASlotMoves(t *testing.T) {
	server := servertest.Private(t, servertest.KindRedisCluster)
	cluster := redistest.Cluster(t, server.Addrs)
	store := open(t, redistest.Backend{Client: cluster, Prefix: "ow"})
	wantOutcome(t, store, 1, dedup.Acquired)
	key := redisadapter.Key(store, newID(1))
	beginMoving(t, cluster, key)
	declare := renewalOf(change(1, driver.StateReleased))
	declare.Irreversible = true
	a := store.Renew(t.Context(), []driver.Renewal{declare})[0]
	must(t, a.Err)
	assert.True(t, a.Held)
	assert.True(t, a.Record.Irreversible)
	finishAll(t, store, 1, 1, driver.StateReleased)
	assert.Contains(t, uncertainOf(t, store, 7), newID(1))
}

// migrate moves a key from one server to another.
func migrate(t *testing.T, from, to *redis.Client, key string) {
	t.Helper()
	host, port, _ := strings.Cut(to.Options().Addr, ":")
	must(t, from.Migrate(t.Context(), host, port, key, 0, 5*time.Second).Err())
}

// TestIndexKeepsWhatBegins: while a slot moves, a key is in the index before it is declared.
func TestIndexKeepsWhatBegins(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		store := open(t, b)
		wantOutcome(t, store, 1, dedup.Acquired)
		_, cluster := b.Client.(*redis.ClusterClient)
		index := redisscript.NewIndex(b.Prefix, cluster)
		key := redisadapter.Key(store, newID(1))
		field := strings.Trim(strings.TrimPrefix(key, b.Prefix+":"), "{}")
		must(t, b.Client.HSet(t.Context(), index.Of(key), field, "1 0 1 1").Err())
		runner := redisscript.NewRunner(b.Client)
		runner.Keep(index)
		call := []redisscript.Call{redisscript.NewReindex(key)}
		must(t, runner.Run(t.Context(), call)[0].Err)
		assert.EqualValues(t, 1, entriesOf(t, b), "it is in progress")
		finishAll(t, store, 1, 1, driver.StateReleased)
		must(t, runner.Run(t.Context(), call)[0].Err)
		assert.Zero(t, entriesOf(t, b))
	})
}
