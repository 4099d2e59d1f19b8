package retry_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/retry"
)

var errNetwork = errors.New("connection reset by peer")

// step is the server's reaction to one request.
type step func(*http.Request) (*http.Response, error)

// seen is one request as the server saw it.
type seen struct {
	at      time.Time
	key     string
	signal  string
	body    string
	ctx     context.Context
	request *http.Request
}

// script is a base that takes the next of its steps for each request, and repeats the last one. It
// reads and closes bodies as a RoundTripper must, and counts the responses that are still open.
type script struct {
	mu    sync.Mutex
	steps []step
	seen  []seen
	open  atomic.Int64
}

func (s *script) RoundTrip(req *http.Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil {
		body, _ = io.ReadAll(req.Body)
		_ = req.Body.Close()
	}
	s.mu.Lock()
	do := s.steps[min(len(s.seen), len(s.steps)-1)]
	s.seen = append(s.seen, seen{
		time.Now(), req.Header.Get(retry.KeyHeader), req.Header.Get(retry.SignalHeader),
		string(body), req.Context(), req,
	})
	s.mu.Unlock()
	resp, err := do(req)
	if resp != nil {
		resp.Request = req
		if resp.Body != nil && resp.Body != http.NoBody {
			s.open.Add(1)
			resp.Body = &counted{ReadCloser: resp.Body, open: &s.open}
		}
	}
	return resp, err
}

func (s *script) requests() []seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]seen(nil), s.seen...)
}

// counted is a body that counts as open until it is closed.
type counted struct {
	io.ReadCloser
	open *atomic.Int64
	once sync.Once
}

func (c *counted) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.ReadCloser.Close()
}

// answer returns a response. header has names and values in turn.
func answer(status int, body string, header ...string) step {
	return func(*http.Request) (*http.Response, error) {
		h := make(http.Header)
		for i := 0; i < len(header); i += 2 {
			h.Add(header[i], header[i+1])
		}
		return &http.Response{
			StatusCode: status, Header: h, ProtoMajor: 1, ProtoMinor: 1,
			Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
		}, nil
	}
}

func broken(*http.Request) (*http.Response, error) { return nil, errNetwork }

// slow waits for d, or until the request ends, and then calls do.
func slow(d time.Duration, do step) step {
	return func(req *http.Request) (*http.Response, error) {
		select {
		case <-time.After(d):
			return do(req)
		case <-req.Context().Done():
			return nil, context.Cause(req.Context())
		}
	}
}

// everybody reports that every target honors keys.
func everybody(*http.Request) bool { return true }

// steady is a backoff whose waits are from half a second to a second.
var steady = retry.Backoff{Base: time.Second, Cap: time.Second, Jitter: retry.Equal}

func transport(t testing.TB, base http.RoundTripper, cfg retry.TransportConfig) *retry.Transport {
	t.Helper()
	if cfg.Policy.Backoff == (retry.Backoff{}) {
		cfg.Policy.Backoff = steady
	}
	if cfg.Policy.Budget == nil {
		cfg.Policy.Budget = retry.Unlimited()
	}
	tr, err := retry.NewTransport(base, cfg)
	require.NoError(t, err)
	return tr
}

func request(t testing.TB, method, body string, header ...string) *http.Request {
	t.Helper()
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://service.test/charges", r)
	require.NoError(t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	return req
}

// text reads and closes a response.
func text(t testing.TB, resp *http.Response, err error) string {
	t.Helper()
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return string(body)
}

// refused sends a request that gets no response, and returns why.
func refused(t testing.TB, rt http.RoundTripper, req *http.Request) error {
	t.Helper()
	resp, err := rt.RoundTrip(req)
	if !assert.Nil(t, resp, err) {
		_ = resp.Body.Close()
	}
	return err
}

func gaveUp(t testing.TB, err error, want retry.Reason) *retry.GaveUpError {
	t.Helper()
	var e *retry.GaveUpError
	require.ErrorAs(t, err, &e)
	require.Equal(t, want, e.Reason)
	return e
}
