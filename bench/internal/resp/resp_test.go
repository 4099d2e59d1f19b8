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

func TestRefusalIsAReply(t *testing.T) {
	each(t, func(t *testing.T, c *Conn, _ string) {
		c.add("SET", "only")
		c.add("PING")
		defer c.send(t.Context())()
		assert.Equal(t, byte('-'), c.read().Kind)
		assert.Equal(t, "PONG", string(c.read().Text))
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
func parse(text string) (r Reply, err error) {
	defer must.Catch(&err)
	return (&Conn{in: bufio.NewReaderSize(strings.NewReader(text), 16)}).read(), nil
}

func TestRead(t *testing.T) {
	for _, c := range []struct {
		text string
		want Reply
		bad  bool
	}{
		{text: "+OK\r\n", want: Reply{Kind: '+', Text: []byte("OK")}},
		{text: ":-12\r\n", want: Reply{Kind: ':', Int: -12}},
		{text: "$-1\r\n", want: Reply{Kind: '$', Null: true}},
		{text: "$0\r\n\r\n", want: Reply{Kind: '$'}},
		{text: "$4\r\na\r\nb\r\n", want: Reply{Kind: '$', Text: []byte("a\r\nb")}},
		{text: "$40\r\n" + strings.Repeat("x", 40) + "\r\n",
			want: Reply{Kind: '$', Text: bytes.Repeat([]byte("x"), 40)}},
		{text: "*2\r\n", want: Reply{Kind: '*', Int: 2}},
		{text: "*-1\r\n", want: Reply{Kind: '*', Null: true}},
		{text: "$4\r\nabcdef\r\n", bad: true},
		{text: "$-2\r\n", bad: true},
		{text: "$9999999999\r\n", bad: true},
		{text: ":1x\r\n", bad: true},
		{text: ":\r\n", bad: true},
		{text: "?\r\n", bad: true},
		{text: "+OK\n", bad: true},
		{text: "$4\r\nab", bad: true},
		{text: "", bad: true},
	} {
		got, err := parse(c.text)
		if c.bad {
			assert.Error(t, err, "%q", c.text)
			continue
		}
		assert.NoError(t, err, "%q", c.text)
		assert.Equal(t, string(c.want.Text), string(got.Text), "%q", c.text)
		got.Text, c.want.Text = nil, nil
		assert.Equal(t, c.want, got, "%q", c.text)
	}
}

func FuzzRead(f *testing.F) {
	for _, seed := range []string{"+OK\r\n", "$3\r\nabc\r\n", "*1\r\n:1\r\n", "-ERR x\r\n",
		"$-1\r\n", "$536870913\r\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if r, err := parse(text); err == nil {
			assert.False(t, r.Null && len(r.Text) > 0 || len(r.Text) > len(text), "%q", text)
		}
	})
}
