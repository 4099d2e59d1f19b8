package webhook_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/httpadapter"
	"github.com/onceward/onceward/httpadapter/webhook"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/redisadapter"
)

// claimCounter counts the keys that a store is asked to claim.
type claimCounter struct {
	dedup.Store
	keys atomic.Int64
}

func (a *claimCounter) Claim(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
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
		e := run(provider(t, name,
			map[string]string{"standard-webhooks": secret, "github": gitHubSecret}[name]))
		for i := range 5000 {
			w := send(e, forge(fmt.Sprintf("evt_%d", i)))
			require.Equal(t, http.StatusUnauthorized, w.Code, "%s: forged and answered", name)
		}
		e.wantRuns(t, 0)
	}
}

// Without a secret nobody can fill the store or take a key.
func TestForgedDeliveriesMakeNoKeys(t *testing.T) {
	store := &claimCounter{Store: dedup.Memory(100)}
	run := claimed(t, store, nil)
	open := func(p webhook.Provider) *endpoint {
		return newEndpoint(t, run, p, nil, webhook.Config{})
	}
	flood(t, open)
	assert.Zero(t, store.keys.Load(), "forged")
	wantOK(t, send(open(provider(t, "github", gitHubSecret)), gitHub("1", "push", "{}")))
	assert.EqualValues(t, 1, store.keys.Load(), "an honest one")
}

func TestForgedDeliveriesMakeNoKeysInRedis(t *testing.T) {
	for _, name := range []string{"miniredis", "redis"} {
		t.Run(name, func(t *testing.T) {
			b := redistest.Open(t, name)
			store, err := redisadapter.New(t.Context(), b.Client,
				redisadapter.Options{Prefix: b.Prefix})
			require.NoError(t, err)
			count := func() (n int) {
				keys := b.Client.Scan(t.Context(), 0, b.Prefix+"*", 1000).Iterator()
				for keys.Next(t.Context()) {
					n++
				}
				require.NoError(t, keys.Err())
				return n
			}
			run := claimed(t, store, nil)
			open := func(p webhook.Provider) *endpoint {
				return newEndpoint(t, run, p, nil, webhook.Config{})
			}
			before := count()
			flood(t, open)
			assert.Equal(t, before, count(), "forged")
			wantOK(t, send(open(provider(t, "github", gitHubSecret)), gitHub("1", "push", "{}")))
			assert.Greater(t, count(), before, "an honest one")
		})
	}
}

// The Runner gets no forged, stale or malformed delivery. If its key were claimed first, anybody
// could take the key of a later event.
func TestTheRunnerIsNotAskedAboutForgedDeliveries(t *testing.T) {
	asked := 0
	run := &fake{limit: 100, do: func(context.Context, string, httpadapter.Effect,
		dedup.Request) (dedup.Result[[]byte], error) {
		asked++
		return dedup.Result[[]byte]{Outcome: dedup.Duplicate}, nil
	}}
	for _, v := range vectors(t) {
		e := newEndpoint(t, run, provider(t, v.Provider, v.Secrets...), nil, webhook.Config{})
		for what, change := range map[string]func(h http.Header, name string){
			"stale or as it was": func(http.Header, string) {}, // the vectors are of 2023
			"unsigned":           func(h http.Header, name string) { h.Del(name) },
			"signed twice":       func(h http.Header, name string) { h.Add(name, h.Get(name)) },
			"signed by another": func(h http.Header, name string) {
				h.Set(name, strings.NewReplacer("a", "b", "0", "1").Replace(h.Get(name)))
			},
		} {
			for name := range v.Header {
				m := v.message()
				change(m.Header, name)
				body := v.Body
				if v.Sent == 0 && what != "unsigned" {
					body += " " // it has no time, so it cannot be stale
				}
				asked = 0
				w := send(e, request(m.Header, body))
				assert.GreaterOrEqual(t, w.Code, 400, "%s, %s, %s %s", v.Provider, v.Name, name,
					what)
				assert.LessOrEqual(t, w.Code, 499, "%s, %s, %s %s", v.Provider, v.Name, name, what)
				assert.Equal(t, 0, asked, "%s, %s, %s %s: the Runner was asked", v.Provider, v.Name,
					name, what)
			}
		}
	}
	wantOK(t, send(newEndpoint(t, run, provider(t, "standard-webhooks", secret),
		nil, webhook.Config{}), standard(t, "1", "{}")))
	assert.Equal(t, 1, asked, "an honest one")
}
