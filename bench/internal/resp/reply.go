package resp

import (
	"errors"
	"fmt"
	"io"
)

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

// Read reads the next command's reply. What the server refuses is a reply of Kind Failure
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
			return fmt.Errorf("resp: %w", unexpected(err))
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

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
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
