package redisproxy

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// values has every type of RESP2 and RESP3, nulls and nests.
var values = []string{
	"+OK\r\n", "+\r\n", "-ERR no\r\n", ":42\r\n", ":-1\r\n",
	"$0\r\n\r\n", "$5\r\nhello\r\n", "$-1\r\n", "$4\r\n\r\n\r\n\r\n", "$3\r\n*1\r\r\n",
	"*0\r\n", "*-1\r\n", "*2\r\n:1\r\n*1\r\n$-1\r\n", "*3\r\n$1\r\na\r\n*-1\r\n-ERR in it\r\n",
	"_\r\n", "#t\r\n", ",3.14\r\n", ",inf\r\n", "(3492890328409238509324850943850943825024385\r\n",
	"!9\r\nSYNTAX no\r\n", "=7\r\ntxt:abc\r\n",
	"%0\r\n", "%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n_\r\n", "~2\r\n+a\r\n+b\r\n",
	"|1\r\n+ttl\r\n:3600\r\n*1\r\n|1\r\n+k\r\n+v\r\n:1\r\n",
	">3\r\n+message\r\n+channel\r\n$3\r\nabc\r\n",
}

func TestValue(t *testing.T) {
	stream := strings.Join(values, "")
	for name, source := range map[string]io.Reader{
		"at once":      strings.NewReader(stream),
		"byte by byte": iotest.OneByteReader(strings.NewReader(stream)),
	} {
		r := newRespReader(source)
		for _, want := range values {
			got, err := r.value()
			require.NoError(t, err, "%s: value = %q", name, got)
			require.Equal(t, want, string(got), "%s: value = %q", name, got)
		}
		_, err := r.value()
		assert.ErrorIs(t, err, io.EOF, "%s: at the end", name)
	}
}

func TestValueCutShort(t *testing.T) {
	for _, v := range values {
		for n := range len(v) {
			got, err := newRespReader(strings.NewReader(v[:n])).value()
			assert.Error(t, err, "%q cut to %q was read as %q", v, v[:n], got)
		}
	}
}

func TestNotTheProtocol(t *testing.T) {
	for _, v := range []string{
		"\r\n", "OK\r\n", "?\r\n", "$x\r\n", "$-2\r\n", "$3\r\nabcde", "$999999999999\r\n",
		"*16777217\r\n", "*?\r\n",
		"+OK\n", "+OK", strings.Repeat("*1\r\n", maxDepth+2),
		"+" + strings.Repeat("x", 70<<10) + "\r\n",
	} {
		got, err := newRespReader(strings.NewReader(v)).value()
		assert.Error(t, err, "%.20q was read as %.20q", v, got)
	}
	for _, v := range []string{"PING\r\n", "*0\r\n", "*-1\r\n", "*1\r\n:1\r\n", "*1\r\n$-1\r\n",
		"$4\r\nPING\r\n", "*1\r\n$4\r\nPINGxx"} {
		raw, _, err := newRespReader(strings.NewReader(v)).command()
		assert.Error(t, err, "%q was read as the command %q", v, raw)
	}
}

func TestCommand(t *testing.T) {
	const stream = "*3\r\n$3\r\nset\r\n$0\r\n\r\n$4\r\n\r\n*1\r\n*1\r\n$4\r\nPING\r\n"
	r := newRespReader(iotest.OneByteReader(strings.NewReader(stream)))
	first, args, err := r.command()
	require.NoError(t, err, "command")
	require.Len(t, args, 3, "command")
	require.Equal(t, "set", string(args[0]), "command")
	require.Empty(t, args[1], "command")
	require.Equal(t, "\r\n*1", string(args[2]), "command")
	second, _, err := r.command()
	assert.NoError(t, err, "read %q and %q", first, second)
	assert.Equal(t, stream, string(first)+string(second), "read %q and %q", first, second)
	assert.Equal(t, "\r\n*1", string(args[2]),
		"the second command overwrote the first one's arguments")
}

// FuzzReader: whatever arrives, what is read is a prefix of it, and nothing panics.
func FuzzReader(f *testing.F) {
	for _, v := range values {
		f.Add([]byte(v))
	}
	f.Add([]byte("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		rest := data
		for r := newRespReader(bytes.NewReader(data)); ; {
			got, err := r.value()
			if err != nil {
				break
			}
			require.NotEmpty(t, got, "read %q of %q", got, rest)
			require.True(t, bytes.HasPrefix(rest, got), "read %q of %q", got, rest)
			rest = rest[len(got):]
		}
		raw, args, err := newRespReader(bytes.NewReader(data)).command()
		require.False(t, err == nil && (!bytes.HasPrefix(data, raw) || len(args) == 0),
			"command %q with %d arguments of %q", raw, len(args), data)
	})
}
