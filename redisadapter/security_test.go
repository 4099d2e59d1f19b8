package redisadapter_test

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/redisadapter"
)

// S-7: a caller that asks for a key in flight again and again does no harm to its owner. Nothing is
// written, and the lease ends at the same time.
func TestS07BusyAnswersWriteNothing(t *testing.T) {
	eachLayout(t, func(t *testing.T, layout redisadapter.Layout) {
		m, client := redistest.Freeze(t)
		store, err := redisadapter.New(t.Context(), client, options(layout))
		must(t, err)
		wantOutcome(t, store, 1, dedup.Acquired)
		before := m.Dump()
		m.Advance(time.Second)
		for i := range 200 {
			busy := request(1)
			busy.Token = driver.Token{byte(i), byte(i >> 8), 0xbb}
			busy.LikelyDuplicate = i%2 == 0
			a := store.Claim(t.Context(), []driver.ClaimRequest{busy})[0]
			require.Equal(t, dedup.InFlight, a.Outcome, "%d: %+v", i, a)
			require.LessOrEqual(t, a.Record.Remaining, time.Minute-time.Second, "%d: %+v", i, a)
		}
		after := m.Dump()
		assert.Equal(t, before, after, "something was written:\n%s\nwas\n%s", after, before)
		m.Advance(time.Minute)
		late := request(1)
		late.Token = driver.Token{0xcc}
		a := store.Claim(t.Context(), []driver.ClaimRequest{late})[0]
		assert.Equal(t, dedup.Acquired, a.Outcome, "after the lease: %+v", a)
		assert.Equal(t, 2, a.Record.Attempt, "after the lease: %+v", a)
	})
}

// hostile are keys that would do harm if they were put into the name of a Redis key, a script or
// a log as they are.
var hostile = []string{
	"}evt_1", "{hot}1", "{hot}2", "ow:layout", "*", "?[a-z]", `"; redis.call('FLUSHALL') --`,
	"]]", "%s%n", strings.Repeat("é", 127),
}

// S-9: a user's key is never part of a name. So braces in it choose no slot, and nothing is
// injected.
func TestS09KeysOfUsersAreDigests(t *testing.T) {
	b := redistest.Open(t, "miniredis")
	store := open(t, b)
	d, err := dedup.New(store,
		dedup.Config{Namespace: "s09", Window: time.Hour, LeaseTTL: time.Minute})
	must(t, err)
	t.Cleanup(func() { must(t, d.Close(context.Background())) })
	for _, key := range hostile {
		_, err := dedup.Do(t.Context(), d, key, func(context.Context) (struct{}, error) {
			return struct{}{}, nil
		}, dedup.WithScope(key))
		must(t, err)
	}
	names, err := b.Client.Keys(t.Context(), "*").Result()
	must(t, err)
	slots := map[string]bool{}
	ours := regexp.MustCompile(`^` + regexp.QuoteMeta(b.Prefix) + `:(\{[A-Za-z0-9_-]{22}\})$`)
	for _, name := range names {
		if name == b.Prefix+":layout" || name == b.Prefix+":irreversible_complete" {
			continue
		}
		tag := ours.FindStringSubmatch(name)
		if !assert.NotNil(t, tag, "the name %q", name) {
			continue
		}
		slots[tag[1]] = true
		value, err := b.Client.Get(t.Context(), name).Bytes()
		must(t, err)
		for _, key := range hostile {
			assert.False(t, len(key) > 2 && bytes.Contains(value, []byte(key)),
				"%q is in the record %q", key, value)
		}
	}
	assert.Len(t, slots, len(hostile),
		"%d hash tags for %d keys: %q", len(slots), len(hostile), names)
	for _, prefix := range []string{"a b", "a{b", "a}b", "a:b", "a\nb",
		"*", strings.Repeat("p", 65), "é"} {
		_, err := redisadapter.New(t.Context(), b.Client, redisadapter.Options{Prefix: prefix})
		wantInput(t, err, "Options.Prefix")
	}
}

// S-14: a preflight sends only INFO, so it needs no right that the store does not need.
func TestS14PreflightAsksForInfoAlone(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	fake := redistest.Fake(t, func(args []string) string {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, strings.ToUpper(args[0]))
		return infoReply(nil)
	})
	_, err := redisadapter.Preflight(t.Context(), redistest.Client(t, fake))
	must(t, err)
	mu.Lock()
	defer mu.Unlock()
	assert.NotEmpty(t, asked, "nothing was asked")
	for _, command := range asked {
		assert.Equal(t, "INFO", command, "it asks for %s", command)
	}
}

// S-11: labels are an index of a tenant's records, which can be forgotten by label. Then an owner
// that was still running records nothing.
func TestS11ForgetByLabel(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		store := open(t, b)
		d, err := dedup.New(store,
			dedup.Config{Namespace: "s11", Window: time.Hour, LeaseTTL: time.Minute,
				Labels: true})
		must(t, err)
		t.Cleanup(func() { must(t, d.Close(context.Background())) })
		run := func(tenant string, i int) dedup.Result[string] {
			res, err := dedup.DoResult(t.Context(), d, fmt.Sprint("key-", i),
				func(context.Context) (string, error) { return "private", nil },
				dedup.WithScope(tenant), func(r *dedup.Request) { r.Label = tenant })
			must(t, err)
			return res
		}
		const each = 20
		for i := range each {
			run("erased", i)
			run("kept", i)
		}
		found, _, _ := listAll(t, store,
			redisadapter.ListOptions{States: []driver.State{driver.StateSucceeded}})
		var ids []driver.ID
		for id, rec := range found {
			if rec.Label == "erased" {
				ids = append(ids, id)
			}
		}
		require.Len(t, ids, each, "listed %d of %d", len(ids), len(found))
		require.Len(t, found, 2*each, "listed %d of %d", len(ids), len(found))
		for _, err := range store.Forget(t.Context(), ids, time.Hour) {
			must(t, err)
		}
		for _, id := range ids {
			raw, err := b.Client.Get(t.Context(), redisadapter.Key(store, id)).Result()
			must(t, err)
			assert.NotContains(t, raw, "private", "there is still %q", raw)
			assert.NotContains(t, raw, "erased", "there is still %q", raw)
		}
		res := run("kept", 0)
		assert.Equal(t, dedup.Duplicate, res.Outcome, "the other tenant")
		res = run("erased", 0)
		assert.Equal(t, dedup.Acquired, res.Outcome, "the erased tenant")
	})
}
