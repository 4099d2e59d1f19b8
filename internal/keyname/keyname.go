// Package keyname makes names by which people find the records of adapters' keys: in logs, in
// answers to clients and in the labels of claims.
package keyname

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/encrypted"
)

// maxLabel is what dedup.Request.Label allows, in bytes.
const maxLabel = 64

// URNPrefix comes before the ID in an answer.
const URNPrefix = "urn:onceward:"

// Name is the ID of a key's record, or empty if the namespace of the records is not known.
type Name string

// Of returns the name of the record of a key that run runs. If run has a method Namespace() string,
// that is the namespace; otherwise the name is empty.
func Of(run any, scope, key string) Name {
	r, ok := run.(interface{ Namespace() string })
	if !ok {
		return ""
	}
	id, err := driver.NewID(r.Namespace(), scope, key)
	if err != nil {
		return ""
	}
	return Name(hex.EncodeToString(id[:]))
}

// ScopeGRPC is the scope of a gRPC call's key: a digest, so that nothing of the principal is in
// clear. It is in this package so that the command and the console can find keys with it without
// importing gRPC.
func ScopeGRPC(name, principal, fullMethod string) string {
	return encrypted.ScopeOf("grpc", "1", name, principal, fullMethod)
}

// ScopeMCP is the scope of an MCP tool call's key, as mcpadapter.RecordKey makes it. It is in this
// package so that the command can find keys with it without importing MCP.
func ScopeMCP(name, principal, tool string) string {
	text, _ := json.Marshal(fmt.Sprintf("mcp 1 %q %q %q", name, principal, tool)) // a text
	sum := sha256.Sum256(text)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// Attr returns the name as an attribute for logs.
func (n Name) Attr() slog.Attr { return slog.String("key_id", string(n)) }

// URN returns the name as a URI for answers, or an empty string.
func (n Name) URN() string {
	if n == "" {
		return ""
	}
	return URNPrefix + string(n)
}

// Label returns the label of a claim, in at most 64 bytes. It consists of the argument what, which
// is the purpose of the key, and the key. If both do not fit, the end of what is cut, and then the
// end of key. Characters that do not print are replaced, because a label only explains a key, and
// must never be the reason why a claim is refused.
func Label(what, key string) string {
	what, key = printable(what), printable(key)
	key = cut(key, maxLabel)
	if room := maxLabel - len(key) - 1; len(what) > room {
		const more = "..."
		if room <= len(more) {
			return key
		}
		what = cut(what, room-len(more)) + more
	}
	return strings.TrimSpace(what + " " + key)
}

func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r != utf8.RuneError && unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}

// cut ends s after a whole character.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
