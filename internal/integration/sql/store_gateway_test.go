package sql_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/resolver"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/sqlstore"
)

// gateway takes payments under an idempotency key, and counts them. It can leave the next questions
// without an answer.
type gateway struct {
	url string

	mu      sync.Mutex
	asked   map[string]int // requests to charge
	charged map[string]int // charges that were made
	asking  map[string]bool
	silent  int
}

func newGateway(t *testing.T) *gateway {
	t.Helper()
	g := &gateway{asked: map[string]int{}, charged: map[string]int{}, asking: map[string]bool{}}
	server := httptest.NewServer(g)
	t.Cleanup(server.Close)
	g.url = server.URL
	return g
}

// ServeHTTP: POST /key charges, GET /key returns the charge.
func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	key := strings.TrimPrefix(r.URL.Path, "/")
	switch {
	case r.Method == http.MethodPost:
		g.asked[key]++
		g.charged[key] = 1
	case g.silent > 0:
		g.silent--
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case g.charged[key] == 0:
		w.WriteHeader(http.StatusNotFound)
		return
	}
	_, _ = io.WriteString(w, "receipt of "+key)
}

// counts returns the charges and the requests to charge, of all keys together.
func (g *gateway) counts() (charges, requests int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for key := range g.asked {
		charges += g.charged[key]
		requests += g.asked[key]
	}
	return charges, requests
}

// one counts the callers that ask about a key: two at once are an error.
func (g *gateway) one(t *testing.T, key string, asking bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	assert.False(t, asking && g.asking[key], "two ask about one key at a time")
	g.asking[key] = asking
}

func call(ctx context.Context, method, url string) (status int, body string, err error) {
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return 0, "", err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	return res.StatusCode, string(b), err
}

// payJob is the job of a worker. The parent passes it to its child.
type payJob struct {
	Driver, DSN, Table, Gateway, Key, DieAt string
	Dialect                                 sqladapter.Dialect
}

const (
	payLease  = time.Minute // does not lapse while its owner lives, on whichever machine
	payWindow = time.Hour
)

func (j *payJob) deduper(t *testing.T) *dedup.Deduper {
	t.Helper()
	db := openDB(t, j.Driver, j.DSN)
	d, err := dedup.New(newStore(t, db, j.Dialect, j.Table), dedup.Config{
		Namespace: "payments", Window: payWindow, LeaseTTL: payLease, Labels: true,
	})
	require.NoError(t, err)
	return d
}

// pay charges once, as the documentation says: MarkIrreversible before the request. It calls at at
// each point where a worker may die.
func (j *payJob) pay(ctx context.Context, d *dedup.Deduper, at func(point string)) (string, error) {
	res, err := dedup.DoResult(ctx, d, j.Key, func(ctx context.Context) (string, error) {
		attempt, _ := dedup.FromContext(ctx)
		at("before danger")
		if err := dedup.MarkIrreversible(ctx); err != nil {
			return "", dedup.NotStarted(err)
		}
		at("before the call")
		status, receipt, err := call(ctx, http.MethodPost,
			j.Gateway+"/"+attempt.DownstreamKey("charge"))
		if err == nil && status != http.StatusOK {
			err = errors.New(http.StatusText(status))
		}
		if err != nil {
			return "", fmt.Errorf("charge: %w", err)
		}
		at("after the call")
		return receipt, nil
	}, func(r *dedup.Request) { r.Label = j.Key })
	return res.Value, err
}

const payChild = "ONCEWARD_TEST_PAY_CHILD"

// TestPayChild is the worker that is killed. It does nothing by itself.
func TestPayChild(t *testing.T) {
	task := os.Getenv(payChild)
	if task == "" {
		return
	}
	var j payJob
	require.NoError(t, json.Unmarshal([]byte(task), &j))
	die := func(point string) {
		if point == j.DieAt {
			fmt.Println("ready")
			<-context.Background().Done() // the parent's SIGKILL ends it
		}
	}
	_, err := j.pay(t.Context(), j.deduper(t), die)
	require.NoError(t, err)
	die("after the record")
	t.Fatalf("it was not to die at %q", j.DieAt)
}

// kill runs the job in a child, kills it where it is to die, and has its lease lapse.
func (j *payJob) kill(t *testing.T, db *sql.DB) {
	t.Helper()
	task, err := json.Marshal(j)
	require.NoError(t, err)
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPayChild$")
	child.Env = append(os.Environ(), payChild+"="+string(task))
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	assert.NoError(t, child.Process.Kill())
	_ = child.Wait() // always an error: it was killed
	require.NoError(t, err)
	require.Equal(t, "ready\n", line, "the child")
	lapse(t, db, j.Dialect, j.Table, mustID(t, "payments", j.Key), payLease)
}

// resolverOf returns a resolver that asks the gateway, as a user's does.
func resolverOf(t *testing.T, store *sqlstore.Store, g *gateway,
	edit func(*resolver.Config)) *resolver.Resolver {
	t.Helper()
	cfg := resolver.Config{
		Window: payWindow, Lease: payLease, Every: 50 * time.Millisecond,
		Wait: 20 * time.Millisecond, Failed: func(err error) { t.Logf("resolver: %v", err) },
		Ask: func(ctx context.Context, d resolver.UncertainRecord) (dedup.Resolution, error) {
			key := d.ID.DownstreamKey("charge")
			g.one(t, key, true)
			defer g.one(t, key, false)
			assert.NotEmpty(t, d.Record.Label, "the record that Ask gets")
			assert.Equal(t, 1, d.Record.Attempt, "the record that Ask gets")
			assert.False(t, d.Age <= 0, "the record that Ask gets")
			assert.GreaterOrEqual(t, d.Asked, 1, "the record that Ask gets")
			status, receipt, err := call(ctx, http.MethodGet, g.url+"/"+key)
			switch {
			case err != nil:
				return dedup.Resolution{}, err
			case status == http.StatusOK:
				return dedup.Happened([]byte(receipt)), nil
			case status == http.StatusNotFound:
				return dedup.DidNotHappen(), nil
			}
			return dedup.Resolution{}, nil
		},
	}
	edit(&cfg)
	r, err := resolver.New(store, cfg)
	require.NoError(t, err)
	return r
}

// untilDefinite is how long a key may stay uncertain after its lease has lapsed: one pass and a few
// questions. The rest is for a slow machine.
const untilDefinite = 30 * time.Second

// TestGatewayChargedOnce kills a worker at each point of a payment, with two resolvers at
// work and the message delivered again all the while.
func TestGatewayChargedOnce(t *testing.T) {
	noEdit := func(*resolver.Config) {}
	forEachStore(t, func(t *testing.T, e storeEngine) {
		g := newGateway(t)
		dsn := e.dsn(t)
		e.dsn = func(testing.TB) string { return dsn }
		store, db, table := openStore(t, e)
		ctx, stop := context.WithCancelCause(t.Context())
		var running sync.WaitGroup
		for range 2 {
			r := resolverOf(t, store, g, noEdit)
			running.Go(func() {
				assert.ErrorIs(t, r.Run(ctx), errStopped)
			})
		}
		charges := 0
		for _, point := range []string{"before danger", "before the call", "after the call",
			"after the record"} {
			j := &payJob{Driver: e.driver, DSN: dsn, Table: table, Dialect: e.dialect,
				Gateway: g.url, Key: "order, killed " + point, DieAt: point}
			g.mu.Lock()
			g.silent = 2 // the first questions get no answer
			g.mu.Unlock()
			j.kill(t, db)
			receipt, took := redeliverPayment(t, j)
			charges++
			made, requests := g.counts()
			assert.Equal(t, charges, made, "killed %s", point)
			assert.Equal(t, charges, requests, "killed %s", point)
			assert.True(t, strings.HasPrefix(receipt, "receipt of "),
				"killed %s: the receipt is %q", point, receipt)
			t.Logf("killed %s: definite after %v", point, took)
		}
		stop(errStopped)
		running.Wait()
	})
}

// redeliverPayment delivers until the message may be acknowledged.
func redeliverPayment(t *testing.T, j *payJob) (receipt string, took time.Duration) {
	t.Helper()
	d, began := j.deduper(t), time.Now()
	for time.Since(began) < untilDefinite {
		receipt, err := j.pay(t.Context(), d, func(string) {})
		if err == nil {
			return receipt, time.Since(began)
		}
		// On a busy machine the answer to a claim may also come too late.
		require.True(t, errors.Is(err, dedup.ErrUncertain) || errors.Is(err, dedup.ErrInFlight) ||
			dedup.OutcomeUnknown(err), "redelivery: %v", err)
	}
	t.Fatalf("nobody knows for %v", untilDefinite)
	return "", 0
}

// killedAfterTheCall leaves an uncertain key, whose charge was made.
func killedAfterTheCall(t *testing.T, e storeEngine, g *gateway) (*sqlstore.Store, *payJob) {
	t.Helper()
	dsn := e.dsn(t)
	e.dsn = func(testing.TB) string { return dsn }
	store, db, table := openStore(t, e)
	j := &payJob{Driver: e.driver, DSN: dsn, Table: table, Dialect: e.dialect, Gateway: g.url,
		Key: "order", DieAt: "after the call"}
	j.kill(t, db)
	began := time.Now()
	for page := (sqlstore.Page{}); len(page.Entries) == 0; {
		var err error
		page, err = store.List(t.Context(),
			sqlstore.ListOptions{States: []driver.State{driver.StateUncertain}})
		require.NoError(t, err, "its lease does not lapse")
		require.LessOrEqual(t, time.Since(began), untilDefinite, "its lease does not lapse")
	}
	return store, j
}

// TestGatewayPolicies: a held key stays, whoever delivers again, until an operator releases it.
// A key with the policy to rerun runs again. The resolver asks about a key only a bounded number
// of times.
func TestGatewayPolicies(t *testing.T) {
	alarms := func(cfg *resolver.Config, told *[]string) {
		cfg.Alarm = func(d resolver.UncertainRecord, why string) {
			*told = append(*told, d.Record.Label+": "+why)
		}
	}
	pass := func(t *testing.T, r *resolver.Resolver, want resolver.Resolved) {
		t.Helper()
		got, err := r.Pass(t.Context())
		require.NoError(t, err)
		assert.Equal(t, want, got, "a pass has found")
	}
	t.Run("hold", func(t *testing.T) {
		g := newGateway(t)
		store, j := killedAfterTheCall(t, storeSQLite, g)
		var told []string
		r := resolverOf(t, store, g, func(cfg *resolver.Config) {
			cfg.Policy, cfg.Ask = resolver.PolicyHold, nil
			alarms(cfg, &told)
		})
		d := j.deduper(t)
		for range 3 {
			pass(t, r, resolver.Resolved{Held: 1})
			_, err := j.pay(t.Context(), d, func(string) {})
			assert.ErrorIs(t, err, dedup.ErrUncertain, "a delivery of a held key")
		}
		require.Len(t, told, 1, "alarms")
		assert.Equal(t, "order: it is held", told[0], "alarms")
		_, err := d.Mark(t.Context(), j.Key)
		assert.NoError(t, err, "the operator's Mark")
		pass(t, r, resolver.Resolved{})
		charges, requests := g.counts()
		assert.Equal(t, 1, charges)
		assert.Equal(t, 1, requests)
	})
	t.Run("rerun", func(t *testing.T) {
		g := newGateway(t)
		store, j := killedAfterTheCall(t, storeSQLite, g)
		r := resolverOf(t, store, g, func(cfg *resolver.Config) {
			cfg.Policy, cfg.Ask = resolver.PolicyRerun, nil
		})
		pass(t, r, resolver.Resolved{Released: 1})
		rec := lookupOne(t, store,
			mustID(t, "payments", j.Key))
		assert.Equal(t, driver.StateReleased, rec.State, "released by the policy")
		assert.Equal(t, 1, rec.Attempt, "released by the policy")
		assert.False(t, rec.Irreversible, "released by the policy")
		_, took := redeliverPayment(t, j)
		assert.LessOrEqual(t, took, untilDefinite)
		charges, requests := g.counts()
		assert.Equal(t, 1, charges)
		assert.Equal(t, 2, requests)
	})
	t.Run("asked in vain", func(t *testing.T) {
		g := newGateway(t)
		store, _ := killedAfterTheCall(t, storeSQLite, g)
		g.silent = 1000
		var told []string
		asks := 0
		r := resolverOf(t, store, g, func(cfg *resolver.Config) {
			cfg.MaxAsks, cfg.AlarmAge = 3, time.Hour
			// half of it is zero, because the clock counts in ms
			cfg.Wait, cfg.MaxWait = time.Nanosecond, time.Nanosecond
			alarms(cfg, &told)
			ask := cfg.Ask
			cfg.Ask = func(ctx context.Context, d resolver.UncertainRecord) (dedup.Resolution,
				error) {
				asks++
				assert.Equal(t, asks, d.Asked)
				return ask(ctx, d)
			}
		})
		for range 3 {
			pass(t, r, resolver.Resolved{Unknown: 1})
		}
		pass(t, r, resolver.Resolved{Held: 1})
		pass(t, r, resolver.Resolved{Held: 1})
		assert.Equal(t, 3, asks)
		require.Len(t, told, 1)
		assert.Equal(t, "order: it was asked about 3 times", told[0])
	})
	t.Run("age", func(t *testing.T) {
		g := newGateway(t)
		store, _ := killedAfterTheCall(t, storeSQLite, g)
		g.silent = 1
		var told []string
		r := resolverOf(t, store, g, func(cfg *resolver.Config) {
			cfg.AlarmAge, cfg.Wait = time.Microsecond, time.Hour
			cfg.MaxWait = time.Hour
			alarms(cfg, &told)
		})
		pass(t, r, resolver.Resolved{Unknown: 1})
		pass(t, r, resolver.Resolved{Waiting: 1})
		require.Len(t, told, 1, "alarms")
		assert.Equal(t, "order: nobody has known for 1µs", told[0], "alarms")
	})
}
