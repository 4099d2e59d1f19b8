package dedup

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup/internal/keytext"
)

// A batch and a single call give a key the same ID, or refuse it with the same error.
func TestDigesterIsNewID(t *testing.T) {
	long := strings.Repeat("k", keytext.MaxKey)
	for _, namespace := range []string{"n", strings.Repeat("n", keytext.MaxNamespace)} {
		d, err := New(Memory(1), Config{Namespace: namespace, Window: 1e12, LeaseTTL: 1e10})
		require.NoError(t, err)
		ids := d.digester()
		for _, scope := range []string{"", "s", "tenant/ä", long, long + "s", "\n"} {
			for _, key := range []string{"", "k", "12345678",
				"0f3a2b1c-1234-5678-9abc-0123456789ab", "ключ", "1234567\x7f8", "\xff", "a\u00a0b",
				long, long + "k"} {
				got, gotErr := ids.id(&Request{Key: key, Scope: scope})
				want, wantErr := d.id(&Request{Key: key, Scope: scope})
				assert.Equal(t, want, got, "scope %q, key %q", scope, key)
				assert.Equal(t, wantErr == nil, gotErr == nil, "scope %q, key %q", scope, key)
				assert.False(t, gotErr != nil && gotErr.Error() != wantErr.Error(),
					"scope %q, key %q: %x, %v, want %x, %v", scope, key, got, gotErr, want, wantErr)
				var input *InputError
				assert.False(t, gotErr != nil && !errors.As(gotErr, &input), "scope %q, key %q: %v",
					scope, key, gotErr)
			}
		}
		digesters.Put(ids)
	}
}

// Each byte value is tested at each place, next to bytes that could cause a carry or a borrow.
func TestPrintableWordsLooksAtEachByte(t *testing.T) {
	for _, fill := range []byte{' ', 'a', '~', 0, 0x7f, 0xff} {
		for at := range 19 {
			for b := range 256 {
				text := []byte(strings.Repeat("a", 19))
				text[(at+1)%19], text[(at+18)%19], text[at] = fill, fill, byte(b)
				got, want := printableWords(text), keytext.PrintableASCII(string(text))
				require.Equal(t, want, got, text)
			}
		}
	}
}
