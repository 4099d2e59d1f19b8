package resp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/onceward/onceward/internal/servertest"
)

// each runs test on an embedded server and on a real one.
func each(t *testing.T, test func(t *testing.T, c *Conn, prefix string)) {
	for name, addr := range map[string]func(t *testing.T) string{
		"embedded": func(t *testing.T) string { return miniredis.RunT(t).Addr() },
		"redis":    func(t *testing.T) string { return servertest.Redis(t) },
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Dial(t.Context(), addr(t))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			test(t, c, servertest.Prefix(t))
		})
	}
}

func TestCycle(t *testing.T) {
	each(t, func(t *testing.T, c *Conn, prefix string) {
		ctx, keys := t.Context(), []string{prefix + "a", prefix + "b", prefix + "\r\n$-1"}
		if err := c.ClaimNew(ctx, keys, "token", time.Minute); err != nil {
			t.Fatal(err)
		}
		if err := c.Complete(ctx, keys, "token", strings.Repeat("v", 200_000),
			time.Minute); err != nil {
			t.Fatal(err)
		}
		if err := c.ClaimKnown(ctx, keys, "other", time.Minute); err != nil {
			t.Fatal(err)
		}
		if err := c.MGet(ctx, keys); err != nil {
			t.Fatal(err)
		}
		if c.pending != 0 {
			t.Errorf("%d replies are left", c.pending)
		}
		if err := c.ClaimNew(ctx, keys, "other", time.Minute); err == nil {
			t.Error("keys that are known were taken for new")
		}
	})
}

func TestClaimNewIsNotTakenForKnown(t *testing.T) {
	each(t, func(t *testing.T, c *Conn, prefix string) {
		if err := c.ClaimKnown(t.Context(), []string{prefix + "new"}, "token",
			time.Minute); err == nil {
			t.Error("a new key was taken for known")
		}
	})
}

func TestClaimTellsNewFromKnown(t *testing.T) {
	each(t, func(t *testing.T, c *Conn, prefix string) {
		ctx, keys := t.Context(), []string{prefix + "a", prefix + "b", prefix + "c"}
		if err := c.ClaimNew(ctx, keys[1:2], "token", time.Minute); err != nil {
			t.Fatal(err)
		}
		if err := c.Complete(ctx, keys[1:2], "token", "1", time.Minute); err != nil {
			t.Fatal(err)
		}
		won, err := c.Claim(ctx, keys, "token", time.Minute)
		if err != nil || !slices.Equal(won, []string{keys[0], keys[2]}) {
			t.Errorf("won %q, %v", won, err)
		}
		if _, err := c.Claim(ctx, keys, "token", time.Minute); err == nil {
			t.Error("keys in flight were taken for done")
		}
	})
}

func TestRefusalIsAReply(t *testing.T) {
	each(t, func(t *testing.T, c *Conn, _ string) {
		c.Append("SET", "only")
		c.Append("PING")
		if err := c.Flush(); err != nil {
			t.Fatal(err)
		}
		if r, err := c.Read(); err != nil || r.Kind != Failure {
			t.Errorf("reply %c %q, error %v", r.Kind, r.Text, err)
		}
		if r, err := c.Read(); err != nil || string(r.Text) != "PONG" {
			t.Errorf("reply %q, error %v", r.Text, err)
		}
		if _, err := c.Read(); err == nil {
			t.Error("a reply without a command")
		}
	})
}

func TestWatchEndsARead(t *testing.T) {
	client, silent := net.Pipe()
	defer func() { _ = silent.Close() }()
	go func() { _, _ = io.Copy(io.Discard, silent) }()
	c := &Conn{conn: client, in: bufio.NewReader(client)}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.ClaimNew(ctx, []string{"a"}, "t", time.Second); err == nil {
		t.Error("no error")
	}
}

// parse reads one reply from text.
func parse(text string) (Reply, error) {
	c := &Conn{in: bufio.NewReaderSize(strings.NewReader(text), 16), pending: 1}
	return c.Read()
}

func TestRead(t *testing.T) {
	for _, c := range []struct {
		text string
		want Reply
		bad  bool
	}{
		{text: "+OK\r\n", want: Reply{Kind: Simple, Text: []byte("OK")}},
		{text: ":-12\r\n", want: Reply{Kind: Integer, Int: -12}},
		{text: "$-1\r\n", want: Reply{Kind: Bulk, Null: true}},
		{text: "$0\r\n\r\n", want: Reply{Kind: Bulk}},
		{text: "$4\r\na\r\nb\r\n", want: Reply{Kind: Bulk, Text: []byte("a\r\nb")}},
		{text: "$40\r\n" + strings.Repeat("x", 40) + "\r\n",
			want: Reply{Kind: Bulk, Text: bytes.Repeat([]byte("x"), 40)}},
		{text: "*2\r\n", want: Reply{Kind: Array, Int: 2}},
		{text: "*-1\r\n", want: Reply{Kind: Array, Null: true}},
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
			if err == nil {
				t.Errorf("%q: %+v, want an error", c.text, got)
			}
			continue
		}
		if err != nil || got.Kind != c.want.Kind || got.Int != c.want.Int ||
			got.Null != c.want.Null || !bytes.Equal(got.Text, c.want.Text) {
			t.Errorf("%q: %+v, %v, want %+v", c.text, got, err, c.want)
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, seed := range []string{"+OK\r\n", "$3\r\nabc\r\n", "*1\r\n:1\r\n", "-ERR x\r\n",
		"$-1\r\n", "$536870913\r\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := parse(text)
		if err != nil {
			return
		}
		if r.Null && len(r.Text) > 0 || len(r.Text) > len(text) {
			t.Errorf("%q: %+v", text, r)
		}
	})
}

// The yardstick must not allocate, or it would not be one.
func TestPipelineDoesNotAllocatePerKey(t *testing.T) {
	client, server := net.Pipe()
	defer func() { _ = client.Close() }()
	const keys = 64
	reply := bytes.Repeat([]byte("$-1\r\n"), keys)
	size := 0
	go func() {
		buf := make([]byte, 1<<16)
		for got := 0; ; {
			n, err := server.Read(buf)
			if err != nil {
				return
			}
			if got += n; got == size {
				got = 0
				if _, err := server.Write(reply); err != nil {
					return
				}
			}
		}
	}()
	c := &Conn{conn: client, in: bufio.NewReader(client)}
	names := make([]string, keys)
	for i := range names {
		names[i] = "key"
		c.Append("SET", "key", "t", "NX", "GET", "PX", "1000")
	}
	size, c.out, c.pending = len(c.out), nil, 0
	perPipeline := testing.AllocsPerRun(20, func() {
		if err := c.ClaimNew(context.Background(), names, "t", time.Second); err != nil &&
			!errors.Is(err, io.EOF) {
			t.Error(err)
		}
	})
	if perPipeline > keys/4 {
		t.Errorf("%v allocations for %d keys", perPipeline, keys)
	}
}
