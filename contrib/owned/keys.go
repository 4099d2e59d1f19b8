package owned

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strconv"

	"github.com/onceward/onceward/dedup/driver"
)

// names are the keys of one partition. They share a tag, and so a slot.
type names struct {
	tag  string // "prefix:{16 hex digits}"
	head string
	own  string
	run  string
}

// mapKey is where the mapping of all sources is recorded.
func mapKey(prefix string) string { return prefix + ":map" }

// newNames names the keys of a partition.
func newNames(prefix, source string, number int32) names {
	text := append([]byte(source), 0)
	text = binary.BigEndian.AppendUint32(text, uint32(number))
	sum := sha256.Sum256(text)
	tag := prefix + ":{" + hex.EncodeToString(sum[:8]) + "}"
	return names{tag: tag, head: tag + ":head", own: tag + ":own", run: tag + ":run"}
}

// fresh names the n-th fresh set of a generation. The marks of a fresh set are in no bucket yet.
func (n *names) fresh(gen int64, nth uint64) string {
	b := append(make([]byte, 0, len(n.tag)+45), n.tag...)
	b = strconv.AppendInt(append(b, ":f:"...), gen, 10)
	return string(strconv.AppendUint(append(b, ':'), nth, 10))
}

// bucket names a bucket of a generation.
func (n *names) bucket(gen int64, i int) string {
	b := append(make([]byte, 0, len(n.tag)+45), n.tag...)
	b = strconv.AppendInt(append(b, ":b:"...), gen, 10)
	return string(strconv.AppendInt(append(b, ':'), int64(i), 10))
}

// members digests IDs under the deployment's secret.
type members struct {
	secret  [sha256.Size]byte
	buckets uint64
}

// of returns the member that says that an ID is done: 63 bits of the ID's digest and a zero. The
// input of the hash has a fixed length, so length extension is not possible.
func (m *members) of(id *driver.ID) int64 {
	var text [sha256.Size + len(*id)]byte
	copy(text[:], m.secret[:])
	copy(text[sha256.Size:], id[:])
	sum := sha256.Sum256(text[:])
	return int64(binary.BigEndian.Uint64(sum[:]) &^ 1)
}

// done returns the member "done" of an ID, from either of the ID's members, "done" or "touched".
func done(member int64) int64 { return member &^ 1 }

// bucket returns the bucket into which both members of an ID are folded. The upper bits of a member
// are the bucket's number, so the member alone is enough.
func (m *members) bucket(member int64) int {
	return int(uint64(member) >> 32 * m.buckets >> 32)
}
