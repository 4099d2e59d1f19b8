package driver

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSourceDigest(t *testing.T) {
	assert.Zero(t, (Origin{}).Digest(), "an unknown source has a digest")
	assert.EqualValues(t, 5, (Origin{SourceDigest: 5}).Digest(), "a digest changed")
	// FNV-1a, 64 bit, of "orders": stored by every adapter, so it never changes.
	d := (Origin{Source: "a", SourceDigest: 5}).Digest()
	assert.Equal(t, uint64(0xaf63dc4c8601ec8c), d)
}

func TestStatesAndOutcomesHaveDistinctNames(t *testing.T) {
	names := map[string]bool{}
	for o := Unknown; o <= Uncertain; o++ {
		names["outcome "+o.String()] = true
	}
	for s := StateAbsent; s <= StateUncertain; s++ {
		names["state "+s.String()] = true
	}
	assert.Len(t, names, 12)
	assert.Equal(t, "unknown", Outcome(99).String(), "an unheard-of outcome has a name")
}
