package encrypted

import (
	"bytes"
	"encoding/hex"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
)

func wantInputError(t *testing.T, err error) {
	t.Helper()
	var input *dedup.InputError
	assert.ErrorAs(t, err, &input)
}

func TestFormIsReadBack(t *testing.T) {
	for name, r := range map[string]*Response{
		"a response": {Status: 201,
			Header: map[string][]string{"Location": {"/a"}, "Vary": {"A", "B"}},
			Body:   []byte("body")},
		"no body": {Status: 204},
		"no values": {Status: 200, Header: map[string][]string{"Content-Type": {}},
			Body: []byte{0, 1, 0xff}},
		"tombstone": {Tombstone: true, Status: 200},
		"large":     {Status: 200, Body: bytes.Repeat([]byte("x"), 1<<20)},
		"code zero": {Status: 0, Header: map[string][]string{"": {""}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Decode(Encode(r))
			require.NoError(t, err)
			assert.Equal(t, r.Status, got.Status, "%+v became %+v", r, got)
			assert.Equal(t, r.Tombstone, got.Tombstone, "%+v became %+v", r, got)
			assert.Equal(t, string(r.Body), string(got.Body), "%+v became %+v", r, got)
			assert.False(t,
				len(got.Header)+len(r.Header) > 0 && !reflect.DeepEqual(got.Header,
					r.Header), "%+v became %+v", r, got)
		})
	}
}

// The form is on disks: it changes only together with its version.
func TestFormStaysAsItIs(t *testing.T) {
	r := &Response{Status: 201, Header: map[string][]string{"Vary": {"A", "B"}, "ETag": {"1"}},
		Body: []byte("ok")}
	const want = "0101c901" + "02" + "0445546167" + "01" + "0131" + "0456617279" + "02" +
		"0141" + "0142" + "6f6b"
	assert.Equal(t, want, hex.EncodeToString(Encode(r)))
	assert.Equal(t, "0102f40300",
		hex.EncodeToString(Encode(&Response{Tombstone: true, Status: 500})), "a tombstone")
}

func TestWhatIsNotOfTheFormIsRefused(t *testing.T) {
	whole := Encode(&Response{Status: 201, Header: map[string][]string{"Vary": {"A", "B"}}})
	for n := range whole {
		_, err := Decode(whole[:n])
		assert.Error(t, err, "read from the first %d of %d bytes", n, len(whole))
	}
	huge := "ffffffffffffffff7f"
	for name, form := range map[string]string{
		"another version":    "0201c90100",
		"another kind":       "0103c90100",
		"status too large":   "0101" + "808004" + "00",
		"number without end": "0101" + strings.Repeat("ff", 11),
		"huge count":         "0101c901" + huge,
		"huge name":          "0101c90101" + huge,
		"huge values":        "0101c901010141" + huge,
		"huge value":         "0101c90101014101" + huge,
		"a header twice":     "0101c901" + "02" + "0141" + "00" + "0141" + "00",
	} {
		data, err := hex.DecodeString(form)
		require.NoError(t, err)
		t.Run(name, func(t *testing.T) {
			_, err := Decode(data)
			wantInputError(t, err)
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(Encode(&Response{Status: 201, Header: map[string][]string{"Vary": {"A", "B"}},
		Body: []byte("ok")}))
	f.Add(Encode(&Response{Tombstone: true, Status: 500}))
	f.Add([]byte{1, 1, 0xc9, 1, 0xff, 0xff, 3})
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Decode(data)
		if err != nil {
			wantInputError(t, err)
			return
		}
		again, err := Decode(Encode(r))
		require.NoError(t, err, "%+v became %+v", r, again)
		require.False(t, !reflect.DeepEqual(r, again) && (len(r.Body) != 0 || len(again.Body) != 0),
			"%+v became %+v, %v", r, again, err)
	})
}

func FuzzEncode(f *testing.F) {
	f.Add(201, "Vary", "A", "B", []byte("ok"), false)
	f.Add(-1, "", "", "", []byte(nil), true)
	f.Fuzz(func(t *testing.T, status int, name, one, two string, body []byte, tomb bool) {
		r := &Response{Tombstone: tomb, Status: status,
			Header: map[string][]string{name: {one, two}, name + "2": {}}, Body: body}
		got, err := Decode(Encode(r))
		require.NoError(t, err)
		if status < 0 || status > maxStatus {
			status = 0
		}
		require.Equal(t, status, got.Status, "%+v became %+v", r, got)
		require.Equal(t, tomb, got.Tombstone, "%+v became %+v", r, got)
		require.Equal(t, string(body), string(got.Body), "%+v became %+v", r, got)
		require.Equal(t, r.Header, got.Header, "%+v became %+v", r, got)
	})
}
