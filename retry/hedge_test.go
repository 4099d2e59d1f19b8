package retry_test

import (
	"context"
	"io"
	"math"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/retry"
)

func hedged(t *testing.T, base http.RoundTripper, cfg retry.TransportConfig) *retry.Transport {
	t.Helper()
	cfg.HedgeAfter = 100 * time.Millisecond
	return transport(t, base, cfg)
}

// The second copy answers. The first is canceled and its body is closed. No goroutine stays, or the
// bubble would not end.
func TestHedgeWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &script{steps: []step{slow(time.Hour, answer(200, "slow")),
			slow(10*time.Millisecond, answer(200, "fast"))}}
		b := &breaker{limit: 1}
		var told []retry.Event
		cfg := retry.TransportConfig{GenerateKeys: everybody, Breaker: b}
		cfg.Policy.OnRetry = func(e retry.Event) { told = append(told, e) }
		start := time.Now()
		resp, err := hedged(t, base, cfg).RoundTrip(request(t, "POST", "x"))
		assert.Equal(t, 110*time.Millisecond, time.Since(start))
		synctest.Wait()
		sent := base.requests()
		require.Len(t, sent, 2)
		require.Equal(t, sent[1].key, sent[0].key)
		require.NotEmpty(t, sent[0].key)
		require.Equal(t, "x", sent[1].body)
		assert.Error(t, sent[0].ctx.Err(),
			"the copy that lost goes on, or the one that won was cancelled")
		assert.NoError(t, sent[1].ctx.Err())
		assert.Equal(t, "fast", text(t, resp, err))
		assert.Zero(t, base.open.Load())
		assert.Error(t, sent[1].ctx.Err())
		assert.Equal(t, 0, b.permits, "the breaker was told")
		assert.Equal(t, 0, b.failures)
		assert.Equal(t, 2, b.successes)
		require.Len(t, told, 1)
		assert.True(t, told[0].Hedge, "told of %+v", told)
		assert.Zero(t, told[0].GaveUp)
		assert.Equal(t, 1, told[0].Attempt)
	})
}

func TestFirstCopyWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The loser answers although it was canceled: its body is closed anyway.
		deaf := func(req *http.Request) (*http.Response, error) {
			time.Sleep(time.Minute)
			return answer(200, "late")(req)
		}
		base := &script{steps: []step{slow(150*time.Millisecond, answer(200, "first")), deaf}}
		resp, err := hedged(t, base, retry.TransportConfig{}).RoundTrip(request(t, "GET", ""))
		assert.Equal(t, "first", text(t, resp, err), "not the first answer")
		time.Sleep(2 * time.Minute)
		assert.Zero(t, base.open.Load())
		assert.Len(t, base.requests(), 2)
	})
}

func TestWhatIsHedged(t *testing.T) {
	empty := func() *retry.Budget {
		b, _ := retry.NewBudget(retry.BudgetConfig{Ratio: 0.1, Floor: 0.5})
		return b
	}
	key := []string{retry.KeyHeader, "k"}
	for _, row := range []struct {
		name, method string
		header       []string
		change       func(*http.Request) *http.Request
		budget       *retry.Budget
		open         bool // the breaker, after the first copy
		copies       int
	}{
		{name: "safe", method: "GET", copies: 2},
		{name: "keyed", method: "POST", header: key, copies: 2},
		{name: "keyed, for a target that does not honour it", method: "POST", header: key,
			copies: 1, change: func(r *http.Request) *http.Request {
				r.URL.Host = "stranger"
				return r
			}},
		{name: "unkeyed", method: "POST", copies: 1, change: func(r *http.Request) *http.Request {
			r.URL.Host = "stranger"
			return r
		}},
		{name: "idempotent, unkeyed", method: "PUT", copies: 1},
		{name: "no token", method: "GET", budget: empty(), copies: 1},
		{name: "no permit", method: "GET", open: true, copies: 1},
		{name: "upgrade", method: "GET", header: []string{"Upgrade", "websocket"}, copies: 1},
		{name: "under NoRetry", method: "GET", copies: 1,
			change: func(r *http.Request) *http.Request {
				return r.WithContext(retry.NoRetry(r.Context()))
			}},
		{name: "a body that can be read once", method: "POST", header: key, copies: 1,
			change: func(r *http.Request) *http.Request {
				r.Body, r.ContentLength = io.NopCloser(strings.NewReader("x")), 1<<40
				return r
			}},
		{name: "trailers", method: "POST", header: key, copies: 1,
			change: func(r *http.Request) *http.Request {
				r.Trailer = http.Header{"Digest": nil}
				return r
			}},
	} {
		synctest.Test(t, func(t *testing.T) {
			base := &script{steps: []step{slow(time.Second, answer(200, ""))}}
			b := &breaker{limit: 100, delay: time.Hour}
			cfg := retry.TransportConfig{Breaker: b, GenerateKeys: func(r *http.Request) bool {
				return r.URL.Host != "stranger"
			}}
			cfg.Policy.Budget, cfg.Policy.Attempts = row.budget, 1
			if row.open {
				time.AfterFunc(time.Millisecond, func() {
					b.mu.Lock()
					b.opened = time.Now()
					b.mu.Unlock()
				})
			}
			req := request(t, row.method, "", row.header...)
			if row.change != nil {
				req = row.change(req)
			}
			resp, err := hedged(t, base, cfg).RoundTrip(req)
			text(t, resp, err)
			synctest.Wait()
			assert.Equal(t, row.copies, len(base.requests()), row.name)
			assert.Equal(t, 0, b.permits, row.name)
		})
	}
}

// A hedge with a key finds its own first copy in flight at the server. That 409 does not win, and
// the answer to the first copy counts.
func TestHedgeThatMeetsItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &script{steps: []step{slow(time.Second, answer(201, "charged")),
			answer(409, inFlight, "Content-Type", problem)}}
		resp, err := hedged(t, base,
			retry.TransportConfig{GenerateKeys: everybody}).RoundTrip(request(t, "POST", "x"))
		assert.Equal(t, "charged", text(t, resp, err))
		assert.Len(t, base.requests(), 2)
		assert.Zero(t, base.open.Load())
	})
}

func TestBothCopiesFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, row := range map[string]struct {
			first, second step
			status        int // of the answer when no attempt is left; 0: an error
		}{
			"an answer, then an error":  {slow(time.Second, broken), answer(503, ""), 503},
			"an error, then an answer":  {slow(time.Second, answer(503, "")), broken, 503},
			"two answers":               {slow(time.Second, answer(502, "")), answer(503, ""), 502},
			"two errors":                {slow(time.Second, broken), broken, 0},
			"a failure, then a success": {slow(time.Second, answer(200, "")), answer(503, ""), 200},
			"final after a failure":     {slow(time.Second, answer(404, "")), broken, 404},
		} {
			base := &script{steps: []step{row.first, row.second}}
			resp, err := hedged(t, base,
				retry.TransportConfig{Policy: retry.Policy{Attempts: 1}}).RoundTrip(request(t,
				"GET", ""))
			if row.status == 0 {
				gaveUp(t, err, retry.AttemptsUsed)
			} else {
				text(t, resp, err)
				assert.Equal(t, row.status, resp.StatusCode, name)
			}
			synctest.Wait()
			assert.Zero(t, base.open.Load(), name)
			for i, s := range base.requests() {
				assert.Error(t, s.ctx.Err(), "%s: copy %d goes on", name, i+1)
			}
		}
	})
}

// A failure before a hedge is due is an ordinary failure. Each attempt may have a hedge.
func TestHedgesAndRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &script{steps: []step{broken, slow(time.Hour, broken), slow(time.Hour, broken),
			answer(200, "third")}}
		cfg := retry.TransportConfig{Policy: retry.Policy{AttemptTimeout: time.Second}}
		start := time.Now()
		resp, err := hedged(t, base, cfg).RoundTrip(request(t, "GET", ""))
		assert.Equal(t, "third", text(t, resp, err))
		assert.Len(t, base.requests(), 4)
		took := time.Since(start)
		assert.LessOrEqual(t, took, 3*steady.Cap+time.Second,
			"the hedge had more time than its attempt")
	})
}

func TestHedgesEndWithTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		base := &script{steps: []step{slow(time.Hour, answer(200, ""))}}
		start := time.Now()
		err := refused(t, hedged(t, base, retry.TransportConfig{}),
			request(t, "GET", "").WithContext(ctx))
		synctest.Wait()
		assert.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, time.Second, time.Since(start))
		assert.Len(t, base.requests(), 2)
	})
}

// The panic of a hedge reaches the caller, and the first copy is canceled.
func TestHedgePanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &script{steps: []step{
			slow(time.Hour, answer(200, "")), func(*http.Request) (*http.Response, error) {
				panic("boom")
			},
		}}
		defer func() {
			synctest.Wait()
			assert.Equal(t, "boom", recover())
			assert.Error(t, base.requests()[0].ctx.Err())
		}()
		_ = refused(t, hedged(t, base, retry.TransportConfig{}), request(t, "GET", ""))
	})
}

// A base that ends the goroutine of a copy has sent no answer: the caller gets an error, and does
// not wait forever.
func TestHedgeEndsItsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ends := func(*http.Request) (*http.Response, error) {
			time.Sleep(time.Minute)
			runtime.Goexit()
			return nil, nil
		}
		err := refused(t, hedged(t, &script{steps: []step{ends}}, retry.TransportConfig{}),
			request(t, "GET", ""))
		require.ErrorContains(t, err, "ended its goroutine")
	})
}

// Two answers arrive at the same moment: the caller gets one, and the other is closed.
func TestPhotoFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 300 {
			base := &script{steps: []step{slow(200*time.Millisecond, answer(200, "")),
				slow(100*time.Millisecond, answer(200, ""))}}
			resp, err := hedged(t, base, retry.TransportConfig{}).RoundTrip(request(t, "GET", ""))
			text(t, resp, err)
			synctest.Wait()
			require.Zero(t, base.open.Load())
			require.Len(t, base.requests(), 2)
		}
	})
}

// A hedge gets the rest of its attempt's time.
func TestHedgeHasTheTimeOfItsAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &script{steps: []step{slow(time.Hour, broken)}}
		start := time.Now()
		err := refused(t, hedged(t, base,
			retry.TransportConfig{Policy: retry.Policy{Attempts: 1, AttemptTimeout: time.Second}}),
			request(t, "GET", ""))
		gaveUp(t, err, retry.AttemptsUsed)
		assert.Equal(t, time.Second, time.Since(start))
		assert.Len(t, base.requests(), 2)
	})
}

// When a callback panics, no permit, no running copy and no open body is left.
func TestCallbackPanicsBesideAHedge(t *testing.T) {
	boom := func(retry.Event) { panic("boom") }
	for _, row := range []struct {
		name      string
		cfg       retry.TransportConfig
		releases  bool
		failures  int
		successes int
	}{
		{"OnRetry", retry.TransportConfig{Policy: retry.Policy{OnRetry: boom}}, false, 2, 0},
		{"OnRetry, a breaker that takes permits back",
			retry.TransportConfig{Policy: retry.Policy{OnRetry: boom}}, true, 0, 0},
		{"Statuses", retry.TransportConfig{Statuses: func(int) retry.Class {
			panic("boom")
		}}, true, 0, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				panics(t, row.cfg, row.releases, row.failures, row.successes)
			})
		})
	}
}

func panics(t *testing.T, cfg retry.TransportConfig, releases bool, failures, successes int) {
	b := &breaker{limit: 9}
	if cfg.Breaker = b; releases {
		cfg.Breaker = releasing{b}
	}
	base := &script{steps: []step{slow(time.Hour, answer(200, "")),
		slow(time.Second, answer(200, ""))}}
	first, second := &closing{Reader: strings.NewReader("x")},
		&closing{Reader: strings.NewReader("x")}
	req := request(t, "POST", "", retry.KeyHeader, `"k"`)
	req.Body, req.GetBody = first, func() (io.ReadCloser, error) { return second, nil }
	cfg.GenerateKeys = everybody
	budget, err := retry.NewBudget(retry.BudgetConfig{Ratio: 1e-6})
	require.NoError(t, err)
	cfg.Policy.Budget = budget
	tr := hedged(t, base, cfg)
	func() {
		defer func() {
			assert.Equal(t, "boom", recover())
		}()
		_ = refused(t, tr, req)
	}()
	synctest.Wait()
	sent := base.requests()
	assert.Zero(t, base.open.Load(), "a body is open")
	assert.True(t, first.closed && second.closed,
		"%d a body is open: %v, %v", base.open.Load(), first.closed,
		second.closed)
	assert.Equal(t, 0, b.permits, "the breaker was told")
	assert.Equal(t, failures, b.failures)
	assert.Equal(t, successes, b.successes)
	want := retry.DefaultFloor + 1 - float64(len(sent))
	assert.LessOrEqual(t, math.Abs(budget.Tokens()-want), 1e-5)
	for i, s := range sent {
		assert.Error(t, s.ctx.Err(), "copy %d goes on", i+1)
	}
}

// If an error wins, the copy that was canceled says nothing about the service.
func TestLoserOfAnError(t *testing.T) {
	final := func(*http.Request) (*http.Response, error) { return nil, retry.Permanent(errNetwork) }
	for name, row := range map[string]struct {
		winner              step
		releases            bool
		failures, successes int
	}{
		"an error, released":     {final, true, 1, 0},
		"an error, not released": {final, false, 2, 0},
		"a final 501":            {answer(501, ""), true, 1, 0},
		"an answer":              {answer(404, ""), true, 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &breaker{limit: 9}
				cfg := retry.TransportConfig{Breaker: b}
				if row.releases {
					cfg.Breaker = releasing{b}
				}
				base := &script{steps: []step{slow(time.Hour, answer(200, "")), row.winner}}
				if resp, err := hedged(t, base, cfg).RoundTrip(request(t, "GET", "")); err == nil {
					text(t, resp, nil)
				}
				synctest.Wait()
				assert.Equal(t, 0, b.permits)
				assert.Equal(t, row.failures, b.failures)
				assert.Equal(t, row.successes, b.successes)
			})
		})
	}
}
