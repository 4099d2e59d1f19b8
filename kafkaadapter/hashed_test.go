package kafkaadapter

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter/internal/msgid"
)

func TestHashed(t *testing.T) {
	// of one zero byte
	const ofNul = "sha256:6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"
	byValue := func(m *Message) (string, bool) {
		return string(m.Value), m.Value != nil
	}
	seen := map[string]string{}
	for _, c := range []struct {
		name, id, want string // want "sha256:" for some hash
	}{
		{"plain", "evt_1", "evt_1"},
		{"not ASCII", "\u00e9v\u00e9nement", "\u00e9v\u00e9nement"},
		{"255 bytes", strings.Repeat("x", 255), strings.Repeat("x", 255)},
		{"256 bytes", strings.Repeat("x", 256), msgid.HashPrefix},
		{"a megabyte", strings.Repeat("x", 1<<20), msgid.HashPrefix},
		{"binary", "\x00", ofNul},
		{"not UTF-8", "\xff\xfe", msgid.HashPrefix},
		{"line end", "a\n", msgid.HashPrefix},
		{"the hash of another", ofNul, msgid.HashPrefix},
		{"looks like a hash", "sha256:", msgid.HashPrefix},
		{"in capitals it does not", "SHA256:1", "SHA256:1"},
	} {
		id, ok := Hashed(byValue)(&Message{Value: []byte(c.id)})
		assert.True(t, ok && (id == c.want || c.want == msgid.HashPrefix &&
			strings.HasPrefix(id, msgid.HashPrefix)), "%s: %q, %v, want %q", c.name, id, ok, c.want)
		_, err := driver.NewID("n", "", id)
		assert.NoError(t, err, c.name)
		assert.NotContains(t, seen, id, c.name+" has the id of another")
		seen[id] = c.name
	}
	_, ok := Hashed(byValue)(&Message{})
	assert.False(t, ok, "found an id where there is none")
	id, _ := Hashed(byValue)(&Message{Value: []byte{}})
	assert.Empty(t, id, "an empty id became another")
}

// FuzzHashed: two ids never become one, and every one that is not empty is usable.
func FuzzHashed(f *testing.F) {
	f.Add("a", "sha256:ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb")
	f.Add("\x00", "sha256:6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d")
	f.Fuzz(func(t *testing.T, a, b string) {
		byKey := Hashed(KafkaKey())
		idA, okA := byKey(&Message{Key: []byte(a)})
		idB, okB := byKey(&Message{Key: []byte(b)})
		assert.Equal(t, a != "", okA, "%q became %q", a, idA)
		assert.Equal(t, okA, msgid.IsKey(idA), "%q became %q", a, idA)
		if okA && okB {
			assert.Equal(t, a == b, idA == idB, "%q and %q became %q and %q", a, b, idA, idB)
		}
	})
}
