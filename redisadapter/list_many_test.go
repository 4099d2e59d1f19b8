package redisadapter_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup"
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

// others is how many keys somebody else has in the server of amongMany.
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

// TestListAmongMany: in a cache that others share, a page ends when its time is over, says how far
// it has looked, and the next page continues; the server is asked in small steps.
func TestListAmongMany(t *testing.T) {
	store, client, a := amongMany(t)
	ctx := t.Context()
	for i := range 3 {
		wantOutcome(t, store, i, dedup.Acquired)
	}
	size := int64(keysOf(t, client))
	found, looked, pages := map[dedup.ID]bool{}, int64(0), 0
	opts := redisadapter.ListOptions{Time: 20 * time.Millisecond, Scan: 1_000_000}
	for ; pages == 0 || opts.Cursor != ""; pages++ {
		page, err := store.List(ctx, opts)
		must(t, err)
		if page.Total != size || page.Looked < 1 || page.Looked > size {
			t.Fatalf("looked at %d of %d, and there are %d", page.Looked, page.Total, size)
		}
		for _, e := range page.Entries {
			found[e.ID] = true
		}
		looked, opts.Cursor = looked+page.Looked, page.Cursor
	}
	if len(found) != 3 || pages < 2 {
		t.Errorf("%d keys in %d pages", len(found), pages)
	}
	if looked < size*8/10 || looked > size*12/10 {
		t.Errorf("looked at %d of %d keys", looked, size)
	}
	if len(a.scans) == 0 || slices.Max(a.scans) > 1000 || slices.Min(a.scans) < 1 || a.keys > 0 {
		t.Errorf("%d KEYS, COUNTs of %d to %d", a.keys, slices.Min(a.scans), slices.Max(a.scans))
	}
	t.Logf("%d pages, %d SCANs", pages, len(a.scans))
}

// TestListShortOfTime: whatever the time, a page looks further than the one before.
func TestListShortOfTime(t *testing.T) {
	b := redistest.Open(t, "redis")
	store := open(t, b)
	wantOutcome(t, store, 1, dedup.Acquired)
	opts, found := redisadapter.ListOptions{Time: 1}, 0
	for {
		page, err := store.List(t.Context(), opts)
		must(t, err)
		found += len(page.Entries)
		if page.Looked < 1 {
			t.Fatalf("%+v", page)
		}
		if opts.Cursor = page.Cursor; opts.Cursor == "" || found > 0 {
			break
		}
	}
	if found != 1 {
		t.Errorf("found %d times", found)
	}
}

// TestListIsNoLonger: a page is at most a few records longer than wanted, because every record that
// is found is read, and shown to a person.
func TestListIsNoLonger(t *testing.T) {
	_, client, store := private(t)
	const n = 600
	fillList(t, redistest.Backend{Client: client, Prefix: "ow"}, store, n)
	for _, limit := range []int{1, 10, 100} {
		opts, seen := redisadapter.ListOptions{Limit: limit}, map[dedup.ID]bool{}
		for first := true; first || opts.Cursor != ""; first = false {
			page, err := store.List(t.Context(), opts)
			must(t, err)
			if len(page.Entries) > limit+40 {
				t.Fatalf("%d keys on a page of %d", len(page.Entries), limit)
			}
			for _, e := range page.Entries {
				seen[e.ID] = true
			}
			opts.Cursor = page.Cursor
		}
		if len(seen) != 2*n {
			t.Errorf("%d keys of %d by pages of %d", len(seen), 2*n, limit)
		}
	}
}

// TestScanKeys is what package console asks.
func TestScanKeys(t *testing.T) {
	store, client, _ := amongMany(t)
	wantOutcome(t, store, 1, dedup.Acquired)
	found := 0
	each := func(id dedup.ID, r dedup.Record) {
		if id != newID(1) || r.State != dedup.StateInProgress {
			t.Errorf("%v, %+v", id, r)
		}
		found++
	}
	states := []dedup.State{dedup.StateInProgress}
	_, looked, _, foreign, err := store.ScanKeys(t.Context(), "", 0, 0, states, each)
	if err != nil || looked > 10_000+1000 || foreign != 0 {
		t.Errorf("without a budget it looks at %d names, %d foreign, %v", looked, foreign, err)
	}
	found = 0
	next, looked, total, foreign, err := store.ScanKeys(t.Context(), "", 0, time.Hour, states, each)
	if size := int64(keysOf(t, client)); err != nil || next != "" || found != 1 ||
		looked < size*8/10 || total != size || foreign != 0 {
		t.Errorf("%q, looked at %d of %d, %d found, %d foreign, %v", next, looked, total,
			found, foreign, err)
	}
	if _, _, _, _, err := store.ScanKeys(t.Context(), "x", 0, 0, states, each); err == nil ||
		!strings.Contains(err.Error(), "Cursor") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, _, _, err := store.ScanKeys(ctx, "", 0, time.Hour, states,
		each); redisadapter.Classify(err) != "context" {
		t.Error(err)
	}
}
