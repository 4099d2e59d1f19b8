package redisadapter_test

import (
	"context"
	"fmt"
	"strings"
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

// listAll follows the cursors to the end.
func listAll(t *testing.T, store *redisadapter.Store,
	opts redisadapter.ListOptions) (found map[driver.ID]dedup.Record, foreign, pages int) {
	t.Helper()
	found = make(map[driver.ID]dedup.Record)
	for {
		page, err := store.List(t.Context(), opts)
		must(t, err)
		for _, e := range page.Entries {
			found[e.ID] = e.Record
		}
		foreign, pages = foreign+page.Foreign, pages+1
		if opts.Cursor = page.Cursor; opts.Cursor == "" {
			return found, foreign, pages
		}
	}
}

// fillList puts n keys into each state, and returns the numbers of the keys of each state.
func fillList(t *testing.T, b redistest.Backend, store *redisadapter.Store, n int) {
	t.Helper()
	for first := range 5 {
		reqs := make([]driver.ClaimRequest, n)
		for i := range reqs {
			reqs[i] = request(first*n + i)
			reqs[i].Origin = driver.Origin{Source: "topic", Partition: 1, Offset: int64(i)}
			reqs[i].Label = "label"
		}
		for i, a := range store.Claim(t.Context(), reqs) {
			require.Equal(t, dedup.Acquired, a.Outcome, "%d: %+v", i, a)
		}
	}
	var ends []driver.Finish
	for i := range n {
		done, failed, released := change(n+i, driver.StateSucceeded),
			change(2*n+i, driver.StateFailed), change(3*n+i, driver.StateReleased)
		done.Result = make([]byte, 1000)
		ends = append(ends, done, failed, released)
	}
	for i, a := range store.Finish(t.Context(), ends) {
		require.True(t, a.Written, "%d: %+v", i, a)
	}
	for i := range n { // lapsed, with danger
		key := redisadapter.Key(store, newID(4*n+i))
		must(t, b.Client.Set(t.Context(), key, redisadapter.Golden(t, "in_progress_danger"),
			time.Minute).Err())
	}
	// Nothing has declared these keys. They are like records from before there was an index.
	_, cluster := b.Client.(*redis.ClusterClient)
	must(t, b.Client.Del(t.Context(), redisscript.NewIndex(b.Prefix, cluster).Complete()).Err())
}

func TestList(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		const n = 60
		store := open(t, b)
		fillList(t, b, store, n)
		found, foreign, pages := listAll(t, store, redisadapter.ListOptions{})
		assert.Len(t, found, 2*n, "%d keys, %d foreign, in %d pages", len(found), foreign, pages)
		assert.Zero(t, foreign, "%d keys, %d foreign, in %d pages", len(found), foreign, pages)
		for i := range n {
			r := found[newID(i)]
			require.Equal(t, driver.StateInProgress, r.State, "in flight %d: %+v", i, r)
			require.Equal(t, 1, r.Attempt, "in flight %d: %+v", i, r)
			require.NotZero(t, r.Fence, "in flight %d: %+v", i, r)
			require.Equal(t, "label", r.Label, "in flight %d: %+v", i, r)
			require.Equal(t, int64(i), r.Origin.Offset, "in flight %d: %+v", i, r)
			require.Greater(t, r.Remaining, 50*time.Second, "in flight %d: %+v", i, r)
			require.LessOrEqual(t, r.Remaining, time.Minute, "in flight %d: %+v", i, r)
			r = found[newID(4*n+i)]
			require.Equal(t, driver.StateUncertain, r.State, "uncertain %d: %+v", i, r)
			require.NotZero(t, r.Attempt, "uncertain %d: %+v", i, r)
		}
		for state, first := range map[driver.State]int{
			driver.StateSucceeded: n, driver.StateFailed: 2 * n, driver.StateReleased: 3 * n,
			driver.StateUncertain: 4 * n, driver.StateInProgress: 0,
		} {
			found, _,
				_ := listAll(t, store, redisadapter.ListOptions{States: []driver.State{state}})
			assert.Len(t, found, n, "%v: %d keys", state, len(found))
			for i := range n {
				r := found[newID(first+i)]
				assert.Equal(t, state, r.State, "%v %d: %+v", state, i, r)
				assert.Nil(t, r.Result, "%v %d: %+v", state, i, r)
				assert.GreaterOrEqual(t, r.Age, time.Duration(0), "%v %d: %+v", state, i, r)
				assert.LessOrEqual(t, r.Age, time.Minute, "%v %d: %+v", state, i, r)
			}
		}
	})
}

// TestListIsBounded: one call does not look at all keys.
func TestListIsBounded(t *testing.T) {
	for _, name := range []string{"redis", "cluster"} { // miniredis has one page of names
		t.Run(name, func(t *testing.T) {
			const n = 150
			b := redistest.Open(t, name)
			store := open(t, b)
			fillList(t, b, store, n)
			size := keysOf(t, b.Client)
			for _, opts := range []redisadapter.ListOptions{{Limit: 1},
				{Scan: 500, Limit: 10_000}} {
				found, _, pages := listAll(t, store, opts)
				assert.Len(t, found, 2*n, "%+v: %d keys, want %d", opts, len(found), 2*n)
				assert.False(t, opts.Scan > 0 && pages < size/opts.Scan/12,
					"%+v: %d pages over %d keys", opts, pages, size)
				assert.False(t, opts.Limit == 1 && pages < 2, "%+v: %d pages", opts, pages)
			}
		})
	}
}

// keysOf counts all keys of all servers.
func keysOf(t *testing.T, client redis.UniversalClient) int {
	t.Helper()
	if cluster, ok := client.(*redis.ClusterClient); ok {
		n, err := cluster.DBSize(t.Context()).Result()
		must(t, err)
		return int(n)
	}
	n, err := client.DBSize(t.Context()).Result()
	must(t, err)
	return int(n)
}

// TestListSkipsForeign: a foreign key whose name could be ours is counted as skipped. A key whose
// name only looks similar is ignored.
func TestListSkipsForeign(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		store := open(t, b)
		strings := 0
		for n, name := range []string{"foreign", "json", "newer_version", "truncated", "no_expiry",
			"list", "hash"} {
			key := redisadapter.Key(store, newID(n))
			unreadable[name](t, b.Client, key)
			t.Cleanup(func() { b.Client.Del(context.WithoutCancel(t.Context()), key) })
			if n < 5 {
				strings++
			}
		}
		for _, name := range []string{":layout", ":forgets", ":{12}:1234",
			":{12}:1234567890123456789012!", ":{short}", ":{" + "x}y", ":canary:{0}"} {
			must(t, b.Client.Set(t.Context(), b.Prefix+name, "x", time.Minute).Err())
		}
		lease := request(50)
		store.Claim(t.Context(), []driver.ClaimRequest{lease})
		raw, err := b.Client.Get(t.Context(), redisadapter.Key(store, lease.ID)).Result()
		must(t, err)
		tag := store.HashTag(newID(51))
		must(t, b.Client.Set(t.Context(), b.Prefix+":{7}:"+tag, raw, time.Hour+time.Minute).Err())
		found, foreign, _ := listAll(t, store, redisadapter.ListOptions{States: allStates})
		require.Len(t, found, 2)
		assert.Equal(t, 1, found[newID(50)].Attempt, "%+v", found)
		assert.Equal(t, 1, found[newID(51)].Attempt, "%+v", found)
		assert.Equal(t, strings, foreign, "%d foreign values, want %d", foreign, strings)
	})
}

var allStates = []driver.State{
	driver.StateInProgress, driver.StateSucceeded, driver.StateFailed, driver.StateReleased,
	driver.StateUncertain,
}

// TestListAfterARestart: a restarted server orders its hash table in another secret way. With an
// old cursor keys would be missed.
func TestListAfterARestart(t *testing.T) {
	server, client, store := private(t)
	must(t, client.ConfigSet(t.Context(), "appendfsync", "always").Err()) // it is killed
	const n = 150
	fillList(t, redistest.Backend{Client: client, Prefix: "ow"}, store, n)
	opts := redisadapter.ListOptions{Limit: 1}
	page, err := store.List(t.Context(), opts)
	must(t, err)
	server.Kill(1)
	server.Start(1)
	opts.Cursor, opts.Limit = page.Cursor, 0
	found, _, _ := listAll(t, store, opts)
	assert.NotEmpty(t, opts.Cursor, "%d keys from %q on", len(found), opts.Cursor)
	assert.Len(t, found, 2*n, "%d keys from %q on", len(found), opts.Cursor)
}

// TestListRights: List needs the rights that the package comment names, and no others.
func TestListRights(t *testing.T) {
	server, admin, _ := private(t)
	rules := strings.Fields(
		"on >secret resetkeys ~ow:* resetchannels -@all +eval +evalsha +get +set +pttl +time +info +ping " +
			"+hello +client|setname +scan +getrange")
	must(t, admin.Do(t.Context(),
		append([]any{"ACL", "SETUSER", "lister"}, anys(rules)...)...).Err())
	client := redistest.Client(t,
		&redis.Options{Addr: server.Addr, Username: "lister", Password: "secret"})
	store := open(t, redistest.Backend{Client: client, Prefix: "ow"})
	store.Claim(t.Context(), []driver.ClaimRequest{request(1)})
	found, _, _ := listAll(t, store, redisadapter.ListOptions{})
	assert.Len(t, found, 1)
}

func TestListRefusesBadInput(t *testing.T) {
	store := open(t, redistest.Open(t, "miniredis"))
	for field, opts := range map[string]redisadapter.ListOptions{
		"ListOptions.Limit": {Limit: -1}, "ListOptions.Time": {Time: -1},
		"ListOptions.Scan":   {Scan: 1_000_001},
		"ListOptions.States": {States: []driver.State{driver.StateAbsent}},
		"ListOptions.Cursor": {Cursor: "3.0.0.0"},
	} {
		_, err := store.List(t.Context(), opts)
		wantInput(t, err, field)
	}
	var none context.Context
	_, err := store.List(none, redisadapter.ListOptions{})
	wantInput(t, err, "Context")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = store.List(ctx, redisadapter.ListOptions{})
	assert.Equal(t, "context", redisadapter.Classify(err), "%v", err)
}

// FuzzListCursor: a cursor that is accepted is one that List writes.
func FuzzListCursor(f *testing.F) {
	f.Add("")
	f.Add("1.0.0.0")
	f.Add("1.16383.ffffffffffffffff.1f")
	f.Add("1.016383.0.+1")
	f.Add("0.1.2.3")
	f.Add(fmt.Sprint("1.", strings.Repeat("9", 30), ".0.0"))
	f.Fuzz(func(t *testing.T, s string) {
		again, err := redisadapter.Position(s)
		assert.False(t, err == nil && s != "" && again != s, "%q is read as %q", s, again)
	})
}

// TestListGoesOn: List reads the servers one after the other, in the order of their slots.
func TestListGoesOn(t *testing.T) {
	b := redistest.Backend{Client: redistest.Cluster(t, servertest.RedisCluster(t)),
		Prefix: servertest.Prefix(t)}
	store := open(t, b)
	store.Claim(t.Context(), []driver.ClaimRequest{request(1)})
	last, cursor := "", ""
	for range 10_000 {
		page, err := store.List(t.Context(), redisadapter.ListOptions{Cursor: cursor, Scan: 200})
		must(t, err)
		if cursor = page.Cursor; cursor == "" {
			return
		}
		slot := strings.Split(cursor, ".")[1]
		require.GreaterOrEqual(t, fmt.Sprintf("%5s", slot), last, "slot %s after %s", slot, last)
		last = fmt.Sprintf("%5s", slot)
	}
	t.Error("without end")
}
