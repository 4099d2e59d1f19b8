package redistest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Fake serves a made-up Redis on loopback and returns what a client of it needs. For
// every command, answer returns the raw reply, or "" to cut the connection there. It is
// called from one goroutine per connection. Fake itself answers handshakes, and the layout record
// of a store that is opened. The options retry nothing, so that a test sees the result of a single
// try.
func Fake(t testing.TB, answer func(args []string) string) *redis.Options {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // closed below
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{answer: answer, conns: make(map[net.Conn]bool)}
	f.running.Go(func() { f.accept(l) })
	t.Cleanup(func() {
		_ = l.Close()
		f.close()
		f.running.Wait()
	})
	return &redis.Options{
		Addr: l.Addr().String(), Protocol: 2, DisableIdentity: true, MaxRetries: -1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// Bulk is a raw string reply.
func Bulk(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }

// Answer is the raw reply of one of our scripts.
func Answer(word string, left, age int64, record string) string {
	return fmt.Sprintf("*4\r\n%s:%d\r\n:%d\r\n%s", Bulk(word), left, age, Bulk(record))
}

type fake struct {
	answer  func(args []string) string
	running sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]bool
	closed bool
}

func (f *fake) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		f.mu.Lock()
		if f.closed {
			_ = conn.Close()
		} else {
			f.conns[conn] = true
			f.running.Go(func() { f.serve(conn) })
		}
		f.mu.Unlock()
	}
}

func (f *fake) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for conn := range f.conns {
		_ = conn.Close()
	}
}

func (f *fake) serve(conn net.Conn) {
	defer func() {
		f.mu.Lock()
		delete(f.conns, conn)
		f.mu.Unlock()
		_ = conn.Close()
	}()
	r := bufio.NewReader(conn)
	for {
		args, err := readCommand(r)
		if err != nil {
			return
		}
		reply, known := handshake(args)
		if !known {
			reply = f.answer(args)
		}
		if reply == "" {
			return
		}
		if _, err := io.WriteString(conn, reply); err != nil {
			return
		}
	}
}

// handshake answers the commands that come before the first one of a test.
func handshake(args []string) (reply string, known bool) {
	switch strings.ToUpper(args[0]) {
	case "HELLO":
		return "-ERR unknown command 'HELLO'\r\n", true
	case "CLIENT":
		return "+OK\r\n", true
	case "ACL": // with EnvUser
		return "-ERR unknown command 'ACL'\r\n", true
	case "GET", "SET":
		// New of a store agrees on a layout. Here it is always the first of its prefix, and its
		// index is complete.
		if len(args) > 1 && (strings.HasSuffix(args[1], ":layout") ||
			strings.HasSuffix(args[1], ":irreversible_complete")) {
			return "$-1\r\n", true
		}
	}
	return "", false
}

// readCommand reads an array of bulk strings, the only form that clients send.
func readCommand(r *bufio.Reader) ([]string, error) {
	n, err := readCount(r, '*')
	if err != nil {
		return nil, err
	}
	args := make([]string, n)
	for i := range args {
		size, err := readCount(r, '$')
		if err != nil {
			return nil, err
		}
		b := make([]byte, size+2)
		if _, err := io.ReadFull(r, b); err != nil {
			return nil, err
		}
		args[i] = string(b[:size])
	}
	return args, nil
}

func readCount(r *bufio.Reader, kind byte) (int, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return 0, err
	}
	if line[0] != kind {
		return 0, fmt.Errorf("redistest: %q where %q is expected", line, kind)
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}
