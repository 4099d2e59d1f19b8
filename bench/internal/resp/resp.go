// Package resp is the least that speaks the Redis protocol (RESP2): it writes commands into one
// buffer, sends them in one write and reads the replies one after another, without allocating. It
// is the yardstick of the benchmarks, the limit of what a client in Go can reach, and nothing more:
// no pool, no retry, no reconnect. A command that fails does so with [must.Do].
package resp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/onceward/onceward/bench/internal/must"
)

// Conn is one connection. It is not for concurrent use. After an error it is of no use.
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

// add adds a command to what is sent next. One reply will come for it.
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

// send sends all commands that were added, in one write. Until stop is called the connection
// obeys ctx.
func (c *Conn) send(ctx context.Context) (stop func() bool) {
	stop = context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) })
	_, err := c.conn.Write(c.out)
	c.out = c.out[:0]
	must.Do(err)
	return stop
}

// Reply is one reply, or the head of an array: its Int elements follow, each a reply of its own.
type Reply struct {
	Kind byte // by which it begins: '+', '-' (a refusal), ':', '$' or '*'
	// Int is the value of an integer or the length of an array.
	Int int
	// Text of the other kinds. It is valid until the next reply is read.
	Text []byte
	// Null says that a string or an array is absent.
	Null bool
}

// ErrProtocol is a reply that is not RESP2.
var ErrProtocol = errors.New("resp: malformed reply")

// maxBulk is Redis's own limit of a string.
const maxBulk = 512 << 20

func (c *Conn) read() Reply {
	line := c.line()
	r := Reply{Kind: line[0]}
	switch r.Kind {
	case '+', '-':
		r.Text = line[1:]
		return r
	case ':', '$', '*':
	default:
		must.Do(fmt.Errorf("%w: it begins with %q", ErrProtocol, line[0]))
	}
	n, ok := parseInt(line[1:])
	if !ok || r.Kind != ':' && (n < -1 || n > maxBulk) {
		must.Do(fmt.Errorf("%w: number %q", ErrProtocol, line[1:]))
	}
	switch {
	case r.Kind != ':' && n == -1:
		r.Null = true
	case r.Kind == '$':
		r.Text = c.bulk(n)
	default:
		r.Int = n
	}
	return r
}

// line returns the next line without its end. It is valid until the next read.
func (c *Conn) line() []byte {
	line, err := c.in.ReadSlice('\n')
	must.Do(err)
	if len(line) < 3 || line[len(line)-2] != '\r' {
		must.Do(fmt.Errorf("%w: line %q", ErrProtocol, line))
	}
	return line[:len(line)-2]
}

// bulk reads n bytes and the line's end. It takes memory as bytes arrive, not as many as the server
// has announced.
func (c *Conn) bulk(n int) []byte {
	c.text = c.text[:0]
	for want := n + 2; want > 0; {
		_, err := c.in.Peek(1) // wait for something
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		must.Do(err)
		part, _ := c.in.Peek(min(want, c.in.Buffered())) // it is there
		c.text = append(c.text, part...)
		want -= len(part)
		_, _ = c.in.Discard(len(part))
	}
	if c.text[n] != '\r' || c.text[n+1] != '\n' {
		must.Do(fmt.Errorf("%w: a string of %d bytes does not end there", ErrProtocol, n))
	}
	return c.text[:n]
}

// parseInt is strconv.Atoi without making a string.
func parseInt(text []byte) (n int, ok bool) {
	negative := len(text) > 0 && text[0] == '-'
	if negative {
		text = text[1:]
	}
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	if negative {
		n = -n
	}
	return n, len(text) > 0 && len(text) <= 18
}

// set sends SET key value GET with more arguments for every key, and has every reply checked.
func (c *Conn) set(ctx context.Context, keys []string, value string, more [3]string,
	expected func(at int, r Reply) bool) {
	for _, key := range keys {
		if more[2] == "" {
			c.add("SET", key, value, "GET", more[0], more[1])
		} else {
			c.add("SET", key, value, "GET", more[0], more[1], more[2])
		}
	}
	defer c.send(ctx)()
	for at, key := range keys {
		r := c.read()
		if r.Kind != '$' || !expected(at, r) {
			must.Do(fmt.Errorf("resp: %s: unexpected reply %c%d %.80q", key, r.Kind, r.Int, r.Text))
		}
	}
}

func (c *Conn) claim(ctx context.Context, keys []string, token string, lease time.Duration,
	expected func(at int, r Reply) bool) {
	c.set(ctx, keys, token, [3]string{"PX", millis(lease), "NX"}, expected)
}

// ClaimNew claims keys that all must be new.
func (c *Conn) ClaimNew(ctx context.Context, keys []string, token string, lease time.Duration) {
	c.claim(ctx, keys, token, lease, func(_ int, r Reply) bool { return r.Null })
}

// ClaimKnown claims keys that all must be known.
func (c *Conn) ClaimKnown(ctx context.Context, keys []string, token string, lease time.Duration) {
	c.claim(ctx, keys, token, lease, func(_ int, r Reply) bool { return !r.Null })
}

// Claim claims keys of which some are known, and returns those that are new. The owner of a known
// one must be done with it: its value is not token.
func (c *Conn) Claim(ctx context.Context, keys []string, token string,
	lease time.Duration) []string {
	won := make([]string, 0, len(keys))
	c.claim(ctx, keys, token, lease, func(at int, r Reply) bool {
		if r.Null {
			won = append(won, keys[at])
		}
		return r.Null || string(r.Text) != token
	})
	return won
}

// Complete sets value for the window; all keys must hold token.
func (c *Conn) Complete(ctx context.Context, keys []string, token, value string,
	window time.Duration) {
	c.set(ctx, keys, value, [3]string{"PX", millis(window)},
		func(_ int, r Reply) bool { return string(r.Text) == token })
}

// MGet asks for all keys in one command; all must be known.
func (c *Conn) MGet(ctx context.Context, keys []string) {
	c.add(append([]string{"MGET"}, keys...)...)
	defer c.send(ctx)()
	head := c.read()
	must.True(head.Kind == '*' && head.Int == len(keys), "resp: MGET of %d keys: reply %c%d",
		len(keys), head.Kind, head.Int)
	for _, key := range keys {
		if r := c.read(); r.Kind != '$' || r.Null {
			must.Do(fmt.Errorf("resp: MGET: %s is not known", key))
		}
	}
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
