package retry_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/retry"
)

// count counts the connections to a server.
func count(srv *httptest.Server) *atomic.Int64 {
	var n atomic.Int64
	srv.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			n.Add(1)
		}
	}
	return &n
}

// An answer that is not returned is read to its end, so the next attempt uses the same connection.
func TestConnectionsAreUsedAgain(t *testing.T) {
	var calls atomic.Int64
	srv := httptest.NewUnstartedServer(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if calls.Add(1)%3 != 0 {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			_, _ = io.WriteString(w, strings.Repeat("x", 10_000))
		}))
	conns := count(srv)
	srv.Start()
	defer srv.Close()
	client := quick(t)
	for range 5 {
		resp, err := client.Get(srv.URL)
		got := text(t, resp, err)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.Equal(t, 10_000, len(got))
	}
	assert.EqualValues(t, 15, calls.Load())
	assert.EqualValues(t, 1, conns.Load())
}

// The first connection of a POST with a key is cut after the effect. It is repeated with the same
// key and body, over HTTP/1 and HTTP/2.
func TestCutConnections(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		var keys [2]string
		var calls atomic.Int64
		srv := httptest.NewUnstartedServer(
			http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				n := calls.Add(1)
				if n <= 2 {
					keys[n-1] = r.Header.Get(retry.KeyHeader)
				}
				if n == 1 {
					panic(http.ErrAbortHandler) // the connection, or the stream, is cut
				}
				assert.Equal(t, h2, r.ProtoMajor == 2)
				_, _ = w.Write(body)
			}))
		srv.EnableHTTP2 = h2
		srv.StartTLS()
		policy := retry.Policy{Backoff: retry.Backoff{Base: time.Microsecond,
			Cap: time.Microsecond}}
		client := srv.Client()
		client.Transport = transport(t, client.Transport,
			retry.TransportConfig{Policy: policy, GenerateKeys: everybody})
		resp, err := client.Post(srv.URL, "text/plain", strings.NewReader("amount=1"))
		assert.Equal(t, "amount=1", text(t, resp, err), "HTTP/2 %v", h2)
		assert.EqualValues(t, 2, calls.Load(), "HTTP/2 %v", h2)
		assert.NotEmpty(t, keys[0], "HTTP/2 %v", h2)
		assert.Equal(t, keys[1], keys[0], "HTTP/2 %v", h2)
		srv.Close()
	}
}

// The body of a large answer can be read for any length of time. If the client closes it early, the
// server notices.
func TestBodyIsTheCallers(t *testing.T) {
	gone := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "begin")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(gone)
	}))
	defer srv.Close()
	policy := retry.Policy{AttemptTimeout: time.Minute}
	client := &http.Client{Transport: transport(t, nil, retry.TransportConfig{Policy: policy})}
	resp, err := client.Get(srv.URL)
	require.NoError(t, err)
	head := make([]byte, 5)
	_, err = io.ReadFull(resp.Body, head)
	assert.NoError(t, err)
	assert.Equal(t, "begin", string(head))
	assert.NoError(t, resp.Body.Close())
	<-gone
}
