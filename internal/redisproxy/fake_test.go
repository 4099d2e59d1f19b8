package redisproxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/redisproxy"
)

// fakeServer answers every command with what answer says, which may be any bytes, and
// remembers what it has executed.
type fakeServer struct {
	addr   string
	answer func(command string) string

	mu       sync.Mutex
	executed []string
}

func newFakeServer(t *testing.T, answer func(command string) string) *fakeServer {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f := &fakeServer{addr: l.Addr().String(), answer: answer}
	var wg sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { f.serve(conn) })
		}
	})
	return f
}

func (f *fakeServer) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	for r := bufio.NewReader(conn); ; {
		command, err := readCommand(r)
		if err != nil {
			return
		}
		f.mu.Lock()
		f.executed = append(f.executed, command)
		f.mu.Unlock()
		if _, err := io.WriteString(conn, f.answer(command)); err != nil {
			return
		}
	}
}

func (f *fakeServer) has(command string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.executed {
		if c == command {
			return true
		}
	}
	return false
}

// readCommand is a second, simpler reader, so that the proxy's own is not its judge.
func readCommand(r *bufio.Reader) (string, error) {
	var n, size int
	if _, err := fmt.Fscanf(r, "*%d\r\n", &n); err != nil {
		return "", err
	}
	words := make([]string, n)
	for i := range words {
		if _, err := fmt.Fscanf(r, "$%d\r\n", &size); err != nil {
			return "", err
		}
		word := make([]byte, size+2)
		if _, err := io.ReadFull(r, word); err != nil {
			return "", err
		}
		words[i] = string(word[:size])
	}
	return strings.Join(words, " "), nil
}

// client is a connection that shows every byte.
type client struct {
	t *testing.T
	net.Conn
}

func dial(t *testing.T, p *redisproxy.Proxy) *client {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", p.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	return &client{t, conn}
}

func encode(commands ...string) string {
	var b strings.Builder
	for _, command := range commands {
		words := strings.Fields(command)
		fmt.Fprintf(&b, "*%d\r\n", len(words))
		for _, w := range words {
			fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
		}
	}
	return b.String()
}

// send sends a pipeline in one write.
func (c *client) send(commands ...string) {
	c.t.Helper()
	_, err := io.WriteString(c.Conn, encode(commands...))
	require.NoError(c.t, err)
}

// want reads exactly these bytes.
func (c *client) want(reply string) {
	c.t.Helper()
	got := make([]byte, len(reply))
	n, err := io.ReadFull(c.Conn, got)
	require.NoError(c.t, err, "read %q", got[:n])
	require.Equal(c.t, reply, string(got), "read %q", got[:n])
}

// rest reads to the end of the connection.
func (c *client) rest() (string, error) {
	got, err := io.ReadAll(c.Conn)
	return string(got), err
}

// wantSilence checks that the connection is open and that nothing comes.
func (c *client) wantSilence() {
	c.t.Helper()
	require.NoError(c.t, c.SetReadDeadline(time.Now().Add(30*time.Millisecond)))
	got, err := c.rest()
	var timeout net.Error
	require.Empty(c.t, got, "read: %v", err)
	require.True(c.t, asTimeout(err, &timeout), "read %q, %v; want nothing, and an open connection",
		got, err)
	require.NoError(c.t, c.SetReadDeadline(time.Now().Add(time.Minute)))
}
