package owned

import "encoding/binary"

// filterKey stands for an ID in the filter. It is made from the ID's member, done or touched, and
// not from the ID, because a filter is loaded from sets, and sets hold members.
func filterKey(member int64) (key [16]byte) {
	binary.BigEndian.PutUint64(key[:], uint64(done(member))) // 64 bits either way
	return key
}
