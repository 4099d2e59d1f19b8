package outbox

import (
	"bytes"
	"reflect"
	"testing"
)

func TestHeaders(t *testing.T) {
	for _, headers := range [][]Header{
		{},
		{{Key: "a", Value: []byte("1")}, {Key: "a", Value: nil}, {Key: "", Value: []byte{}}},
		{{Key: "long", Value: bytes.Repeat([]byte{0xff}, 60_000)}},
	} {
		got, err := decodeHeaders(encodeHeaders(headers))
		if err != nil || !reflect.DeepEqual(got, headers) {
			t.Errorf("%v became %v, %v", headers, got, err)
		}
	}
}

// What is read is the same when it is written again, and nothing that is torn is read.
func FuzzHeaders(f *testing.F) {
	whole := encodeHeaders([]Header{{Key: "k", Value: []byte("v")}, {Key: "n"}})
	for n := range len(whole) {
		if _, err := decodeHeaders(whole[:n]); err == nil {
			f.Errorf("%d of %d bytes were read", n, len(whole))
		}
		f.Add(whole[:n])
	}
	f.Add(whole)
	f.Add([]byte{headerVersion, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		headers, err := decodeHeaders(b)
		if err != nil {
			return
		}
		again, err := decodeHeaders(encodeHeaders(headers))
		if err != nil || !reflect.DeepEqual(again, headers) {
			t.Errorf("%x: %v became %v, %v", b, headers, again, err)
		}
	})
}
