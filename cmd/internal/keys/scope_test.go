package keys

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/httpadapter"
	"github.com/onceward/onceward/httpadapter/webhook"
	"github.com/onceward/onceward/internal/keyname"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/redisadapter"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/sqlstore"
)

// twoStores are a Redis, and a database that needs no server.
var twoStores = map[string]func(*testing.T) *rig{
	"redis": func(t *testing.T) *rig {
		addr := servertest.Redis(t)
		return onRedis(t, redis.NewClient(&redis.Options{Addr: addr}), redisadapter.Full,
			"--redis", "redis://"+addr)
	},
	"sqlite": func(t *testing.T) *rig {
		file := filepath.Join(t.TempDir(), "claims.db")
		return onSQL(t, sqladapter.SQLite, "sqlite",
			"file:"+file+"?_txlock=immediate&_pragma=busy_timeout(5000)", "sqlite:"+file)
	},
}

// served has a request k1 of alice, the webhooks evt_A, signed, and 7, unsigned, and a gRPC call g1
// handled by run.
func served(t *testing.T, run httpadapter.Runner) {
	t.Helper()
	m, err := httpadapter.New(run, func(*http.Request) (string, error) {
		return "alice", nil
	}, httpadapter.Config{})
	require.NoError(t, err)
	r := httptest.NewRequest(http.MethodPost, "https://api.example/payments",
		strings.NewReader("{}"))
	r.Header.Set("Idempotency-Key", "k1")
	w := httptest.NewRecorder()
	m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
	})).ServeHTTP(w, r)
	require.Equal(t, http.StatusCreated, w.Code)

	for _, id := range []webhook.Identity{{ID: "evt_A", Signed: true}, {ID: "7", Type: "push"}} {
		p := webhook.Provider{Name: "stripe", Horizon: time.Minute,
			Verify: func(*webhook.Message) (webhook.Identity, error) { return id, nil }}
		receiver, err := webhook.New(run, p, func(context.Context, *webhook.Delivery) error {
			return nil
		}, webhook.Config{Endpoint: "billing"})
		require.NoError(t, err)
		w = httptest.NewRecorder()
		receiver.ServeHTTP(w, httptest.NewRequest(http.MethodPost,
			"/hooks", strings.NewReader(`{"id":1}`)))
		require.Equal(t, http.StatusOK, w.Code, w.Body)
	}
	_, err = run.Run(t.Context(), "g1", func(context.Context) ([]byte, bool, error) {
		return []byte("x"), false, nil
	},
		dedup.WithScope(keyname.ScopeGRPC("", "alice", "/pay.Pay/Charge")),
		func(r *dedup.Request) { r.Label = "/pay.Pay/Charge g1" })
	require.NoError(t, err)
	_, err = run.Run(t.Context(), "t1", func(context.Context) ([]byte, bool, error) {
		return []byte("x"), false, nil
	},
		dedup.WithScope(keyname.ScopeMCP("", "alice", "charge")))
	require.NoError(t, err)
	_, err = run.Run(t.Context(), "m1", func(context.Context) ([]byte, bool, error) {
		return []byte("x"), false, nil
	},
		dedup.WithScope(kafkaadapter.ScopeOf("billing", "orders")))
	require.NoError(t, err)
}

// asServed asks for each record by what a person knows of its request.
func asServed(t *testing.T, r *rig, more string) {
	t.Helper()
	body := filepath.Join(t.TempDir(), "body.json")
	require.NoError(t, os.WriteFile(body, []byte(`{"id":1}`), 0o600))
	for _, args := range []string{
		"inspect k1 --method post --url https://API.example:443/payments --principal alice",
		"inspect k1 --method POST --route api.example/payments --principal alice",
		"inspect evt_A --webhook stripe --endpoint billing",
		"inspect --webhook stripe --endpoint billing --event-type push --body " + body,
		"inspect m1 --group billing --topic orders",
		"inspect g1 --grpc /pay.Pay/Charge --principal alice",
		"inspect t1 --tool charge --principal alice",
		"explain evt_A --endpoint billing",
	} {
		r.wants(cli.Done, args+" --namespace shop"+more, "state", "succeeded")
	}
	r.wants(cli.No, "inspect k1 --method POST --url https://api.example/payments --principal bob --namespace shop"+more, "no record of", `principal "bob"`)
	// With the key alone: which keys have a scope, and the flags that give it.
	r.wants(cli.No, "inspect other --namespace shop"+more, "no record of", "have a scope",
		"--endpoint NAME [--webhook PROVIDER]", "--method METHOD --url", "--grpc", "--tool",
		"--group GROUP --topic TOPIC", "Redis: GROUP/STREAM", "Looked at:\n  the key itself")
}

func TestKeysWithAScope(t *testing.T) {
	for name, on := range twoStores {
		t.Run(name, func(t *testing.T) {
			r := on(t)
			d, err := dedup.New(r.store, dedup.Config{Namespace: "shop", Window: testWindow,
				LeaseTTL: time.Minute, Labels: true})
			require.NoError(t, err)
			t.Cleanup(func() { _ = d.Close(context.Background()) })
			run, err := httpadapter.Claimed(d)
			require.NoError(t, err)
			served(t, run)
			asServed(t, r, "")
			// Labels are kept, so the key alone, or its beginning, leads to its record. It does
			// not if the flags name another key.
			for _, args := range [][]string{{"evt_A", "--namespace", "shop"}, {"evt_A"},
				{"stripe billing e"}} {
				code, out, errOut := r.run(nil, append([]string{"inspect"}, args...)...)
				assert.Equal(t, cli.Done, code, errOut)
				assert.Contains(t, out, `"stripe billing evt_A"`)
				assert.Contains(t, out, "found by     its label\n")
			}
			r.wants(cli.No, "inspect evt --namespace shop", "no record of")
			r.wants(cli.No, "forget evt_A --namespace shop --yes", "no record of")
			r.wants(cli.No, "inspect k1 --method POST --url https://api.example/payments --principal bob --namespace shop", "no record of", `"POST /payments k1"`, "look with --id")
			r.wants(cli.Done, "forget k1 --method POST --url https://api.example/payments --principal alice --namespace shop --yes", "was succeeded, is absent")
		})
	}
}

// Marks have the scope, too. The forget of a record mentions --marks.
func TestMarksWithAScope(t *testing.T) {
	file := filepath.Join(t.TempDir(), "marks.db")
	db, err := sqladapter.OpenSQLite("sqlite",
		"file:"+file+"?_txlock=immediate&_pragma=busy_timeout(5000)")
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	marks, err := sqladapter.New(sqladapter.Config{Dialect: sqladapter.SQLite, Namespace: "shop",
		Window: testWindow})
	require.NoError(t, err)
	require.NoError(t, marks.Migrate(t.Context(), db))
	run, err := marks.Runner(db)
	require.NoError(t, err)
	served(t, run)
	r := &rig{t: t, flags: []string{"--sql", "sqlite:" + file}}
	asServed(t, r, " --marks")
	asServed(t, r, "")
	for _, args := range []string{"inflight", "inspect k1"} {
		_, _, errOut := r.run(strings.NewReader(""), strings.Fields(args)...)
		assert.Contains(t, errOut, "has a table of marks")
		assert.NotContains(t, errOut, "onceward migrate")
	}

	store, err := sqlstore.New(db, sqlstore.Options{Dialect: sqladapter.SQLite})
	require.NoError(t, err)
	require.NoError(t, store.Migrate(t.Context()))
	asServed(t, r, "")
}

func TestBeginningOfAnID(t *testing.T) {
	for name, on := range twoStores {
		t.Run(name, func(t *testing.T) {
			r := on(t)
			var reqs []driver.ClaimRequest
			for _, id := range []driver.ID{{0xab, 0xcd, 0x11}, {0xab, 0xcd, 0x12}} {
				reqs = append(reqs, driver.ClaimRequest{ID: id, Token: driver.Token{1},
					Lease: time.Minute, Hold: time.Minute, Label: "order 7"})
			}
			for _, a := range r.store.Claim(t.Context(), reqs) {
				require.NoError(t, a.Err)
			}
			r.wants(cli.Done, "inspect --id abcd11", "abcd1100000000000000000000000000",
				"in_progress")
			r.wants(cli.Done, "inspect --id urn:onceward:ABCD12", "abcd1200000000000000000000000000",
				"in_progress")
			r.wants(cli.No, "inspect --id abcd1", "2 keys fit: look with --id", "abcd1100",
				"abcd1200", `"order 7"`)
			r.wants(cli.No, "inspect --id abcd13", "no key in the store")
			r.wants(cli.No, "forget --id abcd11 --yes", "in flight")
			r.wants(cli.Usage, "inspect --id abc", "not 32 hex digits")
			r.wants(cli.Usage, "inspect --id abcz", "not 32 hex digits")
		})
	}
}
