package owned

import "encoding/binary"

// filterKey stands for an ID in the filter. It is made of the member, done or touched, and not of
// the ID: sets hold members, and a filter is loaded from them.
func filterKey(member int64) (key [16]byte) {
	binary.BigEndian.PutUint64(key[:], uint64(done(member))) // 64 bits either way
	return key
}
