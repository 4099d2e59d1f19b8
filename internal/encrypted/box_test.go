package encrypted

import (
	"bytes"
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func key(b byte) []byte { return bytes.Repeat([]byte{b}, KeySize) }

func newBox(t testing.TB, acceptPlain bool, keys ...[]byte) *Box {
	t.Helper()
	b, err := NewBox("Config.Seal", keys, acceptPlain)
	require.NoError(t, err)
	return b
}

func wantOpen(t *testing.T, b *Box, stored, plain []byte) {
	t.Helper()
	got, err := b.Open("scope", "key", stored)
	assert.NoError(t, err, "opened")
	assert.Equal(t, string(plain), string(got), "opened")
}

func TestSealedOpensUnderItsOwnKeyAlone(t *testing.T) {
	b, plain := newBox(t, false, key(1)),
		Encode(&Response{Status: 200, Body: []byte("4111 1111 1111 1111")})
	stored := b.Seal("scope", "key", plain)
	if assert.Len(t, stored, len(plain)+Overhead, "sealed %d bytes as %x", len(plain), stored) {
		assert.False(t, bytes.Contains(stored, []byte("4111")), "sealed %d bytes as %x", len(plain),
			stored)
	}
	wantOpen(t, b, stored, plain)
	assert.NotEqual(t, b.Seal("scope", "key", plain), stored,
		"two seals are equal: the nonce repeats")
	for _, at := range [][2]string{{"scope", "key2"}, {"scope2", "key"}, {"scopek", "ey"},
		{"", "scopekey"}, {"key", "scope"}} {
		_, err := b.Open(at[0], at[1], stored)
		wantInputError(t, err)
	}
}

func TestAChangedSealDoesNotOpen(t *testing.T) {
	b := newBox(t, true, key(1))
	stored := b.Seal("scope", "key", []byte("plain"))
	for i := range stored {
		for _, bit := range []byte{1, 0x80} {
			bad := bytes.Clone(stored)
			bad[i] ^= bit
			got, err := b.Decode("scope", "key", bad)
			assert.Error(t, err, "opened as %+v with byte %d changed", got, i)
		}
		_, err := b.Decode("scope", "key", stored[:i])
		wantInputError(t, err)
	}
}

func TestKeysAreRotated(t *testing.T) {
	plain := []byte{formPlain, 'p'}
	before := newBox(t, false, key(1)).Seal("scope", "key", plain)
	during := newBox(t, false, key(2), key(1))
	wantOpen(t, during, before, plain)
	after := newBox(t, false, key(2))
	wantOpen(t, after, during.Seal("scope", "key", plain), plain)
	_, err := after.Open("scope", "key", before)
	wantInputError(t, err)
}

func TestPlainFormsNextToSealedOnes(t *testing.T) {
	plain := Encode(&Response{Status: 200})
	none := newBox(t, false)
	assert.Nil(t, none, "a Box without keys")
	wantOpen(t, none, none.Seal("scope", "key", plain), plain)
	_, err := none.Open("scope", "key", newBox(t, false, key(1)).Seal("scope", "key", plain))
	wantInputError(t, err)
	_, err = newBox(t, false, key(1)).Open("scope", "key", plain)
	wantInputError(t, err)
	wantOpen(t, newBox(t, true, key(1)), plain, plain)
}

func TestBadKeysAreRefused(t *testing.T) {
	for name, keys := range map[string][][]byte{
		"short": {key(1), key(2)[1:]},
		"empty": {nil},
		"long":  {append(key(1), 1)},
		"twice": {key(1), key(2), key(1)},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewBox("Config.Seal", keys, false)
			wantInputError(t, err)
		})
	}
}

// A key that its owner wipes after New still seals as before.
func TestKeysAreCopied(t *testing.T) {
	secret := key(1)
	b := newBox(t, false, secret)
	stored := b.Seal("scope", "key", []byte("plain"))
	clear(secret)
	wantOpen(t, b, stored, []byte("plain"))
}

func FuzzOpen(f *testing.F) {
	f.Add([]byte{formSealed}, "scope", "key")
	f.Add(Encode(&Response{Status: 200, Body: []byte("ok")}), "", "")
	b := newBox(f, false, key(1))
	f.Fuzz(func(t *testing.T, data []byte, scope, name string) {
		got, err := b.Open(scope, name, data)
		require.Error(t, err, "forged: %x", got)
		got, err = b.Open(scope, name, b.Seal(scope, name, data))
		require.NoError(t, err, "%x became %x", data, got)
		require.Equal(t, string(data), string(got), "%x became %x", data, got)
		_, err = b.Open(scope+"x", name, b.Seal(scope, name, data))
		require.Error(t, err, "opened under another scope")
	})
}

// Sealed records are on disks: what an earlier version wrote opens.
func TestSealedFormStaysAsItIs(t *testing.T) {
	const stored = "8135ab6cbe6cb096d8230e0939096a2cbe0a18384e8fe1379c76553f634edfa4dea30eea6243"
	data, err := hex.DecodeString(stored)
	require.NoError(t, err)
	wantOpen(t, newBox(t, false, key(1)), data, []byte("plain"))
}
