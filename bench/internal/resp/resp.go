// Package resp is a minimal client of the Redis protocol (RESP2): it writes commands into one
// buffer, sends them in one write and reads the replies, without allocating. The benchmarks compare
// clients with it: it has no pool, no retry and no reconnect. A command fails with [must.Do].
package resp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/onceward/onceward/bench/internal/must"
)

// Conn is one connection. It is not for concurrent use, and cannot be used after an error.
type Conn struct {
	conn net.Conn
	out  []byte
	in   *bufio.Reader
	text []byte // of the last reply
}

const readBuffer = 64 << 10

// Dial connects to a server. Reads and writes fail once the context of their call ends.
func Dial(ctx context.Context, addr string) *Conn {
	conn := must.Get((&net.Dialer{}).DialContext(ctx, "tcp", addr))
	return &Conn{conn: conn, in: bufio.NewReaderSize(conn, readBuffer)}
}

// Close closes the connection.
func (c *Conn) Close() error { return c.conn.Close() }

// add adds a command to the next send. Each command has one reply.
func (c *Conn) add(args ...string) {
	c.number('*', len(args))
	for _, arg := range args {
		c.number('$', len(arg))
		c.out = append(append(c.out, arg...), '\r', '\n')
	}
}

func (c *Conn) number(kind byte, n int) {
	c.out = append(strconv.AppendInt(append(c.out, kind), int64(n), 10), '\r', '\n')
}

// send sends all added commands in one write. Until stop is called, the connection obeys ctx.
func (c *Conn) send(ctx context.Context) (stop func() bool) {
	stop = context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) })
	_, err := c.conn.Write(c.out)
	c.out = c.out[:0]
	must.Do(err)
	return stop
}

// ErrProtocol reports a reply that is not RESP2, or not the reply that the command should have.
var ErrProtocol = errors.New("resp: unexpected reply")

const maxBulk = 1 << 20 // more than the largest string that is measured

// read reads a reply: a string, or nil if it is absent. For any other reply, such as a refusal, it
// returns an error. The string is valid until the next reply is read.
func (c *Conn) read() []byte {
	line := c.line()
	n, err := strconv.Atoi(string(line[1:])) // it does not allocate a string
	if line[0] != '$' || err != nil || n < -1 || n > maxBulk {
		must.Do(fmt.Errorf("%w: %.80q", ErrProtocol, line))
	}
	if n < 0 {
		return nil
	}
	c.text = slices.Grow(c.text[:0], n+2)[:n+2]
	_, err = io.ReadFull(c.in, c.text)
	must.Do(err)
	if c.text[n] != '\r' || c.text[n+1] != '\n' {
		must.Do(fmt.Errorf("%w: a string of %d bytes does not end there", ErrProtocol, n))
	}
	return c.text[:n]
}

// line returns the next line without its line break. It is valid until the next read.
func (c *Conn) line() []byte {
	line, err := c.in.ReadSlice('\n')
	must.Do(err)
	if len(line) < 3 || line[len(line)-2] != '\r' {
		must.Do(fmt.Errorf("%w: line %q", ErrProtocol, line))
	}
	return line[:len(line)-2]
}

// set sends SET key value GET and the arguments in more for every key, and calls expected with
// every old value.
func (c *Conn) set(ctx context.Context, keys []string, value string,
	expected func(at int, old []byte) bool, more ...string) {
	args := append([]string{"SET", "", value, "GET"}, more...)
	for _, key := range keys {
		args[1] = key
		c.add(args...)
	}
	defer c.send(ctx)()
	for at, key := range keys {
		if old := c.read(); !expected(at, old) {
			must.Do(fmt.Errorf("%w: %s: the old value is %.80q", ErrProtocol, key, old))
		}
	}
}

func (c *Conn) claim(ctx context.Context, keys []string, token string, lease time.Duration,
	expected func(at int, old []byte) bool) {
	c.set(ctx, keys, token, expected, "PX", millis(lease), "NX")
}

// ClaimNew claims keys that must all be new.
func (c *Conn) ClaimNew(ctx context.Context, keys []string, token string, lease time.Duration) {
	c.claim(ctx, keys, token, lease, func(_ int, old []byte) bool { return old == nil })
}

// ClaimKnown claims keys that must all be known.
func (c *Conn) ClaimKnown(ctx context.Context, keys []string, token string, lease time.Duration) {
	c.claim(ctx, keys, token, lease, func(_ int, old []byte) bool { return old != nil })
}

// Claim claims keys, some of which are known, and returns the new ones. The value of a known key
// must not be token, because its owner must be done with the key.
func (c *Conn) Claim(ctx context.Context, keys []string, token string,
	lease time.Duration) []string {
	won := make([]string, 0, len(keys))
	c.claim(ctx, keys, token, lease, func(at int, old []byte) bool {
		if old == nil {
			won = append(won, keys[at])
		}
		return string(old) != token
	})
	return won
}

// Complete sets value for the window; all keys must hold token.
func (c *Conn) Complete(ctx context.Context, keys []string, token, value string,
	window time.Duration) {
	c.set(ctx, keys, value, func(_ int, old []byte) bool { return string(old) == token }, "PX",
		millis(window))
}

// MGet asks for all keys in one command; all must be known.
func (c *Conn) MGet(ctx context.Context, keys []string) {
	c.add(append([]string{"MGET"}, keys...)...)
	defer c.send(ctx)()
	head := string(c.line())
	must.True(head == fmt.Sprint("*", len(keys)), "%w: MGET of %d keys: %.80q", ErrProtocol,
		len(keys), head)
	for _, key := range keys {
		if c.read() == nil {
			must.Do(fmt.Errorf("resp: MGET: %s is not known", key))
		}
	}
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
