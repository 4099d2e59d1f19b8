package driver

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"github.com/onceward/onceward/dedup/internal/keytext"
)

// ID is the digest that stands for one key of one namespace and scope in a store.
// See [NewID].
type ID [16]byte

// Token is the random owner token of one attempt. It is never reused by a later
// attempt of the same worker, and never logged.
type Token [16]byte

// NewID digests a key inside its namespace and scope with SHA-256 truncated to 128 bits. The
// parts are length-prefixed, so that ("a", "bc") and ("ab", "c") differ. Stores keep the digest
// only, which has one size and carries no personal data in clear.
//
// The namespace is 1-64 bytes of letters, digits, '_', '.', '-'. The key is 1-255
// bytes, the scope 0-255, both of printable UTF-8. Anything else is an [*InputError].
func NewID(namespace, scope, key string) (ID, error) {
	if reason := keytext.NamespaceFault(namespace); reason != "" {
		return ID{}, &InputError{Field: "namespace", Reason: reason}
	}
	if scope != "" {
		if reason := keytext.Fault(scope, keytext.MaxKey); reason != "" {
			return ID{}, &InputError{Field: "scope", Reason: reason}
		}
	}
	if reason := keytext.KeyFault(key); reason != "" {
		return ID{}, &InputError{Field: "key", Reason: reason}
	}
	return keytext.Digest(namespace, scope, key), nil
}

// DownstreamKey returns the idempotency key that every attempt of a key gives to the downstream for
// a purpose: see dedup.Attempt.DownstreamKey.
func (id ID) DownstreamKey(purpose ...string) string {
	buf := append([]byte("onceward downstream v1"), id[:]...)
	for _, p := range purpose {
		buf = binary.BigEndian.AppendUint64(buf, uint64(len(p)))
		buf = append(buf, p...)
	}
	sum := sha256.Sum256(buf)
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

// fingerprintV1 is SHA-256 truncated to 128 bits.
const fingerprintV1 = 1

// Fingerprint is a versioned digest of a payload. Two payloads of one key with
// different fingerprints are a [Mismatch], not a replay. The zero Fingerprint means "none" and is
// never compared.
//
// The first byte is the version of the digest, never zero for a real fingerprint;
// fingerprints of different versions cannot be compared and are taken as equal, so
// that an upgrade never turns a redelivery into a mismatch.
type Fingerprint [17]byte

// FingerprintOf digests a payload; nil and empty differ, as a tombstone differs from
// an empty message. It is unkeyed: for payloads that can be guessed (a card number, a
// short amount) digest a keyed hash of the payload instead.
func FingerprintOf(payload []byte) Fingerprint {
	h := sha256.New()
	if payload == nil {
		h.Write([]byte{0})
	} else {
		h.Write([]byte{1})
		h.Write(payload)
	}
	var f Fingerprint
	f[0] = fingerprintV1
	copy(f[1:], h.Sum(nil))
	return f
}

// Conflicts reports whether both fingerprints exist, have the same version, and
// differ. It is the comparison every [Store] must use.
func (f Fingerprint) Conflicts(other Fingerprint) bool {
	return f[0] != 0 && f[0] == other[0] && f != other
}
