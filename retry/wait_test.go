package retry_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/retry"
)

const (
	problem  = "application/problem+json"
	inFlight = `{"type":"https://example.com/problems#in-flight"}`
)

// A request in flight with the same key is our own, or a copy of ours. The client waits for its
// answer, which costs only time.
func TestConflictInFlightIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		empty, err := retry.NewBudget(retry.BudgetConfig{Ratio: 1e-6, Floor: 1e-6})
		require.NoError(t, err)
		busy := answer(409, inFlight, "Content-Type", problem, "Retry-After", "1")
		base := &script{steps: []step{busy, busy, busy, busy, answer(201, "charged")}}
		waits := 0
		cfg := retry.TransportConfig{GenerateKeys: everybody,
			Policy: retry.Policy{Attempts: 1, Budget: empty, OnRetry: func(e retry.Event) {
				if e.Wait && e.Status == 409 && e.Delay >= time.Second {
					waits++
				}
			}}}
		resp, err := transport(t, base, cfg).RoundTrip(request(t, "POST", "x"))
		assert.Equal(t, "charged", text(t, resp, err))
		assert.Equal(t, 4, waits)
		assert.Zero(t, base.open.Load())
	})
}

func TestWhichConflictsAreWaitedFor(t *testing.T) {
	in, other, third := `{"type":"tag:x:in-flight","title":"busy"}`,
		`{"type":"https://x/uncertain"}`, `{"type":"https://x/sold-out"}`
	for _, row := range []struct {
		name, method, body string
		header             []string
		sends              int
	}{
		{"problem in-flight", "POST", in, []string{"Content-Type", problem}, 2},
		{"problem in-flight, with a charset", "POST",
			in, []string{"Content-Type", problem + "; charset=utf-8"}, 2},
		{"problem uncertain", "POST", other,
			[]string{"Content-Type", problem, "Retry-After", "3"}, 2},
		{"problem uncertain, without a time", "POST", other, []string{"Content-Type", problem}, 1},
		{"another problem", "POST", third, []string{"Content-Type", problem}, 1},
		{"another problem with a time", "POST", third,
			[]string{"Content-Type", problem, "Retry-After", "3"}, 1},
		{"the type as plain JSON", "POST", in, []string{"Content-Type", "application/json"}, 1},
		{"a broken problem", "POST", in[:20], []string{"Content-Type", problem}, 1},
		{"a conflict of the application", "POST", "", nil, 1},
		{"a conflict with a time", "POST", "", []string{"Retry-After", "3"}, 1},
		{"a replayed problem", "POST", in,
			[]string{"Content-Type", problem, "Idempotent-Replayed", "true"}, 1},
		{"no key", "PUT", in, []string{"Content-Type", problem, "Retry-After", "3"}, 1},
		{"asked not to", "POST", in,
			[]string{"Content-Type", problem, "Retry-After", "3", retry.SignalHeader, "1"}, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			base := &script{steps: []step{answer(409, row.body, row.header...),
				answer(200, "done")}}
			resp, err := transport(t, base,
				retry.TransportConfig{GenerateKeys: everybody}).RoundTrip(request(t,
				row.method, "x"))
			want := "done"
			if row.sends == 1 {
				want = row.body // with what was read of it put back
			}
			assert.Equal(t, want, text(t, resp, err), row.name)
			assert.Len(t, base.requests(), row.sends, row.name)
			assert.Zero(t, base.open.Load(), row.name)
		})
	}
}

// A server that always says "in flight" does not hold its client forever.
func TestWaitIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, limit := range []time.Duration{0, 10 * time.Second} {
			var why retry.Reason
			cfg := retry.TransportConfig{GenerateKeys: everybody, MaxWait: limit,
				Policy: retry.Policy{OnRetry: func(e retry.Event) { why = e.GaveUp }}}
			base := &script{steps: []step{answer(409, inFlight, "Content-Type",
				problem, "Retry-After", "2")}}
			start := time.Now()
			resp, err := transport(t, base, cfg).RoundTrip(request(t, "POST", "x"))
			text(t, resp, err)
			if limit == 0 {
				limit = retry.DefaultMaxWait
			}
			took := time.Since(start)
			assert.Equal(t, http.StatusConflict, resp.StatusCode)
			assert.LessOrEqual(t, took, limit)
			assert.GreaterOrEqual(t, took, limit-4*time.Second)
			assert.Equal(t, retry.WaitedTooLong, why)
		}
	})
}

// After a wait, the earlier failed attempts still count.
func TestWaitsBetweenFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := answer(409, inFlight, "Content-Type", problem)
		base := &script{steps: []step{broken, busy, broken, busy, broken}}
		err := refused(t, transport(t, base, retry.TransportConfig{GenerateKeys: everybody}),
			request(t, "POST", "x"))
		assert.Equal(t, 5, gaveUp(t, err, retry.AttemptsUsed).Attempts)
		assert.Len(t, base.requests(), 5)
	})
}

func TestStatusesDecides(t *testing.T) {
	for _, row := range []struct {
		status int
		sends  int
	}{{404, 3}, {503, 1}, {202, 4}, {429, 3}, {200, 1}} {
		synctest.Test(t, func(t *testing.T) {
			cfg := retry.TransportConfig{GenerateKeys: everybody, MaxWait: 4 * time.Second,
				Statuses: func(status int) retry.Class {
					return map[int]retry.Class{404: retry.Again, 503: retry.Final,
						202: retry.Wait}[status]
				}}
			base := &script{steps: []step{
				answer(row.status, "", "Retry-After", "1"),
				answer(row.status, "", "Retry-After", "1"),
				answer(row.status, "", "Retry-After", "1"), answer(200, ""),
			}}
			resp, err := transport(t, base,
				cfg).RoundTrip(request(t, "POST", strings.Repeat("x", 10)))
			text(t, resp, err)
			got := len(base.requests())
			assert.True(t, (row.status == 202 || got == row.sends) &&
				(row.status != 202 || got >= 3), "%d: %d requests, want %d", row.status, got,
				row.sends)
		})
	}
}

// Without a Retry-After a wait takes at least Base, whatever the jitter.
func TestWaitIsNotBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, b := range []retry.Backoff{{Base: 300 * time.Millisecond},
			{Cap: 20 * time.Millisecond}, {}} {
			least := max(b.Base, b.Cap)
			if least == 0 {
				least = retry.DefaultBase
			}
			base := &script{steps: []step{answer(409, inFlight, "Content-Type", problem)}}
			cfg := retry.TransportConfig{GenerateKeys: everybody, MaxWait: 5 * time.Second,
				Policy: retry.Policy{Backoff: b, Budget: retry.Unlimited()}}
			tr, err := retry.NewTransport(base, cfg)
			require.NoError(t, err)
			resp, err := tr.RoundTrip(request(t, "POST", ""))
			text(t, resp, err)
			sent := base.requests()
			for i := range sent[1:] {
				gap := sent[i+1].at.Sub(sent[i].at)
				assert.GreaterOrEqual(t, gap, least, "%+v: asked again", b)
				assert.False(t, i == 0 && gap > 2*least, "%+v: asked again after %v", b, gap)
			}
		}
	})
}

// A stored answer does not change, so a replayed 5xx is final, too.
func TestReplayedAnswerIsFinal(t *testing.T) {
	base := &script{steps: []step{answer(500, "kept", "Idempotent-Replayed", "true")}}
	resp, err := transport(t, base,
		retry.TransportConfig{GenerateKeys: everybody}).RoundTrip(request(t, "POST", "x"))
	assert.Equal(t, "kept", text(t, resp, err))
	assert.Len(t, base.requests(), 1)
}

func TestForbiddenByTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &script{steps: []step{answer(503, "overloaded", retry.SignalHeader,
			"1", "Retry-After", "1")}}
		resp, err := transport(t, base, retry.TransportConfig{}).RoundTrip(request(t, "GET", ""))
		assert.Equal(t, "overloaded", text(t, resp, err))
		assert.Len(t, base.requests(), 1)
		assert.Equal(t, "1", resp.Header.Get(retry.SignalHeader))
	})
	var _ http.RoundTripper = (*retry.Transport)(nil)
}

// A wait does not count as an attempt: the next attempt has the same share of the deadline.
func TestSharesAfterAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := slow(time.Hour, broken)
		base := &script{steps: []step{answer(409, inFlight, "Content-Type", problem), hang,
			hang, hang}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		cfg := retry.TransportConfig{GenerateKeys: everybody,
			Policy: retry.Policy{Elapsed: 2 * time.Hour}}
		err := refused(t, transport(t, base, cfg), request(t, "POST", "").WithContext(ctx))
		sent := base.requests()
		require.Len(t, sent, 4)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		for i := 1; i < 3; i++ {
			d := sent[i+1].at.Sub(sent[i].at)
			assert.GreaterOrEqual(t, d, 19*time.Minute, "attempt %d of three", i)
			assert.LessOrEqual(t, d, 21*time.Minute, "attempt %d of three", i)
		}
	})
}

// For an uncertain key the client asks again when the server says so, and only until MaxWait is
// over: an operator may take a day.
func TestUncertainIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unknown := answer(409, `{"type":"https://x#uncertain"}`, "Content-Type", problem,
			"Retry-After", "30")
		for sends, row := range map[int]struct {
			steps  []step
			status int
		}{
			2: {[]step{broken, unknown, answer(201, "charged")}, 201},
			3: {[]step{broken, unknown}, 409},
		} {
			base := &script{steps: row.steps}
			start := time.Now()
			resp, err := transport(t, base,
				retry.TransportConfig{GenerateKeys: everybody}).RoundTrip(request(t, "POST", "x"))
			text(t, resp, err)
			took := time.Since(start)
			assert.Equal(t, row.status, resp.StatusCode, "case %d", sends)
			assert.Len(t, base.requests(), 3, "case %d", sends)
			assert.GreaterOrEqual(t, took, 30*time.Second, "case %d", sends)
			assert.LessOrEqual(t, took, 33*time.Second, "case %d", sends)
		}
	})
}

// If a layer above retries, the transport returns failures, but waits for answers in flight. The
// layer above waits meanwhile, so only one of them asks at a time.
func TestWaitsUnderNoRetry(t *testing.T) {
	busy := answer(409, inFlight, "Content-Type", problem, "Retry-After", "1")
	for _, row := range []struct {
		name   string
		steps  []step
		header []string
		body   func() io.Reader
		status int
		sends  int
	}{
		{name: "waited for", steps: []step{busy, busy, answer(201, "")}, status: 201, sends: 3},
		{name: "a failure after a wait", steps: []step{busy, answer(503, "")},
			status: 503, sends: 2},
		{name: "a failure", steps: []step{answer(503, "")}, status: 503, sends: 1},
		{name: "handed on by a proxy", steps: []step{busy, answer(201, "")},
			header: []string{retry.SignalHeader, "1"}, status: 201, sends: 2},
		{name: "a body without GetBody", steps: []step{busy, answer(201, "")},
			body: func() io.Reader {
				return io.MultiReader(strings.NewReader("x"))
			}, status: 201, sends: 2},
		{name: "a body that can be read once", steps: []step{busy}, body: func() io.Reader {
			return strings.NewReader(strings.Repeat("x", 20))
		}, status: 409, sends: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			base := &script{steps: row.steps}
			req := request(t, "POST", "", append(row.header, retry.KeyHeader, `"k"`)...)
			if row.body != nil {
				req.Body, req.ContentLength = io.NopCloser(row.body()), -1
			}
			if row.header == nil {
				req = req.WithContext(retry.NoRetry(req.Context()))
			}
			resp, err := transport(t, base, retry.TransportConfig{BodyLimit: 10}).RoundTrip(req)
			text(t, resp, err)
			n := len(base.requests())
			assert.Equal(t, row.status, resp.StatusCode, row.name)
			assert.Equal(t, row.sends, n, row.name)
			assert.Zero(t, base.open.Load(), row.name)
			for _, s := range base.requests() {
				assert.Equal(t, "1", s.signal, "%s: sent with signal", row.name)
				assert.Equal(t, base.requests()[0].body, s.body, "%s: sent with signal", row.name)
			}
		})
	}
}

// trickle is a body whose data never arrives.
type trickle struct{ ctx context.Context }

func (b trickle) Read([]byte) (int, error) { <-b.ctx.Done(); return 0, context.Cause(b.ctx) }
func (b trickle) Close() error             { return nil }

// If the body of a conflict does not arrive, the attempt ends by its timeout.
func TestConflictThatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		half := func(req *http.Request) (*http.Response, error) {
			resp, err := answer(409, "", "Content-Type", problem)(req)
			resp.Body, resp.ContentLength = trickle{req.Context()}, -1
			return resp, err
		}
		base := &script{steps: []step{half, answer(201, "charged")}}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		time.AfterFunc(time.Hour, cancel)
		var timeout interface{ Timeout() bool }
		cfg := retry.TransportConfig{GenerateKeys: everybody,
			Policy: retry.Policy{OnRetry: func(e retry.Event) {
				assert.True(t, errors.As(e.Err, &timeout) && timeout.Timeout() && !e.Wait,
					"told of %+v", e)
			}}}
		resp, err := transport(t, base, cfg).RoundTrip(request(t, "POST", "x").WithContext(ctx))
		assert.Equal(t, "charged", text(t, resp, err))
		assert.Zero(t, base.open.Load())
	})
}

// Layers that pass a conflict on, as proxies do, wait together no longer than one of them would,
// and ask no more often.
func TestLayersWaitOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &script{steps: []step{answer(409, inFlight, "Content-Type", problem,
			"Retry-After", "1")}}
		var layers http.RoundTripper = base
		for range 4 {
			layers = transport(t, layers, retry.TransportConfig{GenerateKeys: everybody})
		}
		start := time.Now()
		resp, err := layers.RoundTrip(request(t, "POST", "x"))
		text(t, resp, err)
		took, n := time.Since(start), len(base.requests())
		assert.Equal(t, http.StatusConflict, resp.StatusCode)
		assert.LessOrEqual(t, took, retry.DefaultMaxWait)
		assert.GreaterOrEqual(t, n, 30)
		assert.LessOrEqual(t, n, 60)
	})
}

// A layer below has waited in vain. In the little time that is left, the call does not ask again,
// because that layer would wait again for as long.
func TestNoWaitAfterAWaitBelow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waits := func(req *http.Request) (*http.Response, error) {
			time.Sleep(retry.DefaultMaxWait - 5*time.Second)
			return answer(409, inFlight, "Content-Type", problem, "Retry-After", "1")(req)
		}
		base := &script{steps: []step{waits, answer(201, "charged")}}
		resp, err := transport(t, base,
			retry.TransportConfig{GenerateKeys: everybody}).RoundTrip(request(t, "POST", "x"))
		text(t, resp, err)
		assert.Equal(t, http.StatusConflict, resp.StatusCode)
		assert.Len(t, base.requests(), 1)
	})
}
