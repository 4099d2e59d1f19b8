// Package keytext says which texts a key, a scope, a namespace and a label may be, and digests
// the first three.
package keytext

import (
	"crypto/sha256"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// Bounds of texts, and the version of the digest, its first byte.
const (
	MaxKey       = 255 // MaxKey is the most bytes of a key, and of a scope.
	MaxNamespace = 64  // MaxNamespace is the most bytes of a namespace.
	MaxLabel     = 64  // MaxLabel is the most bytes of a label.
	Version      = 1   // Version of the digest.
)

// Digest is SHA-256 of namespace, scope and key, truncated to 128 bits. The parts have been
// checked.
func Digest(namespace, scope, key string) [16]byte {
	var short [128]byte // on the stack, where a larger one costs as much as hashing a short key
	buf := short[:0]
	if n := 1 + 3*2 + len(namespace) + len(scope) + len(key); n > len(short) {
		// its size is constant, so it is on the stack, too
		buf = make([]byte, 0, 1+3*2+MaxNamespace+2*MaxKey)
	}
	buf = append(buf, Version)
	buf = AppendPart(buf, namespace)
	buf = AppendPart(buf, scope)
	buf = AppendPart(buf, key)
	sum := sha256.Sum256(buf)
	return [16]byte(sum[:16])
}

// AppendPart appends a part, of at most 255 bytes, with its length.
func AppendPart(buf []byte, part string) []byte {
	buf = append(buf, 0, byte(len(part)))
	return append(buf, part...)
}

// NamespaceFault says what is wrong with a namespace, or nothing.
func NamespaceFault(ns string) string {
	if ns == "" {
		return "is empty"
	}
	if len(ns) > MaxNamespace {
		return fmt.Sprintf("has %d bytes, at most %d are allowed", len(ns), MaxNamespace)
	}
	for i := range len(ns) {
		c := ns[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' ||
			c == '.' || c == '-' {
			continue
		}
		return fmt.Sprintf("has %q at byte %d; letters, digits, '_', '.' and '-' are allowed", c, i)
	}
	return ""
}

// KeyFault is Fault for a key. It also says what to do with a key that has unprintable characters.
func KeyFault(key string) string {
	reason, unprintable := fault(key, MaxKey)
	if unprintable {
		reason += "; use a hash of it as the key, such as its SHA-256 in hexadecimal"
	}
	return reason
}

// Fault says what is wrong with a text that has to be printable UTF-8 of 1 to limit bytes, or
// nothing. It names the position, never the text: keys may be secret. Foreign ids have characters
// that nobody sees, such as the joiner of an emoji or the mark of a right-to-left name.
func Fault(s string, limit int) string {
	reason, _ := fault(s, limit)
	return reason
}

func fault(s string, limit int) (reason string, unprintable bool) {
	switch {
	case s == "":
		return "is empty", false
	case len(s) > limit:
		return fmt.Sprintf("has %d bytes, at most %d are allowed", len(s), limit), false
	case PrintableASCII(s):
		return "", false
	case !utf8.ValidString(s):
		return "is not valid UTF-8", false
	}
	for i, r := range s {
		if !unicode.IsPrint(r) {
			return fmt.Sprintf("has the non-printable character %U at byte %d", r, i), true
		}
	}
	return "", false
}

// PrintableASCII reports, without a Unicode table, whether s is printable ASCII, as nearly every
// key is.
func PrintableASCII(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' {
			return false
		}
	}
	return true
}
