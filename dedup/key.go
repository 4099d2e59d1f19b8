package dedup

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxKeyBytes       = 255
	maxNamespaceBytes = 64
	maxLabelBytes     = 64
	idVersion         = 1
)

// NewID digests a key inside its namespace and scope with SHA-256 truncated to 128 bits. The
// parts are length-prefixed, so that ("a", "bc") and ("ab", "c") differ. Stores keep the digest
// only, which has one size and carries no personal data in clear.
//
// The namespace is 1-64 bytes of letters, digits, '_', '.', '-'. The key is 1-255
// bytes, the scope 0-255, both of printable UTF-8. Anything else is an [*InputError].
func NewID(namespace, scope, key string) (ID, error) {
	if reason := namespaceFault(namespace); reason != "" {
		return ID{}, &InputError{Field: "namespace", Reason: reason}
	}
	if scope != "" {
		if err := checkText("scope", scope, maxKeyBytes); err != nil {
			return ID{}, err
		}
	}
	if err := checkText("key", key, maxKeyBytes); err != nil {
		return ID{}, err
	}
	return digest(namespace, scope, key), nil
}

// digest is NewID for parts that have been checked.
func digest(namespace, scope, key string) ID {
	var short [128]byte // on the stack, where a larger one costs as much as hashing a short key
	buf := short[:0]
	if n := 1 + 3*2 + len(namespace) + len(scope) + len(key); n > len(short) {
		// of constant size: on the stack, too
		buf = make([]byte, 0, 1+3*2+maxNamespaceBytes+2*maxKeyBytes)
	}
	buf = append(buf, idVersion)
	buf = appendPart(buf, namespace)
	buf = appendPart(buf, scope)
	buf = appendPart(buf, key)
	sum := sha256.Sum256(buf)
	return ID(sum[:16])
}

// appendPart appends a part, of at most 255 bytes, with its length.
func appendPart(buf []byte, part string) []byte {
	buf = append(buf, 0, byte(len(part)))
	return append(buf, part...)
}

// newToken returns 128 random bits. crypto/rand.Read never fails since Go 1.24.
func newToken() Token {
	var t Token
	_, _ = rand.Read(t[:])
	return t
}

// namespaceFault says what is wrong with a namespace, or nothing.
func namespaceFault(ns string) string {
	if ns == "" {
		return "is empty"
	}
	if len(ns) > maxNamespaceBytes {
		return fmt.Sprintf("has %d bytes, at most %d are allowed", len(ns), maxNamespaceBytes)
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

// checkText accepts printable UTF-8 of 1 to limit bytes. The error tells the position,
// never the text: keys may be secret. Foreign ids have characters that nobody sees, such as the
// joiner of an emoji or the mark of a right-to-left name.
func checkText(field, s string, limit int) error {
	switch {
	case s == "":
		return &InputError{Field: field, Reason: "is empty"}
	case len(s) > limit:
		return &InputError{Field: field,
			Reason: fmt.Sprintf("has %d bytes, at most %d are allowed", len(s), limit)}
	case printableASCII(s):
		return nil
	case !utf8.ValidString(s):
		return &InputError{Field: field, Reason: "is not valid UTF-8"}
	}
	for i, r := range s {
		if !unicode.IsPrint(r) {
			reason := fmt.Sprintf("has the non-printable character %U at byte %d", r, i)
			if strings.EqualFold(field, "key") {
				reason += "; use a hash of it as the key, such as its SHA-256 in hexadecimal"
			}
			return &InputError{Field: field, Reason: reason}
		}
	}
	return nil
}

// printableASCII recognizes, without a table, what nearly every key is.
func printableASCII(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' {
			return false
		}
	}
	return true
}
