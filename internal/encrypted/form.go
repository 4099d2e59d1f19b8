// Package encrypted is the form in which adapters store responses. It is versioned, bounded on
// reading, and, if there are keys, encrypted and bound to the key of its record. The
// package also makes the scopes and fingerprints by which such records are found and
// compared.
package encrypted

import (
	"encoding/binary"
	"maps"
	"slices"

	"github.com/onceward/onceward/dedup"
)

// Response is the stored part of an answer. Status is a status of HTTP or a code of gRPC,
// and Header its headers or metadata.
type Response struct {
	// Tombstone reports that the effect has happened and that its answer is not stored.
	Tombstone bool
	// Status of the answer, 0-65535.
	Status int
	// Header of the answer; a name may have no values.
	Header map[string][]string
	// Body of the answer.
	Body []byte
}

// The first byte of a stored response. No form is empty.
const (
	formPlain  = 0x01
	formSealed = 0x81

	kindResponse  = 1
	kindTombstone = 2

	maxStatus = 1<<16 - 1
)

// Encode returns the plain form of r: version, kind, status, the number of headers, each
// with its name and values, in the order of names; then the body, up to the end. Lengths
// and numbers are uvarints. A status that is out of range is written as 0, because no
// reader would accept it.
func Encode(r *Response) []byte {
	kind := byte(kindResponse)
	if r.Tombstone {
		kind = kindTombstone
	}
	status := uint64(r.Status)
	if r.Status < 0 || r.Status > maxStatus {
		status = 0
	}
	buf := make([]byte, 0, size(r))
	buf = append(buf, formPlain, kind)
	buf = binary.AppendUvarint(buf, status)
	buf = binary.AppendUvarint(buf, uint64(len(r.Header)))
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		buf = appendText(buf, name)
		buf = binary.AppendUvarint(buf, uint64(len(r.Header[name])))
		for _, value := range r.Header[name] {
			buf = appendText(buf, value)
		}
	}
	return append(buf, r.Body...)
}

// size is about the length of the result of Encode.
func size(r *Response) int {
	n := 16 + len(r.Body)
	for name, values := range r.Header {
		n += len(name) + 4
		for _, value := range values {
			n += len(value) + 3
		}
	}
	return n
}

func appendText(buf []byte, s string) []byte {
	buf = binary.AppendUvarint(buf, uint64(len(s)))
	return append(buf, s...)
}

// Decode reads the plain form. It returns a [*dedup.InputError] for other data. It never
// allocates more than the size of the data. Body is a part of data.
func Decode(data []byte) (*Response, error) {
	rd := reader{rest: data}
	if rd.byte() != formPlain {
		return nil, unreadable("has an unknown version")
	}
	r := &Response{}
	switch rd.byte() {
	case kindResponse:
	case kindTombstone:
		r.Tombstone = true
	default:
		return nil, unreadable("is of an unknown kind")
	}
	status := rd.number()
	if status > maxStatus {
		return nil, unreadable("has an impossible status")
	}
	r.Status = int(status)
	if n := rd.count(); n > 0 {
		r.Header = make(map[string][]string)
		for range n {
			name := rd.text()
			if _, twice := r.Header[name]; twice {
				return nil, unreadable("has a header twice")
			}
			r.Header[name] = rd.texts()
			if rd.bad {
				break
			}
		}
	}
	if rd.bad {
		return nil, unreadable("is cut short")
	}
	r.Body = rd.rest
	return r, nil
}

func unreadable(reason string) error {
	return &dedup.InputError{Field: "stored response", Reason: reason}
}

// reader parses a form. Once data is missing, the reader is bad and returns zeros.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) byte() byte {
	if len(r.rest) == 0 {
		r.bad = true
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

func (r *reader) number() uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 || r.bad {
		r.bad = true
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

// count reads a number of items, each of which has at least one byte.
func (r *reader) count() int {
	n := r.number()
	if n > uint64(len(r.rest)) {
		r.bad = true
		return 0
	}
	return int(n)
}

func (r *reader) text() string {
	n := r.count()
	s := string(r.rest[:n])
	r.rest = r.rest[n:]
	return s
}

func (r *reader) texts() []string {
	n := r.count()
	values := []string{}
	for range n {
		values = append(values, r.text())
		if r.bad {
			break
		}
	}
	return values
}
