package redisscript

import (
	"iter"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// Slots are the hash slots of a Cluster.
const Slots = 16384

// Index names the hashes that index.lua keeps: one for the keys of a prefix on one server, and on a
// Cluster one for each slot, because a script may touch keys of one slot only.
type Index struct {
	name   string
	bySlot atomic.Bool
}

// NewIndex returns the index of a prefix.
func NewIndex(prefix string, bySlot bool) *Index {
	x := &Index{name: prefix + ":irreversible"}
	x.bySlot.Store(bySlot)
	return x
}

// BySlot reports whether there is a hash for each slot. This is so on a Cluster, and once a server
// has refused a script because of the slots of its keys: a proxy may look like a single server
// although a Cluster is behind it.
func (x *Index) BySlot() bool { return x.bySlot.Load() }

// Of returns the name of the hash in which a record is entered.
func (x *Index) Of(record string) string {
	if !x.BySlot() {
		return x.name
	}
	return x.inSlot(Slot(record))
}

// From yields each slot from the given one on, and its hash. On a single server there is one slot.
func (x *Index) From(slot int) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		if !x.BySlot() {
			if slot == 0 {
				yield(0, x.name)
			}
			return
		}
		for ; slot < Slots; slot++ {
			if !yield(slot, x.inSlot(slot)) {
				return
			}
		}
	}
}

func (x *Index) inSlot(slot int) string { return x.name + ":{" + slotTags()[slot] + "}" }

// Complete is the key that exists once every record is known to be entered. The first list enters
// the records from before there was an index, or from another kind of server.
func (x *Index) Complete() string {
	if x.BySlot() {
		return x.name + "_by_slot"
	}
	return x.name + "_complete"
}

// slotTags has for each slot the shortest decimal number in it.
var slotTags = sync.OnceValue(func() *[Slots]string {
	tags := new([Slots]string)
	for n, left := 0, Slots; left > 0; n++ {
		tag := strconv.Itoa(n)
		if slot := Slot(tag); tags[slot] == "" {
			tags[slot] = tag
			left--
		}
	}
	return tags
})

// Slot is the hash slot of a key: CRC16 (XMODEM) of the text in its braces, as the Cluster
// specification says.
func Slot(key string) int {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			key = tag
		}
	}
	var crc uint16
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc) % Slots
}
