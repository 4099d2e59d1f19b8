package resp

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/internal/servertest"
)

// each runs test on an embedded server and on a real one.
func each(t *testing.T, test func(t *testing.T, c *Conn, prefix string)) {
	for name, addr := range map[string]func(t *testing.T) string{
		"embedded": func(t *testing.T) string { return miniredis.RunT(t).Addr() },
		"redis":    func(t *testing.T) string { return servertest.Redis(t) },
	} {
		t.Run(name, func(t *testing.T) {
			c := Dial(t.Context(), addr(t))
			t.Cleanup(func() { _ = c.Close() })
			test(t, c, servertest.Prefix(t))
		})
	}
}

func TestCycle(t *testing.T) {
	each(t, func(t *testing.T, c *Conn, prefix string) {
		ctx, keys := t.Context(), []string{prefix + "a", prefix + "b", prefix + "\r\n$-1"}
		c.ClaimNew(ctx, keys, "token", time.Minute)
		c.Complete(ctx, keys, "token", strings.Repeat("v", 200_000), time.Minute)
		c.ClaimKnown(ctx, keys, "other", time.Minute)
		c.MGet(ctx, keys)
		assert.Zero(t, c.in.Buffered(), "replies are left")
		require.Error(t, must.Try(func() { c.ClaimNew(ctx, keys, "other", time.Minute) }),
			"keys that are known were taken for new")
	})
}

func TestNewIsNotTakenForKnown(t *testing.T) {
	each(t, func(t *testing.T, c *Conn, prefix string) {
		require.Error(t, must.Try(func() {
			c.ClaimKnown(t.Context(), []string{prefix + "new"}, "token", time.Minute)
		}))
	})
}

func TestClaimDistinguishesNewFromKnown(t *testing.T) {
	each(t, func(t *testing.T, c *Conn, prefix string) {
		ctx, keys := t.Context(), []string{prefix + "a", prefix + "b", prefix + "c"}
		c.ClaimNew(ctx, keys[1:2], "token", time.Minute)
		c.Complete(ctx, keys[1:2], "token", "1", time.Minute)
		assert.Equal(t, []string{keys[0], keys[2]}, c.Claim(ctx, keys, "token", time.Minute))
		require.Error(t, must.Try(func() { c.Claim(ctx, keys, "token", time.Minute) }),
			"keys in flight were taken for done")
	})
}

func TestRefusalIsAnError(t *testing.T) {
	each(t, func(t *testing.T, c *Conn, _ string) {
		c.add("SET", "only")
		defer c.send(t.Context())()
		err := must.Try(func() { c.read() })
		require.ErrorIs(t, err, ErrProtocol)
		require.ErrorContains(t, err, "wrong number of arguments")
	})
}

func TestContextEndsARead(t *testing.T) {
	client, silent := net.Pipe()
	defer func() { _ = silent.Close() }()
	go func() { _, _ = io.Copy(io.Discard, silent) }()
	c := &Conn{conn: client, in: bufio.NewReader(client)}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, must.Try(func() { c.ClaimNew(ctx, []string{"a"}, "t", time.Second) }))
}

// parse reads one reply from text.
func parse(text string) (got []byte, err error) {
	defer must.Catch(&err)
	return (&Conn{in: bufio.NewReaderSize(strings.NewReader(text), 16)}).read(), nil
}

func TestRead(t *testing.T) {
	for text, want := range map[string][]byte{
		"$-1\r\n": nil, "$0\r\n\r\n": {}, "$4\r\na\r\nb\r\n": []byte("a\r\nb"),
		"$40\r\n" + strings.Repeat("x", 40) + "\r\n": bytes.Repeat([]byte("x"), 40),
	} {
		got, err := parse(text)
		assert.NoError(t, err, "%q", text)
		assert.Equal(t, want, got, "%q", text)
	}
	for _, bad := range []string{"+OK\r\n", ":-12\r\n", "*2\r\n", "*-1\r\n", "$4\r\nabcdef\r\n",
		"$-2\r\n", "$9999999999\r\n", "$1x\r\n", "$\r\n", "?\r\n", "$0\n", "$4\r\nab", ""} {
		_, err := parse(bad)
		assert.Error(t, err, "%q", bad)
	}
}

func FuzzRead(f *testing.F) {
	for _, seed := range []string{"+OK\r\n", "$3\r\nabc\r\n", "*1\r\n:1\r\n", "-ERR x\r\n",
		"$-1\r\n", "$536870913\r\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if got, err := parse(text); err == nil {
			assert.LessOrEqual(t, len(got), len(text), "%q", text)
		}
	})
}
