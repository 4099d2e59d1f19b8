package proxy

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/cmd/internal/cli"
)

// patience is the longest wait of a test.
const patience = time.Minute

// rig is a service, a Redis, and the command in front of them.
type rig struct {
	*testing.T
	service    *httptest.Server
	redis      *miniredis.Miniredis
	url, admin string
	client     *http.Client
	log        *buffer

	end  context.CancelFunc
	code chan int
}

// buffer can be written by several goroutines.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

var addresses = regexp.MustCompile(`^clients: (\S+)   operators: (\S+)\n$`)

// start runs the command. file is a file of settings, and may be empty.
func start(t *testing.T, service http.HandlerFunc, file string, args ...string) *rig {
	t.Helper()
	r := &rig{T: t, service: httptest.NewServer(service), redis: miniredis.RunT(t),
		log: &buffer{}, code: make(chan int, 1)}
	t.Cleanup(r.service.Close)
	r.client = &http.Client{Transport: &http.Transport{}, Timeout: patience}
	t.Cleanup(r.client.CloseIdleConnections)
	args = append([]string{"--redis", "redis://" + r.redis.Addr(), "--upstream", r.service.URL,
		"--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, args...)
	if file != "" {
		args = append(args, "--config", written(t, "proxy.yaml", file))
	}
	var ctx context.Context
	ctx, r.end = context.WithCancel(t.Context())
	out, in := io.Pipe()
	go func() {
		r.code <- cli.Run(ctx, &cli.Streams{Out: in, Err: r.log}, Command(), args...)
		_ = in.Close()
	}()
	line, _ := bufio.NewReader(out).ReadString('\n')
	found := addresses.FindStringSubmatch(line)
	require.NotNil(t, found, "%q\n%s", line, r.log)
	r.url, r.admin = found[1], found[2]
	t.Cleanup(func() {
		r.end()
		<-r.code
	})
	return r
}

// ended returns the exit code, and leaves it for start's cleanup.
func (r *rig) ended() int {
	r.Helper()
	select {
	case code := <-r.code:
		r.code <- code
		return code
	case <-time.After(patience):
		require.FailNow(r, "the command does not end", "%s", r.log)
		return 0
	}
}

func written(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// answer is a response whose body was read.
type answer struct {
	status int
	header http.Header
	body   string
	err    error
}

// send sends a request; headers are "Name: value".
func (r *rig) send(method, path, body string, headers ...string) answer {
	r.Helper()
	req, err := http.NewRequestWithContext(r.Context(), method, r.url+path,
		strings.NewReader(body))
	require.NoError(r, err)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header[name] = append(req.Header[name], value) // with the given spelling of the name
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(text), err}
}

// pay sends a request with a key.
func (r *rig) pay(key string, headers ...string) answer {
	r.Helper()
	return r.send(http.MethodPost, "/pay", `{"amount":1}`,
		append(headers, "X-Account: alice", "Idempotency-Key: "+key)...)
}

// get asks the admin address.
func (r *rig) get(path string) (status int, body string) {
	r.Helper()
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, r.admin+path, nil)
	require.NoError(r, err)
	resp, err := r.client.Do(req)
	require.NoError(r, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(r, err)
	return resp.StatusCode, string(text)
}

// counted is a service that counts the requests it gets.
func counted(n *atomic.Int64, then http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		n.Add(1)
		if then != nil {
			then(w, r)
		} else {
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, "paid")
		}
	}
}

const scoped = "--principal-header=X-Account"

// await waits until the service has started a request.
func await(t *testing.T, began <-chan struct{}) {
	t.Helper()
	select {
	case <-began:
	case <-time.After(patience):
		require.FailNow(t, "the service got no request")
	}
}

// next returns the next request that the service gets.
func next(t *testing.T, seen <-chan *http.Request) *http.Request {
	t.Helper()
	select {
	case r := <-seen:
		return r
	case <-time.After(patience):
		require.FailNow(t, "the service got no request")
		return nil
	}
}

// wants checks the status and a part of the body.
func (a answer) wants(t *testing.T, status int, part string) {
	t.Helper()
	require.NoError(t, a.err)
	assert.Equal(t, status, a.status, a.body)
	assert.Contains(t, a.body, part)
}
