package retry_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/retry"
)

func TestClasses(t *testing.T) {
	again := map[int]bool{408: true, 425: true, 429: true, 501: false, 505: false}
	for status := 100; status < 700; status++ {
		want, decided := again[status]
		if !decided {
			want = status >= 500 && status < 600
		}
		assert.Equal(t, want, retry.StatusClass(status) == retry.Again, "%d", status)
		synctest.Test(t, func(t *testing.T) {
			if status < 200 {
				return // informational: not an answer
			}
			base := &script{steps: []step{answer(status, "first"), answer(200, "second")}}
			resp, err := transport(t, base,
				retry.TransportConfig{}).RoundTrip(request(t, "GET", ""))
			body := text(t, resp, err)
			assert.Equal(t, want, body == "second", status)
			assert.Zero(t, base.open.Load(), status)
		})
	}
}

// Without a key a server may run the effect of a repeated request again.
func TestWhatMayBeRepeated(t *testing.T) {
	key := []string{retry.KeyHeader, `"k"`}
	for _, row := range []struct {
		method string
		header []string
		want   int
	}{
		{"GET", nil, 3}, {"", nil, 3}, {"HEAD", nil, 3}, {"OPTIONS", nil, 3}, {"TRACE", nil, 3},
		{"PUT", nil, 3}, {"DELETE", nil, 3},
		{"POST", nil, 1}, {"PATCH", nil, 1}, {"CONNECT", nil, 1}, {"MERGE", nil, 1},
		{"get", nil, 1},
		{"POST", key, 3}, {"PATCH", key, 3}, {"MERGE", key, 3}, {"CONNECT", key, 1},
		{"POST", []string{retry.KeyHeader, ""}, 1},
		{"POST", []string{retry.SignalHeader, "1"}, -1},
		{"GET", []string{retry.SignalHeader, "1"}, -1},
	} {
		for name, fail := range map[string]step{"network": broken, "503": answer(503, "")} {
			synctest.Test(t, func(t *testing.T) {
				var last retry.Event
				base := &script{steps: []step{fail}}
				req := request(t, "GET", "", row.header...)
				req.Method = row.method
				tr := transport(t, base,
					retry.TransportConfig{Policy: retry.Policy{OnRetry: func(e retry.Event) {
						last = e
					}}})
				resp, err := tr.RoundTrip(req)
				if name == "network" {
					gaveUp(t, err, last.GaveUp)
				} else {
					text(t, resp, err)
					assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
				}
				times := max(1, row.want) // -1: once, because a layer above retries
				n := len(base.requests())
				assert.Equal(t, times, n, "%s %v, %s: sent", row.method, row.header, name)
				want := map[int]retry.Reason{-1: retry.NotAllowed, 1: retry.NotRepeatable,
					3: retry.AttemptsUsed}[row.want]
				assert.Equal(t, want, last.GaveUp, "%s %v, %s", row.method, row.header, name)
				assert.Same(t, req, last.Request, "%s %v, %s", row.method, row.header, name)
				assert.Equal(t, times, last.Attempt, "%s %v, %s", row.method, row.header,
					name)
			})
		}
	}
	synctest.Test(t, func(t *testing.T) {
		// net/http's own way to say that a request is idempotent: the header without a value.
		base := &script{steps: []step{broken}}
		req := request(t, "POST", "x")
		req.Header[retry.KeyHeader] = nil
		_ = refused(t, transport(t, base, retry.TransportConfig{GenerateKeys: everybody}), req)
		sent := base.requests()
		require.Len(t, sent, 3, "an idempotent POST was sent")
		assert.Empty(t, sent[0].key)
	})
}

func TestTransportReturnsTheLastAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &script{steps: []step{answer(503, "one"), broken,
			answer(429, "three", "X-Request", "3")}}
		var told []string
		cfg := retry.TransportConfig{}
		cfg.Policy.OnRetry = func(e retry.Event) {
			told = append(told, fmt.Sprint(e.Attempt, " ", e.Status, " ", e.Err, " ", e.GaveUp))
		}
		resp, err := transport(t, base, cfg).RoundTrip(request(t, "GET", ""))
		assert.Equal(t, "three", text(t, resp, err))
		assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
		assert.Equal(t, "3", resp.Header.Get("X-Request"))
		assert.Zero(t, base.open.Load())
		want := []string{
			"1 503 retry: response 503 Service Unavailable not at all",
			"2 0 connection reset by peer not at all",
			"3 429 retry: response 429 Too Many Requests attempts used up",
		}
		assert.Equal(t, fmt.Sprint(want), fmt.Sprint(told))
	})
}

func TestRetryAfterIsObeyed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, row := range []struct {
			value string
			date  time.Duration // from now, instead of a value
			least time.Duration
		}{
			{value: "30", least: 30 * time.Second},
			{date: 30 * time.Second, least: 30 * time.Second},
			{value: "0"}, {value: "-5"}, {value: "soon"}, {date: -time.Hour},
		} {
			if row.date != 0 {
				// Dates have whole seconds; so has the clock of this test, for a moment.
				time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
				row.value = time.Now().Add(row.date).UTC().Format(http.TimeFormat)
			}
			base := &script{steps: []step{answer(503, "", "Retry-After", row.value),
				answer(200, "")}}
			resp, err := transport(t, base,
				retry.TransportConfig{}).RoundTrip(request(t, "GET", ""))
			text(t, resp, err)
			sent := base.requests()
			gap := sent[1].at.Sub(sent[0].at)
			assert.GreaterOrEqual(t, gap, row.least+steady.Cap/2, "Retry-After %q",
				row.value)
			assert.LessOrEqual(t, gap, row.least+steady.Cap, "Retry-After %q",
				row.value)
		}
	})
}

// If Retry-After is longer than the call may take, the attempts end at once with the response.
func TestRetryAfterTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, row := range []struct {
			value   string
			within  time.Duration
			elapsed time.Duration
			reason  retry.Reason
		}{
			{"60", 30 * time.Second, 0, retry.DeadlineNear},
			{"300", 0, 0, retry.ElapsedNear},
			{"6", 0, 6 * time.Second, retry.ElapsedNear},
			{"99999999999999999999", 0, 0, retry.ElapsedNear},
			{"99999999999999999999", time.Minute, 1<<63 - 1, retry.DeadlineNear},
		} {
			ctx, cancel := t.Context(), context.CancelFunc(func() {})
			if row.within > 0 {
				ctx, cancel = context.WithTimeout(ctx, row.within)
			}
			var why retry.Reason
			cfg := retry.TransportConfig{Policy: retry.Policy{Elapsed: row.elapsed,
				OnRetry: func(e retry.Event) { why = e.GaveUp }}}
			base := &script{steps: []step{answer(503, "come back", "Retry-After", row.value)}}
			start := time.Now()
			resp, err := transport(t, base, cfg).RoundTrip(request(t, "GET", "").WithContext(ctx))
			assert.Equal(t, "come back", text(t, resp, err))
			assert.Zero(t, time.Since(start))
			assert.Equal(t, row.reason, why)
			assert.Len(t, base.requests(), 1)
			cancel()
		}
	})
}

// An attempt's timeout counts only until the header arrives. The body may take longer.
func TestAttemptTimeoutIsForTheHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, context.Cause(req.Context())
		}
		base := &script{steps: []step{hang, slow(900*time.Millisecond, answer(200, "body"))}}
		cfg := retry.TransportConfig{Policy: retry.Policy{AttemptTimeout: time.Second}}
		resp, err := transport(t, base, cfg).RoundTrip(request(t, "GET", ""))
		require.NoError(t, err)
		time.Sleep(time.Hour)
		sent := base.requests()
		assert.NoError(t, sent[1].ctx.Err(),
			"the request was cancelled while its body was not closed")
		assert.Error(t, sent[0].ctx.Err(), "the attempt that hung was not ended in time")
		assert.LessOrEqual(t, sent[1].at.Sub(sent[0].at), time.Second+steady.Cap)
		text(t, resp, nil)
		assert.Error(t, sent[1].ctx.Err(), "the request goes on after its body was closed")
	})
}

func TestTimeoutsLookLikeTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &script{steps: []step{slow(time.Hour, answer(200, ""))}}
		client := &http.Client{Transport: transport(t,
			base, retry.TransportConfig{Policy: retry.Policy{AttemptTimeout: time.Second}})}
		err := do(t, client)
		var u *url.Error
		require.ErrorAs(t, err, &u)
		assert.True(t, u.Timeout(), "%v is not a timeout", err)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 3, gaveUp(t, err, retry.AttemptsUsed).Attempts)
		client.Timeout = 9 * time.Second // of the whole call: three seconds for each attempt
		client.Transport = transport(t, base, retry.TransportConfig{})
		start := time.Now()
		err = do(t, client)
		require.ErrorAs(t, err, &u)
		assert.True(t, u.Timeout())
		assert.LessOrEqual(t, time.Since(start), 9*time.Second)
		assert.Equal(t, 6, len(base.requests()))
	})
}

// do sends a GET that gets no response.
func do(t *testing.T, client *http.Client) error {
	resp, err := client.Do(request(t, "GET", ""))
	if !assert.Error(t, err) {
		text(t, resp, nil)
	}
	return err
}

func TestFinalErrors(t *testing.T) {
	for _, final := range []error{
		&tls.CertificateVerificationError{Err: errors.New("expired")},
		tls.RecordHeaderError{Msg: "not TLS"}, retry.Permanent(errNetwork),
	} {
		base := &script{steps: []step{func(*http.Request) (*http.Response, error) {
			return nil, final
		}}}
		err := refused(t, transport(t, base, retry.TransportConfig{}), request(t, "GET", ""))
		assert.Equal(t, final.Error(), fmt.Sprint(err))
		assert.Len(t, base.requests(), 1)
	}
}

func TestCancelledCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := errors.New("asked to stop")
		for name, steps := range map[string][]step{"in flight": {slow(time.Hour, answer(200, ""))},
			"between": {answer(503, "")}} {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(100*time.Millisecond, func() { cancel(asked) })
			base := &script{steps: steps}
			start := time.Now()
			err := refused(t, transport(t, base, retry.TransportConfig{}),
				request(t, "GET", "").WithContext(ctx))
			assert.ErrorIs(t, err, asked, name)
			assert.Equal(t, 100*time.Millisecond, time.Since(start), name)
			assert.Zero(t, base.open.Load(), name)
			// The base need not say why it failed.
			ctx2, cancel2 := context.WithCancel(t.Context())
			base2 := &script{steps: []step{func(*http.Request) (*http.Response, error) {
				cancel2()
				return nil, errNetwork
			}}}
			req := request(t, "GET", "").WithContext(ctx2)
			err = refused(t, transport(t, base2, retry.TransportConfig{}), req)
			assert.Same(t, errNetwork, err, name)
			body := &closing{Reader: strings.NewReader("x")}
			req = request(t, "POST", "").WithContext(ctx)
			req.Body = body
			err = refused(t, transport(t, base, retry.TransportConfig{}), req)
			assert.ErrorIs(t, err, asked,
				"%s: a request that was over is sent, or its body left open", name)
			assert.True(t, body.closed,
				"%s: a request that was over is sent, or its body left open", name)
			assert.Len(t, base.requests(), 1,
				"%s: a request that was over is sent, or its body left open", name)
		}
	})
}

// closing is a body that records whether it has been closed.
type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

func TestSlowAndLongBodiesAreNotDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var read int
		endless := func(length int64) step {
			return func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: http.StatusServiceUnavailable,
					ContentLength: length, Body: io.NopCloser(readFunc(func(p []byte) (int, error) {
						read += len(p)
						return len(p), nil
					}))}, nil
			}
		}
		stuck := func(req *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusServiceUnavailable, ContentLength: -1,
				Body: io.NopCloser(readFunc(func([]byte) (int, error) {
					<-req.Context().Done()
					return 0, context.Cause(req.Context())
				}))}, nil
		}
		base := &script{steps: []step{endless(-1), endless(1 << 40), stuck, answer(200, "done")}}
		start := time.Now()
		resp, err := transport(t, base,
			retry.TransportConfig{Policy: retry.Policy{Attempts: 4}}).RoundTrip(request(t,
			"GET", ""))
		assert.Equal(t, "done", text(t, resp, err))
		assert.Zero(t, base.open.Load())
		assert.NotZero(t, read)
		assert.LessOrEqual(t, read, 96<<10)
		assert.LessOrEqual(t, time.Since(start), 4*time.Second+time.Second)
	})
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// An answer arrives at the moment when its attempt ends. It may be returned or not, but if it is
// returned, its body can be read.
func TestAnswerAtTheLastMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		returned, repeated := 0, 0
		for range 500 {
			base := &script{steps: []step{slow(time.Second, answer(200, "late")),
				answer(200, "again")}}
			cfg := retry.TransportConfig{Policy: retry.Policy{AttemptTimeout: time.Second}}
			resp, err := transport(t, base, cfg).RoundTrip(request(t, "GET", ""))
			synctest.Wait()
			sent := base.requests()
			last := sent[len(sent)-1]
			require.NoError(t, err)
			require.NoError(t, last.ctx.Err())
			if text(t, resp, nil) == "late" {
				returned++
			} else {
				repeated++
			}
			require.Zero(t, base.open.Load(), "a body was left open")
		}
		t.Logf("%d returned, %d repeated", returned, repeated)
	})
}
