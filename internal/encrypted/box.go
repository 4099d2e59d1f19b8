package encrypted

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"

	"github.com/onceward/onceward/dedup"
)

// KeySize is the length of a key for sealing, and of one for fingerprints, in bytes.
const KeySize = 32

const (
	idSize    = 4
	nonceSize = 12
	tagSize   = 16
	headSize  = 1 + idSize + nonceSize
)

// Overhead is what sealing adds to a plain form, in bytes.
const Overhead = headSize + tagSize

// Box seals plain forms and opens them again. The nil Box returns plain forms as they are,
// and refuses sealed ones. It is safe for concurrent use.
//
// The sealed form is 0x81, four bytes that name the key, twelve random ones, and AES-256-GCM
// of the plain form. Scope and key of the record are the associated data, so a form does not open
// as the form of another record. Each record has an AES key of its own, derived from scope and key
// with HMAC-SHA-256. So random nonces do not run out; with one key for all records they would after
// 2^32 records.
type Box struct {
	keys        []boxKey
	acceptPlain bool
}

type boxKey struct {
	id     [idSize]byte
	secret []byte
}

// NewBox returns a Box that seals with the first key and opens with all of them. Without
// keys it is nil. With keys it refuses plain forms, because anybody who can write to the store
// could have made them, unless acceptPlain is set. Errors name the configuration field.
func NewBox(field string, keys [][]byte, acceptPlain bool) (*Box, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	b := &Box{acceptPlain: acceptPlain}
	for i, key := range keys {
		if len(key) != KeySize {
			return nil, &dedup.InputError{Field: field,
				Reason: fmt.Sprintf("has a key of %d bytes at %d; it must be %d", len(key),
					i, KeySize)}
		}
		k := boxKey{id: keyID(key), secret: bytes.Clone(key)}
		if b.find(k.id[:]) != nil {
			return nil, &dedup.InputError{Field: field,
				Reason: fmt.Sprintf("has the key at %d twice", i)}
		}
		b.keys = append(b.keys, k)
	}
	return b, nil
}

// keyID distinguishes keys, and reveals nothing else about them.
func keyID(key []byte) [idSize]byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("onceward sealed key id v1"))
	return [idSize]byte(mac.Sum(nil)[:idSize])
}

func (b *Box) find(id []byte) *boxKey {
	for i := range b.keys {
		if bytes.Equal(b.keys[i].id[:], id) {
			return &b.keys[i]
		}
	}
	return nil
}

// aead returns the cipher for one record, and its associated data: the bytes before the
// ciphertext, scope and key.
func (k *boxKey) aead(scope, key string, head []byte) (cipher.AEAD, []byte) {
	mac := hmac.New(sha256.New, k.secret)
	mac.Write(appendParts([]byte("onceward sealed v1"), scope, key))
	block, err := aes.NewCipher(mac.Sum(nil))
	if err != nil {
		panic(err) // the key has 32 bytes
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // AES has blocks of 16 bytes
	}
	return gcm, appendParts(bytes.Clone(head), scope, key)
}

// appendParts appends each part with its length in front.
func appendParts(buf []byte, parts ...string) []byte {
	for _, p := range parts {
		buf = AppendPart(buf, p)
	}
	return buf
}

// Seal returns the stored form of a plain one, for the record of scope and key.
func (b *Box) Seal(scope, key string, plain []byte) []byte {
	if b == nil {
		return plain
	}
	k := &b.keys[0]
	out := make([]byte, headSize, len(plain)+Overhead)
	out[0] = formSealed
	copy(out[1:], k.id[:])
	_, _ = rand.Read(out[1+idSize:]) // never fails since Go 1.24
	gcm, ad := k.aead(scope, key, out)
	return gcm.Seal(out, out[1+idSize:headSize], plain, ad)
}

// Open returns the plain form of a stored one. It returns a [*dedup.InputError] for a form that was
// made for another scope or key, was changed, or was sealed with a key that the Box does not have,
// and for a plain form that it does not accept.
func (b *Box) Open(scope, key string, stored []byte) ([]byte, error) {
	switch {
	case len(stored) == 0:
		return nil, unreadable("is empty")
	case stored[0] != formSealed && (b == nil || b.acceptPlain):
		return stored, nil
	case stored[0] != formSealed:
		return nil, unreadable("is not sealed")
	case b == nil:
		return nil, unreadable("is sealed, and there are no keys")
	case len(stored) < Overhead:
		return nil, unreadable("is cut short")
	}
	head := stored[:headSize]
	k := b.find(head[1 : 1+idSize])
	if k == nil {
		return nil, unreadable("is sealed with a key that is not here")
	}
	gcm, ad := k.aead(scope, key, head)
	plain, err := gcm.Open(nil, head[1+idSize:], stored[headSize:], ad)
	if err != nil {
		return nil, unreadable("does not open: it was changed, or belongs to another key")
	}
	return plain, nil
}

// Encode returns the stored form of r for the record of scope and key.
func (b *Box) Encode(scope, key string, r *Response) []byte { return b.Seal(scope, key, Encode(r)) }

// Decode is the reverse of Encode, with the errors of [Decode] and [Box.Open].
func (b *Box) Decode(scope, key string, stored []byte) (*Response, error) {
	plain, err := b.Open(scope, key, stored)
	if err != nil {
		return nil, err
	}
	return Decode(plain)
}
