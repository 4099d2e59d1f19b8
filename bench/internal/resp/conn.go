package resp

import (
	"bufio"
	"context"
	"fmt"
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

// Pending is how many replies are still to be read.
func (c *Conn) Pending() int { return c.pending }
