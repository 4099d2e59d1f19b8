package redisadapter_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/redisadapter"
)

// commandLog notes the commands of a client.
type commandLog struct {
	mu    sync.Mutex
	scans []int // COUNTs
	keys  int   // KEYS
}

func (a *commandLog) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a *commandLog) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (a *commandLog) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		a.mu.Lock()
		switch args := cmd.Args(); cmd.Name() {
		case "keys":
			a.keys++
		case "scan":
			count := 0
			if at := slices.Index(args, any("count")); at > 0 {
				_, _ = fmt.Sscan(fmt.Sprint(args[at+1]), &count)
			}
			a.scans = append(a.scans, count)
		}
		a.mu.Unlock()
		return next(ctx, cmd)
	}
}

// others is the number of foreign keys in the server of amongMany.
const others = 300_000

func amongMany(t *testing.T) (*redisadapter.Store, *redis.Client, *commandLog) {
	t.Helper()
	server := servertest.Private(t, servertest.KindRedis)
	client := redistest.Client(t, &redis.Options{Addr: server.Addr, ReadTimeout: time.Minute})
	must(t, client.Do(t.Context(), "DEBUG", "POPULATE", others, "cache", 8).Err())
	a := &commandLog{}
	client.AddHook(a)
	return open(t, redistest.Backend{Client: client, Prefix: "ow"}), client, a
}

// TestListAmongMany: on a server with many foreign keys a page ends when its time is over. It says
// how many keys it has looked at, and the next page continues. The server is asked in small steps.
func TestListAmongMany(t *testing.T) {
	store, client, a := amongMany(t)
	ctx := t.Context()
	for i := range 3 {
		wantOutcome(t, store, i, dedup.Acquired)
	}
	size := int64(keysOf(t, client))
	found, looked, pages := map[driver.ID]bool{}, int64(0), 0
	opts := redisadapter.ListOptions{Time: 20 * time.Millisecond, Scan: 1_000_000}
	for ; pages == 0 || opts.Cursor != ""; pages++ {
		page, err := store.List(ctx, opts)
		must(t, err)
		require.Equal(t, size, page.Total)
		require.GreaterOrEqual(t, page.Looked, int64(1))
		require.LessOrEqual(t, page.Looked, size)
		for _, e := range page.Entries {
			found[e.ID] = true
		}
		looked, opts.Cursor = looked+page.Looked, page.Cursor
	}
	assert.Len(t, found, 3, "%d keys in %d pages", len(found), pages)
	assert.GreaterOrEqual(t, pages, 2, "%d keys in %d pages", len(found), pages)
	assert.GreaterOrEqual(t, looked, size*8/10, "looked at %d of %d keys", looked, size)
	assert.LessOrEqual(t, looked, size*12/10, "looked at %d of %d keys", looked, size)
	require.NotEmpty(t, a.scans)
	assert.LessOrEqual(t, slices.Max(a.scans), 1000, "COUNT")
	assert.GreaterOrEqual(t, slices.Min(a.scans), 1, "COUNT")
	assert.Zero(t, a.keys, "KEYS")
	t.Logf("%d pages, %d SCANs", pages, len(a.scans))
}

// TestListShortOfTime: however short its time, each page looks further than the one before.
func TestListShortOfTime(t *testing.T) {
	b := redistest.Open(t, "redis")
	store := open(t, b)
	wantOutcome(t, store, 1, dedup.Acquired)
	opts, found := redisadapter.ListOptions{Time: 1}, 0
	for {
		page, err := store.List(t.Context(), opts)
		must(t, err)
		found += len(page.Entries)
		require.GreaterOrEqual(t, page.Looked, int64(1), "%+v", page)
		if opts.Cursor = page.Cursor; opts.Cursor == "" || found > 0 {
			break
		}
	}
	assert.Equal(t, 1, found, "found %d times", found)
}

// TestListIsNoLonger: a page has at most a few records more than its limit, because every record on
// it is read, and shown to a person.
func TestListIsNoLonger(t *testing.T) {
	_, client, store := private(t)
	const n = 600
	fillList(t, redistest.Backend{Client: client, Prefix: "ow"}, store, n)
	for _, limit := range []int{1, 10, 100} {
		opts, seen := redisadapter.ListOptions{Limit: limit}, map[driver.ID]bool{}
		for first := true; first || opts.Cursor != ""; first = false {
			page, err := store.List(t.Context(), opts)
			must(t, err)
			require.LessOrEqual(t, len(page.Entries), limit+40,
				"%d keys on a page of %d", len(page.Entries), limit)
			for _, e := range page.Entries {
				seen[e.ID] = true
			}
			opts.Cursor = page.Cursor
		}
		assert.Len(t, seen, 2*n, "%d keys of %d by pages of %d", len(seen), 2*n, limit)
	}
}

// TestScanKeys tests the scan that package console uses.
func TestScanKeys(t *testing.T) {
	store, client, _ := amongMany(t)
	wantOutcome(t, store, 1, dedup.Acquired)
	found := 0
	each := func(id driver.ID, r dedup.Record) {
		assert.Equal(t, newID(1), id, "%v, %+v", id, r)
		assert.Equal(t, driver.StateInProgress, r.State, "%v, %+v", id, r)
		found++
	}
	states := []driver.State{driver.StateInProgress}
	_, looked, _, foreign, err := store.ScanKeys(t.Context(), "", 0, 0, states, each)
	assert.NoError(t, err)
	assert.LessOrEqual(t, looked, int64(10_000+1000), "names that it looks at without a budget")
	assert.Zero(t, foreign)
	found = 0
	next, looked, total, foreign, err := store.ScanKeys(t.Context(), "", 0, time.Hour, states, each)
	size := int64(keysOf(t, client))
	assert.NoError(t, err)
	assert.Empty(t, next)
	assert.Equal(t, 1, found)
	assert.GreaterOrEqual(t, looked, size*8/10)
	assert.Equal(t, size, total)
	assert.Zero(t, foreign)
	_, _, _, _, err = store.ScanKeys(t.Context(), "x", 0, 0, states, each)
	require.Error(t, err)
	assert.Contains(t, err.Error(), "Cursor")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, _, _, err = store.ScanKeys(ctx, "", 0, time.Hour, states, each)
	assert.Equal(t, "context", redisadapter.Classify(err), err)
}
