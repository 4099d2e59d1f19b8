package kafkaadapter

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzHeader: the id is the last value of the first named header that has one, byte for byte,
// whatever the case of its name and whatever stands next to it.
func FuzzHeader(f *testing.F) {
	f.Add("Message-ID", "m1", "message-id", "m2", "idempotency-key", "k")
	f.Add("message-id", "m1", "MESSAGE-ID", "", "idempotency-key", "k")
	f.Add("ce_id", "1", "ce_source", "s", "ce_specversion", "1.0")
	f.Add("mesſage-id", "long s", "\u212aey", "kelvin", "", "")
	f.Add("message-id ", "blank", "message-id\x00", "zero", "message-id", "\xff\xfe")
	f.Fuzz(func(t *testing.T, name1, value1, name2, value2, name3, value3 string) {
		pairs := [][2]string{{name1, value1}, {name2, value2}, {name3, value3}}
		m, last := &Message{}, map[string]string{}
		for _, h := range pairs {
			m.headers = append(m.headers, Header{h[0], []byte(h[1])})
			for _, name := range []string{"message-id", "idempotency-key"} {
				if strings.EqualFold(h[0], name) {
					last[name] = h[1]
				}
			}
		}
		want := last["message-id"]
		if want == "" {
			want = last["idempotency-key"]
		}
		id, ok := FromHeader("message-id", "idempotency-key")(m)
		require.Equal(t, want, id)
		require.Equal(t, want != "", ok)
		// The id is the same for every redelivery, and no id is made of nothing.
		id, ok = DefaultID()(m)
		again, okAgain := DefaultID()(m)
		require.True(t, id == again && ok == okAgain, "found %q, %t, then %q, %t", id, ok, again,
			okAgain)
		require.Equal(t, ok, id != "")
	})
}
