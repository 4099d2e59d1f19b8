package dedup

import "crypto/sha256"

// fingerprintV1 is SHA-256 truncated to 128 bits.
const fingerprintV1 = 1

// Fingerprint is a versioned digest of a payload. Two payloads of one key with
// different fingerprints are a [Mismatch], not a replay. The zero Fingerprint means
// "none" and is compared with nothing.
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
