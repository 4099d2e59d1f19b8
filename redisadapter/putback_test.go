package redisadapter_test

import (
	"testing"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/redisadapter"
)

// TestPutBackKeepsTheLease: a completion of an owner whom Forget has cut off meets the next owner's
// claim. Whether it overwrites that, because its clock is slow, and puts it back, or does not: that
// claim must have the lease it had, or a third owner runs at the same time.
func TestPutBackKeepsTheLease(t *testing.T) {
	for name, row := range map[string]struct {
		window time.Duration
		until  time.Time
	}{
		"short window":                  {10 * time.Minute, time.Time{}},
		"long window":                   {72 * time.Hour, time.Time{}},
		"short window, by a slow clock": {10 * time.Minute, time.Now().Add(time.Hour)},
		"long window, by a slow clock":  {72 * time.Hour, time.Now().Add(time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			mini, client := redistest.Freeze(t)
			store := openWith(t, redistest.Backend{Client: client, Prefix: "ow"},
				redisadapter.Options{})
			b := &bench{t, store, mini, client}
			first := b.claim(request(1))
			mini.Advance(2 * time.Minute) // the lease of a minute lapses
			for _, err := range b.Forget(t.Context(), []dedup.ID{newID(1)}, time.Hour) {
				must(t, err)
			}
			second := b.claim(tokened(2))
			if second.Outcome != dedup.Acquired || second.Record.Fence <= first.Record.Fence {
				t.Fatalf("second: %+v", second)
			}
			late := change(1, dedup.StateSucceeded)
			late.SeenOnly, late.Landed, late.Fence = true, true, first.Record.Fence
			late.Window, late.Until = row.window, row.until
			b.finish(late)
			rec := b.lookup(1)
			if rec.State != dedup.StateInProgress || rec.Remaining > time.Minute ||
				rec.Remaining < 50*time.Second {
				t.Errorf("the second owner's claim: %v, remaining %v", rec.State, rec.Remaining)
			}
			if a := b.claim(tokened(3)); a.Outcome != dedup.InFlight {
				t.Errorf("a third claim is %v while the second owner has the key", a.Outcome)
			}
		})
	}
}

func tokened(token byte) dedup.ClaimRequest {
	r := request(1)
	r.Token = dedup.Token{0xff, token}
	return r
}

// TestPutBackKeepsTheExpiry: a value of a newer version that a completion has overwritten is put
// back as it was, with its expiry. Without an expiry it would stay forever, and even its own
// version would take it for unreadable.
func TestPutBackKeepsTheExpiry(t *testing.T) {
	mini, client := redistest.Freeze(t)
	store := openWith(t, redistest.Backend{Client: client, Prefix: "ow"},
		redisadapter.Options{})
	b := &bench{t, store, mini, client}
	first := b.claim(request(1))
	key := redisadapter.Key(store, newID(1))
	must(t, client.Set(t.Context(), key, "\x02 a record of version 2, which has taken the key over",
		time.Hour).Err())
	late := change(1, dedup.StateSucceeded)
	late.SeenOnly, late.Landed, late.Fence, late.Until = true, true, first.Record.Fence,
		time.Now().Add(time.Hour)
	b.Finish(t.Context(), []dedup.Finish{late})
	if ttl := client.PTTL(t.Context(), key).Val(); ttl <= 0 || ttl > time.Hour {
		t.Errorf("it expires in %v", ttl)
	}
}
