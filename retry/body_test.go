package retry_test

import (
	"errors"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/retry"
)

func TestBodiesAreSentAgain(t *testing.T) {
	key := []string{retry.KeyHeader, `"k"`}
	long := strings.Repeat("long", 1000)
	for _, row := range []struct {
		name    string
		method  string
		body    string
		getBody bool
		length  int64 // what the request says
		limit   int64
		sends   int
	}{
		{"GetBody", "POST", long, true, 4000, 10, 3},
		{"kept", "POST", "short", false, -1, 10, 3},
		{"kept, to the limit", "POST", "0123456789", false, 10, 10, 3},
		{"kept, default limit", "POST", long, false, -1, 0, 3},
		{"kept, no limit", "POST", long, false, -1, math.MaxInt64, 3},
		{"too long, by its length", "POST", long, false, 4000, 10, 1},
		{"too long, as it turns out", "POST", long, false, -1, 10, 1},
		{"never kept", "POST", "short", false, 5, -1, 1},
		{"PUT without a key", "PUT", "short", false, -1, 10, 3},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := &script{steps: []step{broken, answer(503, ""), answer(200, "")}}
				body := &closing{Reader: strings.NewReader(row.body)}
				req := request(t, row.method, "", key...)
				req.Body, req.ContentLength = body, row.length
				if row.getBody {
					req.GetBody = func() (io.ReadCloser, error) {
						return io.NopCloser(strings.NewReader(row.body)), nil
					}
				}
				resp, err := transport(t, base,
					retry.TransportConfig{BodyLimit: row.limit}).RoundTrip(req)
				if row.sends == 3 {
					text(t, resp, err)
				} else {
					gaveUp(t, err, retry.NotRepeatable)
				}
				sent := base.requests()
				require.Len(t, sent, row.sends)
				require.True(t, body.closed)
				require.Same(t, body, req.Body)
				for i, s := range sent {
					assert.False(t, row.sends == 3 && s.request.GetBody == nil,
						"attempt %d: net/http cannot repeat it", i+1)
					assert.Equal(t, row.body, s.body, "attempt %d", i+1)
					assert.Equal(t, row.length, s.request.ContentLength, "attempt %d", i+1)
				}
			})
		})
	}
}

func TestPostWithoutBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, body := range []io.ReadCloser{nil, http.NoBody} {
			base := &script{steps: []step{broken, broken, answer(200, "")}}
			req := request(t, "POST", "")
			req.Body = body
			resp, err := transport(t, base,
				retry.TransportConfig{GenerateKeys: everybody}).RoundTrip(req)
			text(t, resp, err)
			sent := base.requests()
			require.Len(t, sent, 3)
			assert.Equal(t, body, sent[2].request.Body)
		}
	})
}

// A body that cannot be sent again is streamed, and not read into memory.
func TestUnkeyedBodyIsNotRead(t *testing.T) {
	r, w := io.Pipe()
	base := roundTrip(func(req *http.Request) (*http.Response, error) {
		// begins when the request is under way
		go func() { _, _ = w.Write([]byte("x")); _ = w.Close() }()
		got, err := io.ReadAll(req.Body)
		assert.Equal(t, "x", string(got))
		assert.NoError(t, err)
		_ = req.Body.Close()
		return answer(200, "")(req)
	})
	req := request(t, "POST", "")
	req.Body, req.ContentLength = r, -1
	resp, err := transport(t, base, retry.TransportConfig{}).RoundTrip(req)
	text(t, resp, err)
}

func TestBodiesThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unreadable := errors.New("disk failed")
		body := &closing{Reader: readFunc(func([]byte) (int, error) { return 0, unreadable })}
		req := request(t, "PUT", "")
		req.Body, req.ContentLength = body, -1
		base := &script{steps: []step{broken}}
		assert.ErrorIs(t, refused(t, transport(t, base, retry.TransportConfig{}), req), unreadable)
		assert.True(t, body.closed)
		assert.Empty(t, base.requests())
		req = request(t, "PUT", "x")
		req.GetBody = func() (io.ReadCloser, error) { return nil, unreadable }
		err := refused(t, transport(t, base, retry.TransportConfig{}), req)
		gaveUp(t, err, retry.NotRepeatable)
		assert.ErrorIs(t, err, unreadable)
		assert.ErrorIs(t, err, errNetwork)
		assert.Len(t, base.requests(), 1)
	})
}

// The body of 101 Switching Protocols can be written to. The caller has it until it closes it.
func TestUpgradedConnection(t *testing.T) {
	conn := &duplex{}
	base := roundTrip(func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusSwitchingProtocols, Body: conn}, nil
	})
	resp, err := transport(t, base, retry.TransportConfig{}).RoundTrip(request(t, "GET", "", "Connection", "Upgrade", "Upgrade", "echo")) //nolint:bodyclose // it is w, and closed below
	require.NoError(t, err)
	w, ok := resp.Body.(io.ReadWriteCloser)
	require.True(t, ok, "the connection cannot be written to")
	_, err = w.Write([]byte("hello"))
	require.NoError(t, err)
	assert.Equal(t, "hello", conn.written.String())
	require.NoError(t, w.Close())
	assert.True(t, conn.closed)
}

type duplex struct {
	written strings.Builder
	closed  bool
}

func (d *duplex) Read([]byte) (int, error)    { return 0, io.EOF }
func (d *duplex) Write(p []byte) (int, error) { return d.written.Write(p) }
func (d *duplex) Close() error                { d.closed = true; return nil }
