package serve

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// conn is one connection of a client that allocates nothing for a request, so that what is counted is
// the server's. It is for one goroutine.
type conn struct {
	conn net.Conn
	in   *bufio.Reader
	head []byte // of every request, up to the key
	tail []byte // from behind the key
	out  []byte
	body []byte // of the last answer
}

const charge = `{"account":"acct-4711","amount":4200,"currency":"eur","reference":"order-815"}`

func dial(ctx context.Context, addr string) (*conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("serve: %w", err)
	}
	return &conn{
		conn: c, in: bufio.NewReaderSize(c, 16<<10),
		head: []byte("POST /charges HTTP/1.1\r\nHost: " + addr + "\r\nContent-Type: application/json\r\nIdempotency-Key: "),
		tail: []byte("\r\nContent-Length: " + strconv.Itoa(len(charge)) + "\r\n\r\n" + charge),
	}, nil
}

// timeout of one request; nothing that is measured takes as long.
const timeout = 30 * time.Second

// post sends a charge under key, and keeps the answer's body in c.body.
func (c *conn) post(key string) error {
	if err := c.conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	c.out = append(append(append(c.out[:0], c.head...), key...), c.tail...)
	if _, err := c.conn.Write(c.out); err != nil {
		return err
	}
	status, length := 0, -1
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return err
		}
		line = bytes.TrimRight(line, "\r\n")
		if status == 0 {
			if len(line) < len("HTTP/1.1 201") {
				return fmt.Errorf("serve: status line %q", line)
			}
			status = number(line[9:12])
			continue
		}
		if len(line) == 0 {
			break
		}
		if name, value, ok := bytes.Cut(line, []byte(": ")); ok && bytes.EqualFold(name, contentLength) {
			length = number(value)
		}
	}
	if length < 0 {
		return errors.New("serve: an answer without Content-Length")
	}
	if cap(c.body) < length {
		c.body = make([]byte, length)
	}
	c.body = c.body[:length]
	if _, err := io.ReadFull(c.in, c.body); err != nil {
		return err
	}
	if status != 201 {
		return fmt.Errorf("serve: status %d: %.200s", status, c.body)
	}
	return nil
}

var contentLength = []byte("Content-Length")

// number reads digits; anything else is -1.
func number(digits []byte) int {
	n := 0
	for _, d := range digits {
		if d < '0' || d > '9' {
			return -1
		}
		n = n*10 + int(d-'0')
	}
	return n
}
