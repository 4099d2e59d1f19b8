package webhook_test

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter/webhook"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/redisadapter"
)

// asked counts the keys that a store is asked to claim.
type asked struct {
	dedup.Store
	keys atomic.Int64
}

func (a *asked) Claim(ctx context.Context, reqs []dedup.ClaimRequest) []dedup.Answer {
	a.keys.Add(int64(len(reqs)))
	return a.Store.Claim(ctx, reqs)
}

// flood sends 10,000 forged deliveries, each with an id and a body of its own.
func flood(t *testing.T, run func(webhook.Provider) *endpoint) {
	t.Helper()
	for name, forge := range map[string]func(string) *http.Request{
		"standard-webhooks": func(id string) *http.Request {
			r := standard(t, id, "{}")
			r.Header.Set("Webhook-Id", id+"x")
			return r
		},
		"github": func(id string) *http.Request {
			r := gitHub(id, "push", id)
			r.Header.Set("X-Hub-Signature-256", "sha256="+hexMAC("guess", id))
			return r
		},
	} {
		e := run(provider(t, name, map[string]string{"standard-webhooks": secret, "github": gitHubSecret}[name]))
		for i := range 5000 {
			if w := send(e, forge(fmt.Sprintf("evt_%d", i))); w.Code != http.StatusUnauthorized {
				t.Fatalf("%s: forged and answered with %d", name, w.Code)
			}
		}
		e.wantRuns(t, 0)
	}
}

// Nobody fills the store, or takes a key, without a secret.
func TestForgedDeliveriesMakeNoKeys(t *testing.T) {
	store := &asked{Store: dedup.Memory(100)}
	run := claimed(t, store, nil)
	open := func(p webhook.Provider) *endpoint { return newEndpoint(t, run, p, nil, webhook.Config{}) }
	flood(t, open)
	if n := store.keys.Load(); n != 0 {
		t.Errorf("%d keys were claimed", n)
	}
	wantOK(t, send(open(provider(t, "github", gitHubSecret)), gitHub("1", "push", "{}")))
	if n := store.keys.Load(); n != 1 {
		t.Errorf("an honest one claims %d keys: nothing is counted", n)
	}
}

func TestForgedDeliveriesMakeNoKeysInRedis(t *testing.T) {
	for _, name := range []string{"miniredis", "redis"} {
		t.Run(name, func(t *testing.T) {
			b := redistest.Open(t, name)
			store, err := redisadapter.New(t.Context(), b.Client, redisadapter.Options{Prefix: b.Prefix})
			if err != nil {
				t.Fatal(err)
			}
			count := func() (n int) {
				keys := b.Client.Scan(t.Context(), 0, b.Prefix+"*", 1000).Iterator()
				for keys.Next(t.Context()) {
					n++
				}
				if err := keys.Err(); err != nil {
					t.Fatal(err)
				}
				return n
			}
			run := claimed(t, store, nil)
			open := func(p webhook.Provider) *endpoint { return newEndpoint(t, run, p, nil, webhook.Config{}) }
			before := count()
			flood(t, open)
			if after := count(); after != before {
				t.Errorf("%d keys before, %d after", before, after)
			}
			wantOK(t, send(open(provider(t, "github", gitHubSecret)), gitHub("1", "push", "{}")))
			if after := count(); after <= before {
				t.Errorf("an honest one makes no key: %d before, %d after", before, after)
			}
		})
	}
}
