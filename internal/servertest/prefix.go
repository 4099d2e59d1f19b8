package servertest

import (
	"crypto/rand"
	"strings"
	"testing"
)

// Prefix returns a name that no other test, and no other run of this one, uses on a shared server:
// lower-case letters, digits and underscores, at most 40 bytes, beginning with a letter. It is fit
// to begin a Redis key, a Kafka topic or group, and an SQL table.
func Prefix(t testing.TB) string {
	t.Helper()
	const longest = 24
	name := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9':
			return r
		case 'A' <= r && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '_'
	}, strings.TrimPrefix(t.Name(), "Test"))
	return "ow_" + name[:min(len(name), longest)] + "_" + strings.ToLower(rand.Text()[:10])
}
