// Package resp is the least that speaks the Redis protocol (RESP2): it writes commands into
// one buffer, sends them in one write and reads the replies one after another, without
// allocating. It is the yardstick of the benchmarks, the limit of what a client in Go can
// reach, and nothing more: no pool, no retry, no reconnect.
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
)

// Conn is one connection. It is not for concurrent use. After an error it is of no use.
type Conn struct {
	conn    net.Conn
	out     []byte
	in      *bufio.Reader
	text    []byte // of the last reply
	pending int
}

const readBuffer = 64 << 10

// Dial connects to a server. The connection obeys deadlines set by [Conn.Watch] only.
func Dial(ctx context.Context, addr string) (*Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("resp: %w", err)
	}
	return &Conn{conn: conn, in: bufio.NewReaderSize(conn, readBuffer)}, nil
}

// Watch makes reads and writes fail once ctx ends, until stop is called.
func (c *Conn) Watch(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) })
}

// Close closes the connection.
func (c *Conn) Close() error { return c.conn.Close() }

// Append adds a command to what the next [Conn.Flush] sends. One reply will come for it.
func (c *Conn) Append(args ...string) {
	c.out = append(c.out, '*')
	c.out = strconv.AppendInt(c.out, int64(len(args)), 10)
	c.out = append(c.out, '\r', '\n')
	for _, arg := range args {
		c.out = append(c.out, '$')
		c.out = strconv.AppendInt(c.out, int64(len(arg)), 10)
		c.out = append(c.out, '\r', '\n')
		c.out = append(c.out, arg...)
		c.out = append(c.out, '\r', '\n')
	}
	c.pending++
}

// Flush sends all commands that were appended, in one write.
func (c *Conn) Flush() error {
	_, err := c.conn.Write(c.out)
	c.out = c.out[:0]
	if err != nil {
		return fmt.Errorf("resp: %w", err)
	}
	return nil
}

// Kind is the type of a reply.
type Kind byte

// Kinds, by the byte that they begin with.
const (
	Simple  Kind = '+'
	Failure Kind = '-'
	Integer Kind = ':'
	Bulk    Kind = '$'
	Array   Kind = '*'
)

// Reply is one reply, or the head of an array: its Int elements follow, each a reply of its
// own that [Conn.Element] reads.
type Reply struct {
	Kind Kind
	// Int is the value of an Integer or the length of an Array.
	Int int64
	// Text of the other kinds. It is valid until the next reply is read.
	Text []byte
	// Null says that a Bulk or an Array is absent.
	Null bool
}

// ErrProtocol is a reply that is not RESP2.
var ErrProtocol = errors.New("resp: malformed reply")

// maxBulk is Redis's own limit of a string.
const maxBulk = 512 << 20

// Read reads the next command's reply. A refusal of the server is a reply of Kind Failure
// and no error.
func (c *Conn) Read() (Reply, error) {
	if c.pending == 0 {
		return Reply{}, errors.New("resp: no reply is pending")
	}
	c.pending--
	return c.Element()
}

// Element reads an element of an array.
func (c *Conn) Element() (Reply, error) {
	line, err := c.line()
	if err != nil {
		return Reply{}, err
	}
	r := Reply{Kind: Kind(line[0])}
	switch r.Kind {
	case Simple, Failure:
		r.Text = line[1:]
		return r, nil
	case Integer, Bulk, Array:
	default:
		return Reply{}, fmt.Errorf("%w: it begins with %q", ErrProtocol, line[0])
	}
	n, ok := parseInt(line[1:])
	if !ok || (r.Kind != Integer && (n < -1 || n > maxBulk)) {
		return Reply{}, fmt.Errorf("%w: number %q", ErrProtocol, line[1:])
	}
	if r.Kind != Integer && n == -1 {
		r.Null = true
		return r, nil
	}
	r.Int = n
	if r.Kind == Bulk {
		r.Int, r.Text, err = 0, nil, c.bulk(int(n))
		r.Text = c.text
	}
	return r, err
}

// line returns the next line without its end. It is valid until the next read.
func (c *Conn) line() ([]byte, error) {
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return nil, fmt.Errorf("resp: %w", err)
	}
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return nil, fmt.Errorf("%w: line %q", ErrProtocol, line)
	}
	return line[:len(line)-2], nil
}

// bulk reads n bytes and the line's end into c.text. It takes memory as bytes arrive, not
// as many as the server has announced.
func (c *Conn) bulk(n int) error {
	c.text = c.text[:0]
	for want := n + 2; want > 0; {
		if _, err := c.in.Peek(1); err != nil { // wait for something
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return fmt.Errorf("resp: %w", err)
		}
		part, _ := c.in.Peek(min(want, c.in.Buffered())) // it is there
		c.text = append(c.text, part...)
		want -= len(part)
		_, _ = c.in.Discard(len(part))
	}
	if c.text[n] != '\r' || c.text[n+1] != '\n' {
		return fmt.Errorf("%w: a string of %d bytes does not end there", ErrProtocol, n)
	}
	c.text = c.text[:n]
	return nil
}

// parseInt is strconv.ParseInt without making a string.
func parseInt(text []byte) (int64, bool) {
	negative := len(text) > 0 && text[0] == '-'
	if negative {
		text = text[1:]
	}
	if len(text) == 0 || len(text) > 18 {
		return 0, false
	}
	var n int64
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	if negative {
		n = -n
	}
	return n, true
}

// pipeline sends one command per key and checks every reply.
func (c *Conn) pipeline(ctx context.Context, keys []string, command func(key string),
	check func(Reply) bool) error {
	defer c.Watch(ctx)()
	for _, key := range keys {
		command(key)
	}
	if err := c.Flush(); err != nil {
		return err
	}
	for _, key := range keys {
		r, err := c.Read()
		if err != nil {
			return err
		}
		if !check(r) {
			return fmt.Errorf("resp: %s: unexpected reply %c%d %.80q", key, r.Kind, r.Int, r.Text)
		}
	}
	return nil
}

// claim sends SET key token NX GET PX lease for every key, in one pipeline.
func (c *Conn) claim(ctx context.Context, keys []string, token string, lease time.Duration,
	check func(Reply) bool) error {
	px := millis(lease)
	return c.pipeline(ctx, keys, func(key string) {
		c.Append("SET", key, token, "NX", "GET", "PX", px)
	},
		func(r Reply) bool { return r.Kind == Bulk && check(r) })
}

// ClaimNew claims keys that all must be new.
func (c *Conn) ClaimNew(ctx context.Context, keys []string, token string,
	lease time.Duration) error {
	return c.claim(ctx, keys, token, lease, func(r Reply) bool { return r.Null })
}

// ClaimKnown claims keys that all must be known.
func (c *Conn) ClaimKnown(ctx context.Context, keys []string, token string,
	lease time.Duration) error {
	return c.claim(ctx, keys, token, lease, func(r Reply) bool { return !r.Null })
}

// Claim claims keys of which some are known, and returns those that are new. The owner of a known
// one must be done with it: its value is not token.
func (c *Conn) Claim(ctx context.Context, keys []string, token string,
	lease time.Duration) ([]string, error) {
	at, won := 0, make([]string, 0, len(keys))
	err := c.claim(ctx, keys, token, lease, func(r Reply) bool {
		if r.Null {
			won = append(won, keys[at])
		}
		at++
		return r.Null || string(r.Text) != token
	})
	return won, err
}

// Complete sends SET key value GET PX window for every key, in one pipeline; all keys must
// hold token.
func (c *Conn) Complete(ctx context.Context, keys []string, token, value string,
	window time.Duration) error {
	px := millis(window)
	return c.pipeline(ctx, keys, func(key string) { c.Append("SET", key, value, "GET", "PX", px) },
		func(r Reply) bool { return r.Kind == Bulk && string(r.Text) == token })
}

// MGet asks for all keys in one command; all must be known.
func (c *Conn) MGet(ctx context.Context, keys []string) error {
	defer c.Watch(ctx)()
	c.Append(append([]string{"MGET"}, keys...)...)
	if err := c.Flush(); err != nil {
		return err
	}
	head, err := c.Read()
	if err != nil {
		return err
	}
	if head.Kind != Array || head.Int != int64(len(keys)) {
		return fmt.Errorf("resp: MGET of %d keys: reply %c%d", len(keys), head.Kind, head.Int)
	}
	for _, key := range keys {
		r, err := c.Element()
		if err != nil {
			return err
		}
		if r.Kind != Bulk || r.Null {
			return fmt.Errorf("resp: MGET: %s is not known", key)
		}
	}
	return nil
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
