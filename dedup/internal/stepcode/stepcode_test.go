package stepcode

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// goldenSteps is what servers hold: it is never changed.
const goldenSteps = "\x01" + "\x06charge\x02\x00\x00\x00\x04ch_1" + "\x04mail\x01" +
	"\x06report\x00" + "\x05empty\x02\x00\x00\x00\x00"

func TestGoldenSteps(t *testing.T) {
	want := []Step{
		{Name: "charge", Kind: Value, Value: []byte("ch_1")}, {Name: "mail", Kind: Nil},
		{Name: "report", Kind: NotKept}, {Name: "empty", Kind: Value},
	}
	assert.Equal(t, goldenSteps, string(Encode(want)))
	got, err := Decode([]byte(goldenSteps))
	require.NoError(t, err)
	require.Len(t, got, len(want))
	for i, s := range got {
		assert.Equal(t, want[i].Name, s.Name)
		assert.Equal(t, want[i].Kind, s.Kind)
		assert.Equal(t, string(want[i].Value), string(s.Value))
		assert.True(t, s.Told)
	}
}

func TestDecodeStepsRefuses(t *testing.T) {
	many := "\x01"
	for i := range Max + 1 {
		name := fmt.Sprint(i)
		many += string(rune(len(name))) + name + "\x01"
	}
	for name, raw := range map[string]string{
		"version 0":           "\x00",
		"version 2":           "\x02" + goldenSteps[1:],
		"name of no bytes":    "\x01\x00\x01",
		"name of 65 bytes":    "\x01\x41" + strings.Repeat("x", 65) + "\x01",
		"name cut":            "\x01\x06char",
		"kind missing":        "\x01\x01a",
		"kind 3":              "\x01\x01a\x03",
		"length cut":          "\x01\x01a\x02\x00\x00\x00",
		"value cut":           "\x01\x01a\x02\x00\x00\x00\x02x",
		"length of 4 GiB":     "\x01\x01a\x02\xff\xff\xff\xffx",
		"a byte too many":     goldenSteps + "\x01",
		"a name twice":        "\x01\x01a\x01\x01a\x00",
		"65 steps":            many,
		"more than 64 KiB":    "\x01\x01a\x02\x00\x01\x00\x00" + strings.Repeat("x", 64<<10),
		"another format":      "{\"charge\":1}",
		"a value for no kind": "\x01\x01a\x01\x00\x00\x00\x00",
	} {
		_, err := Decode([]byte(raw))
		assert.Error(t, err, name)
	}
	for n := 2; n < len(goldenSteps); n++ {
		steps, err := Decode([]byte(goldenSteps[:n]))
		assert.False(t, err == nil && string(Encode(steps)) != goldenSteps[:n],
			"cut at %d: was read as %+v", n, steps)
	}
}

// Steps that were decoded are encoded to the same bytes. So when a later attempt adds steps, the
// result is never shorter, and stores keep the longer one.
func FuzzDecodeSteps(f *testing.F) {
	f.Add([]byte(goldenSteps))
	f.Add([]byte{})
	f.Add([]byte("\x01"))
	f.Add([]byte("\x01\x01a\x02\x00\x00\x00\x02x"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		list, err := Decode(raw)
		if err != nil || len(raw) == 0 {
			return
		}
		require.Equal(t, raw, Encode(list))
		size := 1
		for _, s := range list {
			size += s.Size()
		}
		require.Equal(t, len(raw), size, "size")
	})
}
