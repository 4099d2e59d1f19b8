package redisproxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// Bounds of what is read; beyond them the stream is not the protocol.
const (
	maxBulk  = 512 << 20 // Redis's own proto-max-bulk-len
	maxItems = 1 << 24
	maxDepth = 64
)

var errProtocol = errors.New("redisproxy: not the Redis protocol")

// respReader reads whole values of RESP2 and RESP3 and keeps their bytes as they were.
type respReader struct {
	*bufio.Reader
	raw bytes.Buffer
}

func newRespReader(r io.Reader) *respReader {
	return &respReader{Reader: bufio.NewReaderSize(r, 64<<10)}
}

// command reads a request: an array of bulk strings. The bytes are the caller's.
func (r *respReader) command() (raw []byte, args [][]byte, err error) {
	r.raw.Reset()
	kind, n, err := r.header()
	if err != nil {
		return nil, nil, err
	}
	if kind != '*' || n < 1 || n > maxItems {
		return nil, nil, fmt.Errorf("%w: a request begins with %q and %d items",
			errProtocol, kind, n)
	}
	type span struct{ from, to int }
	var spans []span
	for range n {
		kind, size, err := r.header()
		if err != nil {
			return nil, nil, err
		}
		if kind != '$' || size < 0 {
			return nil, nil, fmt.Errorf("%w: an argument begins with %q", errProtocol, kind)
		}
		from := r.raw.Len()
		if err := r.bulk(size); err != nil {
			return nil, nil, err
		}
		spans = append(spans, span{from, from + size})
	}
	raw = bytes.Clone(r.raw.Bytes())
	for _, s := range spans {
		args = append(args, raw[s.from:s.to])
	}
	return raw, args, nil
}

// value reads one reply or push. The bytes are the caller's.
func (r *respReader) value() ([]byte, error) {
	r.raw.Reset()
	if err := r.nested(0); err != nil {
		return nil, err
	}
	return bytes.Clone(r.raw.Bytes()), nil
}

// nested appends one value with all that is in it.
func (r *respReader) nested(depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%w: nested deeper than %d", errProtocol, maxDepth)
	}
	kind, n, err := r.header()
	if err != nil {
		return err
	}
	items := n
	switch kind {
	case '+', '-', ':', ',', '#', '_', '(':
		return nil // all of it was the line
	case '$', '=', '!':
		return r.bulk(n)
	case '*', '~', '>':
	case '%':
		items = 2 * n
	case '|':
		items = 2*n + 1 // an attribute comes before the value it belongs to
	default:
		return fmt.Errorf("%w: a value begins with %q", errProtocol, kind)
	}
	for range items { // a null array has -1
		if err := r.nested(depth + 1); err != nil {
			return err
		}
	}
	return nil
}

// header appends a line and returns its first byte and, for the types that have one, its
// length: -1 for a null.
func (r *respReader) header() (kind byte, n int, err error) {
	line, err := r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return 0, 0, fmt.Errorf("%w: a line without end", errProtocol)
	}
	if err != nil {
		return 0, 0, err
	}
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return 0, 0, fmt.Errorf("%w: a line of %d bytes without CRLF", errProtocol, len(line))
	}
	r.raw.Write(line)
	kind = line[0]
	if !bytes.ContainsRune([]byte("$=!*~>%|"), rune(kind)) {
		return kind, 0, nil
	}
	n, err = strconv.Atoi(string(line[1 : len(line)-2]))
	if err != nil || n < -1 || n > maxItems && !bytes.ContainsRune([]byte("$=!"), rune(kind)) ||
		n > maxBulk {
		return 0, 0, fmt.Errorf("%w: length %q", errProtocol, line[1:len(line)-2])
	}
	return kind, n, nil
}

// bulk appends n bytes and their CRLF; none for a null. Memory grows with what arrives,
// not with what is announced.
func (r *respReader) bulk(n int) error {
	if n < 0 {
		return nil
	}
	if _, err := io.CopyN(&r.raw, r.Reader, int64(n)+2); err != nil {
		return noEOF(err)
	}
	if tail := r.raw.Bytes()[r.raw.Len()-2:]; tail[0] != '\r' || tail[1] != '\n' {
		return fmt.Errorf("%w: a string without CRLF", errProtocol)
	}
	return nil
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
