package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/httpadapter/webhook"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/redisadapter"
)

var testSecrets = secrets{billing: "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX",
	github: "It's a Secret to Everybody"}

// effects counts the runs of a handler by event.
type effects struct {
	mu   sync.Mutex
	runs map[string]int
	fail func(d *webhook.Delivery) error
}

func (e *effects) handle(_ context.Context, d *webhook.Delivery) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.runs == nil {
		e.runs = map[string]int{}
	}
	e.runs[d.ID]++
	if e.fail != nil {
		return e.fail(d)
	}
	return nil
}

// forEach runs a test on the embedded Redis, and on a real one if there is one.
func forEach(t *testing.T, test func(t *testing.T, e *effects, base string)) {
	for name, address := range map[string]func(testing.TB) string{
		"embedded": func(testing.TB) string { return "" },
		"redis":    func(t testing.TB) string { return "redis://" + servertest.Redis(t) },
	} {
		t.Run(name, func(t *testing.T) {
			client, closeRedis, err := connect(address(t))
			require.NoError(t, err)
			t.Cleanup(closeRedis)
			e := &effects{}
			store, err := redisadapter.New(t.Context(),
				client, redisadapter.Options{OnFinding: func(preflight.Finding) {}})
			require.NoError(t, err)
			d, err := newDeduper(store, servertest.Prefix(t))
			require.NoError(t, err)
			t.Cleanup(func() { _ = d.Close(context.WithoutCancel(t.Context())) })
			h, err := newReceivers(d, testSecrets, e.handle)
			require.NoError(t, err)
			server := httptest.NewServer(h)
			t.Cleanup(server.Close)
			test(t, e, server.URL)
		})
	}
}

func want(t *testing.T, status int, base, path, id, body, secret string) {
	t.Helper()
	got, err := deliver(t.Context(), base+path, id, body, secret)
	assert.NoError(t, err, "%s %s", path, id)
	assert.Equal(t, status, got, "%s %s", path, id)
}

const (
	paid = `{"type":"invoice.paid","amount":100}`
	push = `{"ref":"refs/heads/main"}`
)

func TestThreeDeliveriesAreOneEffect(t *testing.T) {
	forEach(t, func(t *testing.T, e *effects, base string) {
		for range 3 {
			want(t, http.StatusOK, base, "/hooks/billing", "msg_1", paid, testSecrets.billing)
			want(t, http.StatusOK, base, "/hooks/github", "delivery-1", push, testSecrets.github)
		}
		want(t, http.StatusUnauthorized, base, "/hooks/billing", "msg_2", paid,
			"whsec_BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB")
		want(t, http.StatusUnauthorized, base, "/hooks/github", "delivery-2", push, "another")
		want(t, http.StatusUnprocessableEntity, base, "/hooks/github", "delivery-3", push,
			testSecrets.github)
		want(t, http.StatusOK, base, "/hooks/billing", "msg_3", `{"type":"customer.seen"}`,
			testSecrets.billing)
		assert.Equal(t, map[string]int{"msg_1": 1, "delivery-1": 1}, e.runs, "effects")
	})
}

func TestAtTheSameTime(t *testing.T) {
	forEach(t, func(t *testing.T, e *effects, base string) {
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				status, err := deliver(t.Context(), base+"/hooks/billing", "msg_1", paid,
					testSecrets.billing)
				// in flight: the sender tries again
				assert.NoError(t, err, status)
				assert.False(t, status != http.StatusOK && status != http.StatusConflict, "%v %v",
					status, err)
			})
		}
		wg.Wait()
		want(t, http.StatusOK, base, "/hooks/billing", "msg_1", paid, testSecrets.billing)
		assert.Equal(t, 1, e.runs["msg_1"], "effects: %v", e.runs)
	})
}

func TestFailures(t *testing.T) {
	forEach(t, func(t *testing.T, e *effects, base string) {
		e.fail = func(d *webhook.Delivery) error {
			if d.ID == "msg_bad" {
				return dedup.Permanent(errors.New("no such invoice"))
			}
			if e.runs[d.ID] < 3 {
				return errors.New("not now")
			}
			return nil
		}
		want(t, http.StatusInternalServerError, base, "/hooks/billing", "msg_1",
			paid, testSecrets.billing)
		want(t, http.StatusInternalServerError, base, "/hooks/billing", "msg_1",
			paid, testSecrets.billing)
		for range 2 {
			want(t, http.StatusOK, base, "/hooks/billing", "msg_1", paid, testSecrets.billing)
			want(t, http.StatusOK, base, "/hooks/billing", "msg_bad", paid, testSecrets.billing)
		}
		assert.Equal(t, map[string]int{"msg_1": 3, "msg_bad": 1}, e.runs, "runs")
	})
}

func TestTry(t *testing.T) {
	assert.NoError(t, run("127.0.0.1:0", "", true))
}

// TestSecrets: no receiver of real events uses a secret from the source.
func TestSecrets(t *testing.T) {
	env := map[string]string{"BILLING_SECRET": testSecrets.billing}
	get := func(name string) string { return env[name] }
	_, err := readSecrets(get, false)
	assert.Error(t, err, "without a secret of GitHub's")
	env["GITHUB_SECRET"] = "mine"
	s, err := readSecrets(get, false)
	assert.NoError(t, err)
	assert.Equal(t, secrets{billing: testSecrets.billing, github: "mine"}, s)
}
