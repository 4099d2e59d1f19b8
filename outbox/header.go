package outbox

import (
	"encoding/binary"
	"errors"
)

// Headers are stored in one column: a version, the number of headers, then for each header the name
// and the value, each behind its length. A value's length is stored plus one; zero stands for a nil
// value. Lengths are varints.
const (
	headerVersion = 1
	headerCost    = 20 // upper bound for the lengths of one header, in bytes
)

var errHeaders = errors.New("outbox: headers are not of a form this version reads")

func encodeHeaders(headers []Header) []byte {
	size := 1 + binary.MaxVarintLen64
	for _, h := range headers {
		size += headerCost + len(h.Key) + len(h.Value)
	}
	b := append(make([]byte, 0, size), headerVersion)
	b = binary.AppendUvarint(b, uint64(len(headers)))
	for _, h := range headers {
		b = binary.AppendUvarint(b, uint64(len(h.Key)))
		b = append(b, h.Key...)
		if h.Value == nil {
			b = binary.AppendUvarint(b, 0)
			continue
		}
		b = binary.AppendUvarint(b, uint64(len(h.Value))+1)
		b = append(b, h.Value...)
	}
	return b
}

// decodeHeaders leaves room for one more header, that of the id. The values share memory with b.
func decodeHeaders(b []byte) ([]Header, error) {
	if len(b) == 0 || b[0] != headerVersion {
		return nil, errHeaders
	}
	count, b, ok := uvarint(b[1:])
	if !ok || count > uint64(len(b))/2 {
		return nil, errHeaders
	}
	headers := make([]Header, 0, count+1)
	for range count {
		var h Header
		if h, b, ok = decodeHeader(b); !ok {
			return nil, errHeaders
		}
		headers = append(headers, h)
	}
	if len(b) > 0 {
		return nil, errHeaders
	}
	return headers, nil
}

func decodeHeader(b []byte) (h Header, rest []byte, ok bool) {
	n, b, ok := uvarint(b)
	if !ok || n > uint64(len(b)) {
		return h, nil, false
	}
	h.Key, b = string(b[:n]), b[n:]
	if n, b, ok = uvarint(b); !ok || n > uint64(len(b))+1 {
		return h, nil, false
	}
	if n > 0 {
		h.Value, b = b[:n-1:n-1], b[n-1:]
	}
	return h, b, true
}

func uvarint(b []byte) (n uint64, rest []byte, ok bool) {
	n, size := binary.Uvarint(b)
	if size <= 0 {
		return 0, nil, false
	}
	return n, b[size:], true
}
