package redisscript

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSlot: the values are those of CLUSTER KEYSLOT.
func TestSlot(t *testing.T) {
	for key, slot := range map[string]int{
		"123456789": 12739, "foo": 12182, "ow:{foo}:x": 12182, "{}foo": 9500, "foo{": 7673,
	} {
		assert.Equal(t, slot, Slot(key), key)
	}
}

// TestIndexBySlot: a hash stands in the slot of its records, and every slot has one.
func TestIndexBySlot(t *testing.T) {
	x := NewIndex("ow", true)
	n := 0
	for slot, name := range x.From(0) {
		assert.Equal(t, n, slot)
		require.Equal(t, slot, Slot(name), "%s is in slot %d", name, Slot(name))
		n++
	}
	assert.Equal(t, Slots, n)
	assert.Equal(t, Slot("ow:{key}"), Slot(x.Of("ow:{key}")))
	for range NewIndex("ow", false).From(1) {
		t.Error("one server has one hash")
	}
}
