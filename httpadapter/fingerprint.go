package httpadapter

import (
	"bytes"
	"encoding/binary"
	"net/http"
	"slices"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/encrypted"
)

// FingerprintKey is the secret of fingerprints. With it they are HMAC-SHA-256, so nobody who reads
// the store can test a guess at a request.
type FingerprintKey struct {
	// Version of Key, 1-127. Fingerprints of two versions are not compared: after a change of the
	// key, a request with a key from before the change gets the recorded answer, whatever its
	// content. Use a new Version with the same Key if something else about the fingerprint has
	// changed.
	Version int
	// Key has 32 bytes.
	Key []byte
}

// fingerprintVersion is the version of the list of parts.
const fingerprintVersion = 1

// fingerprintMore holds the headers that the configuration adds to the fingerprint.
func (m *Middleware) fingerprintMore() (more []string, err error) {
	for _, name := range m.cfg.FingerprintHeaders {
		if !validName(name) {
			return nil, bad("FingerprintHeaders", "has %q, which is not a header", name)
		}
		if name = http.CanonicalHeaderKey(name); name != "Content-Type" &&
			name != "Content-Encoding" {
			more = append(more, name)
		}
	}
	slices.Sort(more)
	return slices.Compact(more), nil
}

// fingerprint digests the parts that must be the same in all requests with the same key.
func (m *Middleware) fingerprint(r *http.Request, body []byte) driver.Fingerprint {
	if m.cfg.Canonical != nil {
		if canonical, err := m.cfg.Canonical(r.Header.Get("Content-Type"),
			bytes.Clone(body)); err == nil {
			body = canonical
		}
	}
	head := make([]byte, 0, 256)
	head = encrypted.AppendPart(head, []byte{fingerprintVersion})
	for _, part := range [...]string{r.Method, requestPath(r), r.URL.RawQuery} {
		head = encrypted.AppendPart(head, part)
	}
	for _, name := range m.fingerprintHeaders {
		values := r.Header[name]
		if name == "Host" { // net/http keeps it elsewhere
			values = []string{m.cfg.sameHost(r)}
		}
		head = encrypted.AppendPart(head, name)
		var count [binary.MaxVarintLen64]byte
		head = encrypted.AppendPart(head, count[:binary.PutUvarint(count[:], uint64(len(values)))])
		for _, v := range values {
			head = encrypted.AppendPart(head, v)
		}
	}
	return m.digester.SumAfter(head, body)
}
