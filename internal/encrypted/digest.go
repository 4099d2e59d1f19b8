package encrypted

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// ScopeOf returns the scope of a record: a digest of the parts, each with its length in front, so
// that no part is in clear and no part runs into the next. It is 43 characters of base64url.
func ScopeOf(parts ...string) string {
	sum := sha256.Sum256(appendParts(make([]byte, 0, 256), parts...)) // on the stack, mostly
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

const (
	plainVersion = 1   // of a fingerprint of the usual parts without a key
	keyedVersion = 129 // of a fingerprint of the usual parts with a key of version 1
	maxVersion   = 127
)

// Digester makes fingerprints: SHA-256, or with a key HMAC-SHA-256, so that nobody can recognize a
// payload by its fingerprint, even one that can be guessed. It is safe for concurrent use.
type Digester struct {
	version byte
	key     []byte
}

// NewDigester returns a Digester that uses a key of KeySize bytes with a version of 1-127, or no
// key if both are zero. list names the parts of the fingerprints; without a list, they are the
// usual parts. Fingerprints of two versions are not compared. Fingerprints of two lists are not
// compared either, except that one pair of lists in 126 looks equal. Errors name the configuration
// field.
func NewDigester(field string, version int, key []byte, list ...string) (*Digester, error) {
	shift := shiftOf(list)
	switch {
	case version == 0 && len(key) == 0:
		return &Digester{version: plainVersion + byte(shift)}, nil
	case version < 1 || version > maxVersion:
		return nil, &dedup.InputError{Field: field,
			Reason: fmt.Sprintf("has version %d; it must be 1-%d", version, maxVersion)}
	case len(key) != KeySize:
		return nil, &dedup.InputError{Field: field,
			Reason: fmt.Sprintf("has a key of %d bytes; it must be %d", len(key), KeySize)}
	}
	return &Digester{version: keyedVersion + byte((version-1+shift)%maxVersion),
		key: bytes.Clone(key)}, nil
}

// shiftOf returns by how much a list shifts a version: 1-126, or 0 without a list. Two versions of
// a key remain different with any list.
func shiftOf(list []string) int {
	if len(list) == 0 {
		return 0
	}
	sum := sha256.Sum256(appendParts([]byte("onceward fingerprint list"), list...))
	return 1 + int(binary.BigEndian.Uint64(sum[:])%(maxVersion-1))
}

// Sum returns the fingerprint of the parts, each with its length in front.
func (d *Digester) Sum(parts ...[]byte) driver.Fingerprint {
	if len(parts) == 0 {
		return d.digest(nil, nil)
	}
	var head []byte
	for _, p := range parts[:len(parts)-1] {
		head = AppendPart(head, p)
	}
	return d.SumAfter(head, parts[len(parts)-1])
}

// SumAfter is Sum of the parts that AppendPart has put into head, and of last, which may be large.
// It keeps neither.
func (d *Digester) SumAfter(head, last []byte) driver.Fingerprint {
	return d.digest(binary.BigEndian.AppendUint64(head, uint64(len(last))), last)
}

func (d *Digester) digest(head, last []byte) driver.Fingerprint {
	h := sha256.New()
	if d.key != nil {
		h = hmac.New(sha256.New, d.key)
	}
	h.Write(head)
	h.Write(last)
	var sum [sha256.Size]byte
	f := driver.Fingerprint{d.version}
	copy(f[1:], h.Sum(sum[:0]))
	return f
}

// AppendPart appends a part with its length in front.
func AppendPart[T string | []byte](buf []byte, part T) []byte {
	return append(binary.BigEndian.AppendUint64(buf, uint64(len(part))), part...)
}
