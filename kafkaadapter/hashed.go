package kafkaadapter

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/IBM/sarama"
)

const hashPrefix = "sha256:"

// Hashed makes a usable id of every id that f finds, except an empty one: one that a
// Deduper does not take, because it is binary or longer than 255 bytes, becomes "sha256:"
// and its SHA-256 in hex. Other ids stay as they are, so records of before keep their
// keys. Different ids stay different: one that begins with "sha256:" itself is hashed, too.
//
// The id of a dead letter that was sent back is taken as it is, before f is asked. A check
// of the id costs as much as its digest, some 100 ns.
func Hashed(f IDFunc) IDFunc {
	replayed := Replayed()
	return func(m *sarama.ConsumerMessage) (string, bool) {
		if id, ok := replayed(m); ok && isKey(id) {
			return id, true
		}
		id, ok := f(m)
		if !ok || id == "" || isKey(id) && !strings.HasPrefix(id, hashPrefix) {
			return id, ok
		}
		sum := sha256.Sum256([]byte(id))
		return hashPrefix + hex.EncodeToString(sum[:]), true
	}
}
