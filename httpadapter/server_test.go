package httpadapter_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/httpadapter"
)

func serve(t *testing.T, h http.Handler, start func(*httptest.Server)) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	start(server)
	t.Cleanup(server.Close)
	return server
}

// answer is a response from a real connection, read to its end.
type answer struct {
	status, proto int
	length        int64
	header        http.Header
	body          string
}

// call posts over a real connection.
func call(ctx context.Context, t *testing.T, server *httptest.Server, key, body string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/payments",
		strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("X-Account", "acme")
	r.Header.Set("Idempotency-Key", key)
	res, err := server.Client().Do(r)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	data, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return answer{res.StatusCode, res.ProtoMajor, res.ContentLength, res.Header, string(data)}
}

// The same answers over HTTP/1 and HTTP/2, with lengths, hints and large bodies.
func TestOverTheWire(t *testing.T) {
	large := string(bytes.Repeat([]byte("0123456789abcdef"), 4096))
	for name, start := range map[string]func(*httptest.Server){
		"HTTP/1.1": (*httptest.Server).Start,
		"HTTP/2":   func(s *httptest.Server) { s.EnableHTTP2 = true; s.StartTLS() },
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, httpadapter.Config{}, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Link", "</style.css>")
				w.WriteHeader(http.StatusEarlyHints)
				w.Header().Set("Location", "/payments/1")
				w.WriteHeader(http.StatusCreated)
				_, _ = io.Copy(w, r.Body)
			})
			server := serve(t, s.h, start)
			hints := 0
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
				Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
					assert.Equal(t, 103, code)
					assert.NotEmpty(t, h.Get("Link"))
					hints++
					return nil
				},
			})
			for i, wantReplayed := range []string{"", "true", "true"} {
				res := call(ctx, t, server, `"k"`, large)
				assert.Equal(t, http.StatusCreated, res.status, "call %d", i)
				assert.Equal(t, large, res.body, "call %d", i)
				assert.Equal(t, int64(len(large)), res.length, "call %d", i)
				assert.Equal(t, wantReplayed, res.header.Get("Idempotent-Replayed"), "call %d", i)
				assert.Equal(t, "/payments/1", res.header.Get("Location"), "call %d", i)
				assert.False(t, name == "HTTP/2" && res.proto != 2, "over %d", res.proto)
			}
			assert.Equal(t, 1, hints)
			s.wantRuns(t, 1)
		})
	}
}

// The client leaves while the handler runs. The handler completes, and the retry gets its answer.
func TestClientGoneMidHandler(t *testing.T) {
	for name, start := range map[string]func(*httptest.Server){
		"HTTP/1.1": (*httptest.Server).Start,
		"HTTP/2":   func(s *httptest.Server) { s.EnableHTTP2 = true; s.StartTLS() },
	} {
		t.Run(name, func(t *testing.T) {
			begun, recorded := make(chan struct{}), make(chan struct{}, 1)
			first := make(chan context.Context, 1)
			s := newService(t, httpadapter.Config{}, func(w http.ResponseWriter, r *http.Request) {
				close(begun)
				<-(<-first).Done() // the server knows that its client has gone
				assert.NoError(t, r.Context().Err(), "the handler is cancelled")
				created()(w, r)
			})
			server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				select {
				case first <- r.Context():
				default:
				}
				s.h.ServeHTTP(w, r)
				recorded <- struct{}{}
			}), start)
			ctx, hangUp := context.WithCancel(t.Context())
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/payments",
				strings.NewReader("{}"))
			require.NoError(t, err)
			r.Header.Set("X-Account", "acme")
			r.Header.Set("Idempotency-Key", "k")
			failed := make(chan error)
			go func() {
				res, err := server.Client().Do(r)
				if err == nil {
					_ = res.Body.Close()
				}
				failed <- err
			}()
			<-begun
			hangUp()
			assert.Error(t, <-failed, "the client has an answer")
			<-recorded
			res := call(t.Context(), t, server, "k", "{}")
			assert.Equal(t, http.StatusCreated, res.status, "the retry")
			assert.Equal(t, "paid", res.body)
			assert.Equal(t, "true", res.header.Get("Idempotent-Replayed"))
			s.wantRuns(t, 1)
		})
	}
}

// dial speaks HTTP/1.1 by hand.
func dial(t *testing.T, server *httptest.Server, head string) (*net.TCPConn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = fmt.Fprintf(conn,
		"POST /payments HTTP/1.1\r\nHost: api\r\nX-Account: acme\r\nIdempotency-Key: k\r\n%s\r\n",
		head)
	require.NoError(t, err)
	return conn.(*net.TCPConn), bufio.NewReader(conn)
}

func wantLine(t *testing.T, r *bufio.Reader, want string) {
	t.Helper()
	line, err := r.ReadString('\n')
	require.NoError(t, err, "got %q", line)
	require.True(t, strings.HasPrefix(line, "HTTP/1.1 "+want), "got %q", line)
}

func TestExpectContinue(t *testing.T) {
	s := newService(t, httpadapter.Config{RequestLimit: 10}, created())
	server := serve(t, s.h, (*httptest.Server).Start)
	t.Run("too large is refused unsent", func(t *testing.T) {
		_, r := dial(t, server, "Content-Length: 11\r\nExpect: 100-continue\r\n")
		wantLine(t, r, "413")
	})
	t.Run("asked for", func(t *testing.T) {
		conn, r := dial(t, server, "Content-Length: 2\r\nExpect: 100-continue\r\n")
		wantLine(t, r, "100")
		wantEmptyLine(t, r)
		_, err := conn.Write([]byte("{}"))
		require.NoError(t, err)
		wantLine(t, r, "201")
	})
	s.wantRuns(t, 1)
}

// wantEmptyLine reads the empty line that ends a 100.
func wantEmptyLine(t *testing.T, r *bufio.Reader) {
	t.Helper()
	line, err := r.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "\r\n", line)
}

// An incomplete body claims nothing. The complete one is the first request of its key.
func TestBodyThatBreaksOff(t *testing.T) {
	for name, head := range map[string]string{
		"by length": "Content-Length: 100\r\n\r\n{",
		"in chunks": "Transfer-Encoding: chunked\r\n\r\n5\r\n{",
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, httpadapter.Config{}, created())
			server := serve(t, s.h, (*httptest.Server).Start)
			conn, r := dial(t, server, strings.TrimSuffix(head, "\r\n"))
			require.NoError(t, conn.CloseWrite())
			wantLine(t, r, "400")
			s.wantRuns(t, 0)
			res := call(t.Context(), t, server, "k", "{}")
			assert.Equal(t, http.StatusCreated, res.status, "the whole")
			assert.Equal(t, "paid", res.body)
			assert.Empty(t, res.header.Get("Idempotent-Replayed"))
		})
	}
}

// With http.TimeoutHandler outside, the client gets a 503, and its retry gets the answer.
func TestTimeoutHandlerOutside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, httpadapter.Config{}, func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(10 * time.Second)
			created()(w, r)
		})
		h := http.TimeoutHandler(s.h, time.Second, "slow")
		wantAnswer(t, send(h, post("k", "{}")), 503, "slow", nil)
		wantProblem(t, send(h, post("k", "{}")), 409, "in-flight", retryInOne)
		time.Sleep(10 * time.Second)
		wantAnswer(t, send(h, post("k", "{}")), 201, "paid", replayed)
		s.wantRuns(t, 1)
	})
}

// With http.TimeoutHandler inside, it answers while its handler still runs. The key is free, and a
// second handler runs at the same time. This shows why it belongs outside.
func TestTimeoutHandlerInsideIsWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		running, most := 0, 0
		slow := http.TimeoutHandler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			time.Sleep(10 * time.Second)
			mu.Lock()
			running--
			mu.Unlock()
		}), time.Second, "slow")
		s := newService(t, httpadapter.Config{}, slow.ServeHTTP)
		wantAnswer(t, s.post("k", "{}"), 503, "slow", firstTime)
		wantAnswer(t, s.post("k", "{}"), 503, "slow", firstTime)
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		assert.Equal(t, 2, most,
			"ran at once: if it is right inside by now, say so in the documentation of Handler")
	})
}

// Equal requests at the same time: one runs, and every answer is the stored one or 409.
func TestManyAtOnce(t *testing.T) {
	s := newService(t, httpadapter.Config{}, created())
	server := serve(t, s.h, (*httptest.Server).Start)
	server.Client().Transport.(*http.Transport).MaxIdleConnsPerHost = 50
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			switch res := call(t.Context(), t, server, "k", "{}"); {
			case res.status == http.StatusCreated && res.body == "paid" &&
				res.header.Get("Location") == "/payments/1":
			case res.status == http.StatusConflict && res.header.Get("Retry-After") == "1":
			default:
				t.Errorf("got %d %q, %v", res.status, res.body, res.header)
			}
		})
	}
	wg.Wait()
	s.wantRuns(t, 1)
}
