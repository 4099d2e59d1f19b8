package kafkaadapter

import (
	"github.com/IBM/sarama"

	"github.com/onceward/onceward/kafkaadapter/internal/msgid"
)

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
		if id, ok := replayed(m); ok && msgid.IsKey(id) {
			return id, true
		}
		id, ok := f(m)
		if !ok {
			return id, false
		}
		return msgid.Hashed(id), true
	}
}
