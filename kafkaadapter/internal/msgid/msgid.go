// Package msgid finds the ids of messages of any client.
package msgid

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/onceward/onceward/dedup/driver"
)

// Headers are the headers of a message.
type Headers interface {
	// Header returns the value of the last header whose name equals name without regard to case,
	// and an empty value if there is no such header.
	Header(name string) string
}

// First takes the id from the first of the named headers that is present and not empty.
func First(h Headers, names []string) (string, bool) {
	for _, name := range names {
		if v := h.Header(name); v != "" {
			return v, true
		}
	}
	return "", false
}

// HashPrefix begins the ids that [Hashed] makes.
const HashPrefix = "sha256:"

// Hashed returns the id if a Deduper takes it, and its digest otherwise. An id that looks like a
// digest is hashed, too: different ids stay different.
func Hashed(id string) string {
	if id == "" || IsKey(id) && !strings.HasPrefix(id, HashPrefix) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return HashPrefix + hex.EncodeToString(sum[:])
}

// IsKey reports whether a Deduper takes the id.
func IsKey(id string) bool {
	_, err := driver.NewID("n", "", id)
	return err == nil
}

// IsScope reports whether a Deduper takes the scope.
func IsScope(scope string) bool {
	_, err := driver.NewID("n", scope, "k")
	return err == nil
}

// Position is the id of a message that is identified by its position.
func Position(topicID string, partition int32, offset int64, at time.Time) string {
	b := make([]byte, 0, 96)
	b = append(b, "position:"...)
	b = append(b, topicID...)
	b = append(b, '/')
	b = strconv.AppendInt(b, int64(partition), 10)
	b = append(b, '@')
	b = strconv.AppendInt(b, offset, 10)
	b = append(b, '/')
	b = strconv.AppendInt(b, at.UnixMilli(), 10)
	return string(b)
}

// TopicID writes a topic's UUID as Kafka's tools do. It is empty for a zero UUID, which stands for
// a topic without a UUID.
func TopicID(uuid [16]byte) string {
	if uuid == ([16]byte{}) {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(uuid[:])
}

// stampPrefix begins the metadata of our commits.
const stampPrefix = "topic-id="

// Stamp is the metadata of a commit to the topic with this UUID. In every version below 10 a commit
// identifies its topic by name alone. From the stamp a later reader learns that the offset belongs
// to a topic of that name that has been deleted since. It is empty where the UUID is not known.
func Stamp(uuid string) string {
	if uuid == "" {
		return ""
	}
	return stampPrefix + uuid
}

// Stamped is the UUID in the metadata of a commit. It is empty for a commit of another program.
func Stamped(metadata string) string {
	uuid, ok := strings.CutPrefix(metadata, stampPrefix)
	if !ok {
		return ""
	}
	return uuid
}
